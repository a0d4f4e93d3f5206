# Run by cpack on what it has installed, before it packs it (cmake/package.cmake): links, manual pages, licences, and for the
# .tar.gz the libraries that heed needs.

include(${CMAKE_CURRENT_LIST_DIR}/bundle.cmake)
set(CMAKE_OBJDUMP ${CPACK_OBJDUMP_EXECUTABLE})
set(OPENED ${CPACK_HEED_OPENED})
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX})
set(lib ${root}/${CPACK_HEED_LIBDIR})

file(GLOB programs ${lib}/heed/*)
file(GLOB shared ${lib}/libheed.so.*.*.*)
file(MAKE_DIRECTORY ${root}/bin ${root}/share/man/man1)
foreach(program ${programs})
  get_filename_component(name ${program} NAME)
  string(REPLACE heed-heed heed name heed-${name})
  file(RELATIVE_PATH target ${root}/bin ${program})
  file(CREATE_LINK ${target} ${root}/bin/${name} SYMBOLIC)
  set(page ${root}/share/man/man1/${name}.1)
  # They find libheed.so where it lies now.
  execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${lib}
                  python3 ${CPACK_HEED_SOURCE_DIR}/cmake/packaging/manual.py "${CPACK_HEED_EMULATOR} ${program}" ${name}
                  OUTPUT_FILE ${page} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND gzip -9n ${page} COMMAND_ERROR_IS_FATAL ANY)
  if(NOT name STREQUAL "heed")
    file(CREATE_LINK heed ${root}/share/bash-completion/completions/${name} SYMBOLIC)
  endif()
endforeach()

set(doc ${root}/share/doc/heed)
file(READ ${CPACK_HEED_SOURCE_DIR}/LICENSE licence)
file(READ ${CPACK_HEED_SOURCE_DIR}/apps/report/page/chart_licence.js chart)
file(WRITE ${doc}/copyright "${licence}\nThe pages that heed writes contain:\n\n${chart}")

if(CPACK_GENERATOR STREQUAL "DEB")
  string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${doc}/changelog "heed (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * CHANGELOG.md of the sources says what is new.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
  execute_process(COMMAND gzip -9n ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
  return()
endif()

bundle_libraries(${lib} ${shared})  # which is all that the programs need
foreach(library ${BUNDLED})  # with their licences, as their Debian packages have them
  string(REGEX REPLACE "^/usr" "" link ${library})
  foreach(path ${library} ${link})
    execute_process(COMMAND dpkg -S ${path} OUTPUT_VARIABLE package ERROR_QUIET)
    if(package MATCHES "^([^:]+):")
      cmake_path(GET library FILENAME name)
      file(COPY_FILE /usr/share/doc/${CMAKE_MATCH_1}/copyright ${doc}/copyright.${name})
    endif()
  endforeach()
endforeach()
file(GLOB libraries ${lib}/lib*.so.*)
foreach(file ${libraries} ${programs})
  if(IS_SYMLINK ${file})
    continue()
  endif()
  # They look for libraries beside them. RPATH, unlike RUNPATH, precedes LD_LIBRARY_PATH.
  cmake_path(GET file PARENT_PATH beside)
  file(RELATIVE_PATH beside ${beside} ${lib})
  execute_process(COMMAND strip --strip-unneeded ${file} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND patchelf --force-rpath --set-rpath $ORIGIN/${beside} ${file} COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND binaries ${file})
endforeach()
newest_glibc(glibc ${binaries})
message(STATUS "the archive needs glibc ${glibc} or newer")
