# What the engine (../CMakeLists.txt) and the applications (../apps/CMakeLists.txt) compile their objects with.

# Settings that all targets share. Where heed is part of another project, that project's choices take precedence.
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

# The standard library checks the indices of its containers in every kind of build. Sizes come from settings,
# files and shapes; an abort says where one was wrong, while a write past the end of a block goes unnoticed.
# The checks cost 0.2 % of a training step, in the median of 26 pairs.
add_compile_definitions(_GLIBCXX_ASSERTIONS)

# The compiler of GCC collects its garbage once it holds 512 MB: at its default of 128 MB that is an eighth of the time.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
endif()

# Programs read what others made. Damage to memory ends them, their addresses differ from run to run, and tables of
# functions are read-only (tests/hardening_test.cmake). Sanitizers watch more, and not together with this.
if(PROJECT_IS_TOP_LEVEL AND NOT HEED_SANITIZE)
  include(CheckPIESupported)
  check_pie_supported()
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  add_compile_options(-fstack-protector-strong -fstack-clash-protection
                      "$<$<NOT:$<CONFIG:Debug>>:SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>")
  add_link_options(LINKER:-z,relro LINKER:-z,now)
endif()

option(HEED_UNITY "Compile the files of the library and the tests several at a time, far less work; OFF: one by one" ON)
set(HEED_UNITY_FILES 8 CACHE STRING "How many files of a folder of the library are compiled at a time: more are less work, and more to do anew")
option(HEED_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)
set(HEED_WARNINGS -Wall -Wextra -Wpedantic $<$<BOOL:${HEED_WARNINGS_AS_ERRORS}>:-Werror>)
set(HEED_UNITY_OPTIONS)
if(HEED_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # which takes all of a unit for an included file
  set(HEED_UNITY_OPTIONS -Wno-subobject-linkage)
endif()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

# heed_add_objects(NAME SOURCE...): the objects of one part of a library. Several files of a folder are compiled at a time,
# because most of the work is reading headers: names in anonymous namespaces must differ within a folder.
function(heed_add_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_compile_features(${name} PUBLIC cxx_std_20)
  # Contracting a * b + c into one rounding is the compiler's choice and would differ between builds.
  target_compile_options(${name} PRIVATE ${HEED_WARNINGS} -ffp-contract=off ${HEED_UNITY_OPTIONS})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    # Without a baseline g++ 12 gets Highway's one-lane target, which lacks most operations. x86-64-v2 means any processor
    # since 2009; AVX2 and AVX-512 are found at run time. SSE4 gains little over the baseline and costs a fourth compilation
    # of every kernel.
    target_compile_options(${name} PRIVATE -march=x86-64-v2)
    target_compile_definitions(${name} PRIVATE HWY_DISABLED_TARGETS=HWY_SSE4)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    # NEON alone: vectors of SVE have no size, and so cannot be members, as some kernels keep them.
    target_compile_definitions(${name} PRIVATE "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
  endif()
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    target_compile_options(${name} PRIVATE -O2)
  endif()
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD ${HEED_UNITY} UNITY_BUILD_MODE GROUP)
  foreach(source ${ARGN})
    file(RELATIVE_PATH folder ${CMAKE_CURRENT_SOURCE_DIR} ${source}/..)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR files_${folder} "0${files_${folder}} + 1")
    math(EXPR group "${files_${folder}} / ${HEED_UNITY_FILES}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
  target_link_libraries(${name} PRIVATE nlohmann_json::nlohmann_json ZLIB::ZLIB PkgConfig::UTF8PROC Threads::Threads)
endfunction()
