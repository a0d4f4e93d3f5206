# bundle_libraries(FOLDER FILE...): copies the libraries that programs or libraries need, and those in OPENED, which are opened
# at run time and so not listed as dependencies. Those that every system has (glibc, libstdc++, libgcc_s) are left out,
# because drivers may need newer ones. BUNDLED becomes the list of the originals.
function(bundle_libraries folder)
  foreach(library ${OPENED})
    if(NOT EXISTS ${library})
      message(FATAL_ERROR "the libraries that programs open at run time are not all installed: ${OPENED}")
    endif()
  endforeach()
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${ARGN} LIBRARIES ${OPENED}
       RESOLVED_DEPENDENCIES_VAR libraries
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
