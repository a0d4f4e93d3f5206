# Settings that every target of this project shares. If heed is part of another project, that project's
# choices take precedence.

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
elseif(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  message(WARNING "heed: no CMAKE_BUILD_TYPE is set; heed itself is compiled with -O2, your own code without optimisation")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

set(HEED_WARNINGS -Wall -Wextra -Wpedantic $<$<BOOL:${HEED_WARNINGS_AS_ERRORS}>:-Werror>)

# The standard library checks the indices of its containers in every kind of build. Sizes come from settings,
# files and shapes; an abort says where one was wrong, while a write past the end of a block goes unnoticed.
# docs/hostile_use.md says what the checks cost.
add_compile_definitions(_GLIBCXX_ASSERTIONS)

if(HEED_SANITIZE)
  add_compile_options(-fsanitize=${HEED_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HEED_SANITIZE})
endif()
