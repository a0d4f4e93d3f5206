# Copies programs and the libraries they need to a folder that can be moved to a machine with a GPU and its
# driver.
#
#   cmake -D PROGRAMS=FILE;... -D OPENED=FILE;... -D EXTRA=FILE;... -D FOLDER=DIR -D STRIP=PROGRAM -D OBJDUMP=PROGRAM \
#       -P cmake/gpu_bundle.cmake
#
# The programs first look for libraries in the lib/ beside them (by RPATH, which also applies to what OpenBLAS
# and the Vulkan loader need). OPENED: libraries that are opened at run time. EXTRA: Python files.

include(${CMAKE_CURRENT_LIST_DIR}/bundle.cmake)
set(CMAKE_OBJDUMP ${OBJDUMP})

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
  execute_process(COMMAND ${STRIP} --strip-unneeded ${binary} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
newest_glibc(glibc ${binaries})
message("${FOLDER}: needs glibc ${glibc} or newer and a Vulkan driver; run ./bench_gpu or compare_gpu.py in it")
