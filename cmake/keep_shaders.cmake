# Compiles the shaders that Debian 12's glslang cannot compile and stores the modules in shaders/kept, with
# checksums of their sources. Run it with a glslang that supports all extensions (16.5 does) when a test
# reports that the modules are out of date:
#
#   cmake -D GLSLANG=/path/to/glslang -P cmake/keep_shaders.cmake
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/shader_modules.cmake)
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
set(folder ${root}/shaders)
if(NOT OUT)
  set(OUT ${folder}/kept)
endif()
if(NOT GLSLANG)
  message(FATAL_ERROR "GLSLANG is not set: pass -D GLSLANG=/path/to/glslang")
endif()
execute_process(COMMAND ${GLSLANG} --version OUTPUT_VARIABLE version)
string(REGEX REPLACE "\n.*" "" version "${version}")
file(MAKE_DIRECTORY ${OUT})
set(table "# Made by cmake/keep_shaders.cmake with ${version}: module, checksum of its sources, checksum of the module\n")
heed_modules_to_keep(${folder} modules)
foreach(module ${modules})
  string(REPLACE "|" ";" defines "${module}")
  list(POP_FRONT defines source name)
  set(flags ${defines})
  list(TRANSFORM flags PREPEND -D)
  execute_process(COMMAND ${GLSLANG} -V -g0 --quiet --target-env vulkan1.2 -I${folder} -I${root} ${flags}
                          -o ${OUT}/${name}.spv ${source}
                  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${GLSLANG} cannot compile ${name}: ${said}")
  endif()
  heed_module_hash(${folder} ${source} "${defines}" hash)
  file(SHA256 ${OUT}/${name}.spv made)
  string(APPEND table "${name} ${hash} ${made}\n")
endforeach()
file(WRITE ${OUT}/checksums.txt "${table}")
