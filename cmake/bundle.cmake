# What takes libraries along: the .tar.gz of cpack (package_files.cmake) and, as a script, a folder that can be moved to a
# machine with a GPU and its driver:
#
#   cmake -D PROGRAMS=FILE;... -D OPENED=FILE;... -D EXTRA=FILE;... -D FOLDER=DIR -D CMAKE_STRIP=PROGRAM \
#       -D CMAKE_OBJDUMP=PROGRAM -P cmake/bundle.cmake
#
# There the programs look for libraries in the lib/ beside them (by RPATH, which also applies to what OpenBLAS and the Vulkan
# loader need). OPENED: libraries that are opened at run time. EXTRA: Python files.

# bundle_libraries(FOLDER FILE...): copies the libraries that programs or libraries need, and those in OPENED, which are opened
# at run time and so not listed as dependencies. Those that every system has (glibc, libstdc++, libgcc_s) are left out,
# because drivers may need newer ones, and so is heed's own. BUNDLED becomes the list of the originals.
function(bundle_libraries folder)
  foreach(library ${OPENED})
    if(NOT EXISTS ${library})
      message(FATAL_ERROR "the libraries that programs open at run time are not all installed: ${OPENED}")
    endif()
  endforeach()
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${ARGN} LIBRARIES ${OPENED}
       RESOLVED_DEPENDENCIES_VAR libraries PRE_EXCLUDE_REGEXES "^libheed\\."
       POST_EXCLUDE_REGEXES "/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\\+\\+|ld-linux[^/]*)\\.so\\.[0-9]+$")
  foreach(library ${OPENED} ${libraries})
    get_filename_component(name ${library} NAME)
    get_filename_component(library ${library} REALPATH)
    file(COPY_FILE ${library} ${folder}/${name})
    list(APPEND bundled ${library})
  endforeach()
  set(BUNDLED ${bundled} PARENT_SCOPE)
endfunction()

# The newest glibc version that any of the files needs.
function(newest_glibc result)
  set(glibc 2.0)
  foreach(binary ${ARGN})
    execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${binary} OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "GLIBC_2\\.[0-9]+" versions "${headers}")
    foreach(version ${versions})
      string(REPLACE GLIBC_ "" version ${version})
      if(version VERSION_GREATER glibc)
        set(glibc ${version})
      endif()
    endforeach()
  endforeach()
  set(${result} ${glibc} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(REMOVE_RECURSE ${FOLDER})
  file(MAKE_DIRECTORY ${FOLDER}/lib)
  bundle_libraries(${FOLDER}/lib ${PROGRAMS})
  file(COPY ${PROGRAMS} ${EXTRA} DESTINATION ${FOLDER})
  file(GLOB binaries ${FOLDER}/lib/*)
  foreach(program ${PROGRAMS})
    get_filename_component(name ${program} NAME)
    list(APPEND binaries ${FOLDER}/${name})
  endforeach()
  foreach(binary ${binaries})
    execute_process(COMMAND ${CMAKE_STRIP} --strip-unneeded ${binary} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  newest_glibc(glibc ${binaries})
  message("${FOLDER}: needs glibc ${glibc} or newer and a Vulkan driver; run ./bench_steps or compare_gpu.py in it")
endif()
