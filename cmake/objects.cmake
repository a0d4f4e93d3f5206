# What the engine (../CMakeLists.txt) and the applications (../apps/CMakeLists.txt) compile their objects with.

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
