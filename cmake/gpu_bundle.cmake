# Copies programs and the libraries they need to a folder that can be moved to a machine with a GPU and its
# driver. Libraries that every system has (glibc, libstdc++, libgcc_s) are left out, because drivers may need
# newer ones.
#
#   cmake -D PROGRAMS=FILE;... -D OPENED=FILE;... -D EXTRA=FILE;... -D FOLDER=DIR -D STRIP=PROGRAM -D OBJDUMP=PROGRAM \
#       -P cmake/gpu_bundle.cmake
#
# The programs first look for libraries in the lib/ beside them (by RPATH, which also applies to what OpenBLAS
# and the Vulkan loader need). OPENED: libraries that are opened at run time, so they are not listed as
# dependencies. EXTRA: Python files.

file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER}/lib)

foreach(library ${OPENED})
  if(NOT EXISTS ${library})
    message(FATAL_ERROR "the libraries that programs open at run time are not all installed: ${OPENED}")
  endif()
endforeach()
set(CMAKE_OBJDUMP ${OBJDUMP})
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAMS} LIBRARIES ${OPENED}
     RESOLVED_DEPENDENCIES_VAR libraries
     POST_EXCLUDE_REGEXES "/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\\+\\+|ld-linux[^/]*)\\.so\\.[0-9]+$")
foreach(library ${OPENED} ${libraries})
  get_filename_component(name ${library} NAME)
  get_filename_component(library ${library} REALPATH)
  file(COPY_FILE ${library} ${FOLDER}/lib/${name})
endforeach()
file(COPY ${PROGRAMS} ${EXTRA} DESTINATION ${FOLDER})

# The newest glibc version that any of the files needs.
set(glibc 2.0)
file(GLOB binaries ${FOLDER}/lib/*)
foreach(program ${PROGRAMS})
  get_filename_component(name ${program} NAME)
  list(APPEND binaries ${FOLDER}/${name})
endforeach()
foreach(binary ${binaries})
  execute_process(COMMAND ${STRIP} --strip-unneeded ${binary} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${OBJDUMP} -p ${binary} OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "GLIBC_2\\.[0-9]+" versions "${headers}")
  foreach(version ${versions})
    string(REPLACE GLIBC_ "" version ${version})
    if(version VERSION_GREATER glibc)
      set(glibc ${version})
    endif()
  endforeach()
endforeach()
message("${FOLDER}: needs glibc ${glibc} or newer and a Vulkan driver; run ./bench_gpu or compare_gpu.py in it")
