# Compiles shaders/*.comp to SPIR-V and generates one source file with all modules, sorted by name.
# shaders/README.md says what the `//!` lines of a shader mean.

find_program(HEED_GLSLANG NAMES glslangValidator glslang
             DOC "glslang's compiler; a newer one than the system's may support more extensions")
if(NOT HEED_GLSLANG)
  message(FATAL_ERROR "HEED_VULKAN needs glslangValidator (Debian: glslang-tools). Without it: -D HEED_VULKAN=OFF")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/shader_modules.cmake)
set(shader_folder ${PROJECT_SOURCE_DIR}/shaders)
set(spirv_folder ${PROJECT_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${spirv_folder})
file(GLOB shader_sources CONFIGURE_DEPENDS ${shader_folder}/*.comp)
file(GLOB shader_includes CONFIGURE_DEPENDS ${shader_folder}/*.glsl)

# Sets `result` to whether glslang supports a GLSL extension.
function(heed_glslang_knows extension result)
  if(NOT DEFINED HEED_HAS_${extension})
    set(probe ${spirv_folder}/probe.comp)
    file(WRITE ${probe} "#version 460\n#extension ${extension} : require\nlayout(local_size_x = 1) in;\nvoid main() {}\n")
    execute_process(COMMAND ${HEED_GLSLANG} -V --target-env vulkan1.3 -o ${probe}.spv ${probe}
                    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      set(known ON)
    else()
      set(known OFF)
      message(STATUS "glslang does not support ${extension}: using the modules in shaders/kept for the shaders that need it")
    endif()
    set(HEED_HAS_${extension} ${known} CACHE INTERNAL "")
  endif()
  set(${result} ${HEED_HAS_${extension}} PARENT_SCOPE)
endfunction()

set(modules)
set(module_headers)
function(heed_add_module source name defines)
  set(header ${spirv_folder}/${name}.h)
  list(REMOVE_ITEM defines "")
  list(TRANSFORM defines PREPEND -D)
  add_custom_command(
    OUTPUT ${header}
    COMMAND ${HEED_GLSLANG} -V --quiet --target-env vulkan1.2 -I${shader_folder} -I${PROJECT_SOURCE_DIR} ${defines}
            --vn ${name} -o ${header} ${source}
    DEPENDS ${source} ${shader_includes} ${PROJECT_SOURCE_DIR}/core/elementwise.def
            ${PROJECT_SOURCE_DIR}/backends/vulkan/shader_flags.h
    COMMENT "Shader ${name}" VERBATIM)
  set(modules ${modules} ${name} PARENT_SCOPE)
  set(module_headers ${module_headers} ${header} PARENT_SCOPE)
endfunction()

# Adds a module that a newer glslang compiled and that is kept with the sources (keep_shaders.cmake).
function(heed_add_kept_module name)
  set(header ${spirv_folder}/${name}.h)
  set(module ${shader_folder}/kept/${name}.spv)
  add_custom_command(
    OUTPUT ${header}
    COMMAND ${CMAKE_COMMAND} -D NAME=${name} -D MODULE=${module} -D HEADER=${header} -P ${PROJECT_SOURCE_DIR}/cmake/shader_modules.cmake
    DEPENDS ${module} ${PROJECT_SOURCE_DIR}/cmake/shader_modules.cmake
    COMMENT "Shader ${name}, as kept" VERBATIM)
  set(modules ${modules} ${name} PARENT_SCOPE)
  set(module_headers ${module_headers} ${header} PARENT_SCOPE)
endfunction()

foreach(source ${shader_sources})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  heed_read_shader(${source} source_modules)
  foreach(module ${source_modules})
    heed_split_module("${module}" name needs defines)
    set(known ON)
    foreach(extension ${needs})
      heed_glslang_knows(${extension} knows_this)
      if(NOT knows_this)
        set(known OFF)
      endif()
    endforeach()
    if(known)
      heed_add_module(${source} ${name} "${defines}")
      continue()
    endif()
    heed_module_hash(${shader_folder} ${source} "${defines}" hash)
    heed_kept_line(${shader_folder} ${name} line)
    if(line MATCHES "^${name} ${hash} ")
      heed_add_kept_module(${name})
    else()
      message(WARNING "shader ${name} is left out: glslang does not support ${needs}, and its module in shaders/kept was "
              "made from other sources; cmake/keep_shaders.cmake says how to make it again")
    endif()
  endforeach()
endforeach()

list(SORT modules)
set(table "#include \"heed/backends/vulkan/shader_code.h\"\n\nnamespace heed::vulkan {\nnamespace {\n")
foreach(name ${modules})
  string(APPEND table "#include \"${name}.h\"\n")
endforeach()
string(APPEND table "constexpr ShaderCode codes[] = {\n")
foreach(name ${modules})
  string(APPEND table "    {\"${name}\", ${name}},\n")
endforeach()
string(APPEND table "};\n}  // namespace\nstd::span<const ShaderCode> shader_codes() { return codes; }\n}  // namespace heed::vulkan\n")
set(HEED_SHADER_TABLE ${spirv_folder}/shader_table.cpp)
file(CONFIGURE OUTPUT ${HEED_SHADER_TABLE} CONTENT "${table}" @ONLY)
set_source_files_properties(${HEED_SHADER_TABLE} PROPERTIES OBJECT_DEPENDS "${module_headers}" INCLUDE_DIRECTORIES ${spirv_folder})
