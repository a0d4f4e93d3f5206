# The installed package: libraries, public headers, CMake targets and a pkg-config file.

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(CMakePackageConfigHelpers)

set(HEED_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/heed)

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES heed.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed)
set(folders ${HEED_PUBLIC_FOLDERS})
if(HEED_APPS)
  list(APPEND folders apps/data apps/tasks apps/compare)
  install(FILES apps/report/page/chart_licence.js DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES apps/apps.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/apps)
  install(FILES apps/report/capture.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/apps/report)
  install(FILES apps/hub/exchange.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/apps/hub)
  install(FILES bindings/c/heed.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/c)
endif()
# Not backends/: programs reach a backend through heed::Backend alone.
foreach(folder ${folders})
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/${folder} FILES_MATCHING PATTERN "*.h"
          PATTERN "*.def" PATTERN cases EXCLUDE)
endforeach()

set_target_properties(heed PROPERTIES EXPORT_NAME heed_static)
install(TARGETS heed EXPORT heed-static-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT heed-static-targets NAMESPACE heed:: DESTINATION ${HEED_CMAKE_DIR})
if(HEED_BUILD_SHARED)
  install(TARGETS heed_shared EXPORT heed-shared-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT heed-shared-targets NAMESPACE heed:: DESTINATION ${HEED_CMAKE_DIR})
endif()
if(HEED_INSTALLED_PROGRAMS)
  install(TARGETS ${HEED_INSTALLED_PROGRAMS} COMPONENT programs)
endif()

configure_package_config_file(cmake/heed-config.cmake.in ${PROJECT_BINARY_DIR}/heed-config.cmake
                              INSTALL_DESTINATION ${HEED_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heed-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heed-config.cmake ${PROJECT_BINARY_DIR}/heed-config-version.cmake
        DESTINATION ${HEED_CMAKE_DIR})

# Paths relative to the .pc file itself, so that the installed tree can be moved.
file(RELATIVE_PATH HEED_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HEED_PC_PREFIX "${HEED_PC_PREFIX}")
set(pkg_config_files heed)
if(HEED_APPS)
  list(APPEND pkg_config_files heed-c)  # for C programs, whose compiler does not know -std=c++20
endif()
foreach(HEED_PC_NAME ${pkg_config_files})
  set(HEED_PC_FLAGS)
  if(HEED_PC_NAME STREQUAL "heed")
    set(HEED_PC_FLAGS "-std=c++20 ")
  endif()
  configure_file(cmake/heed.pc.in ${PROJECT_BINARY_DIR}/${HEED_PC_NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${HEED_PC_NAME}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
