# cpack: a .deb for the Debian or Ubuntu that it is made on, and a .tar.gz with the libraries it needs for any later one.
# Both hold what cmake --install has, but programs on top of libheed.so. Those lie in lib/heed under their own names, since
# other packages have a `translate` and a `compare`; bin/ has links: heed, heed-translate, heed-compare ...

if(NOT HEED_PACKAGED_PROGRAMS OR NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
foreach(program ${HEED_PACKAGED_PROGRAMS})
  install(TARGETS ${program} DESTINATION ${CMAKE_INSTALL_LIBDIR}/heed COMPONENT packaged EXCLUDE_FROM_ALL)
endforeach()
install(FILES cmake/packaging/heed.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME heed
        COMPONENT packaged EXCLUDE_FROM_ALL)
install(FILES cmake/packaging/_heed DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions
        COMPONENT packaged EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};heed;Unspecified;/;${PROJECT_BINARY_DIR};heed;packaged;/")
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_files.cmake)
set(CPACK_PACKAGE_VENDOR "the maintainers of heed")
set(CPACK_PACKAGE_CONTACT "${CPACK_PACKAGE_VENDOR} <heed@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Transformers with 50 attention mechanisms, trained on CPU or GPU")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "The programs heed-translate, heed-classify and their kin train a model on a
file of texts, measure it and answer with it; heed looks at devices,
gradients and runs. The library for C++ and C and its headers come with them.")
set(CPACK_SYSTEM_NAME ${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# Opened at run time, so that dpkg-shlibdeps does not see them.
set(CPACK_DEBIAN_PACKAGE_DEPENDS libopenblas0-pthread)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libvulkan1, mesa-vulkan-drivers")
# What the static library is linked with.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, libhwy-dev, libutf8proc-dev, zlib1g-dev, libopenmpi3")

# What package_files.cmake reads.
set(CPACK_HEED_SOURCE_DIR ${PROJECT_SOURCE_DIR})
set(CPACK_HEED_LIBDIR ${CMAKE_INSTALL_LIBDIR})
set(CPACK_HEED_EMULATOR ${CMAKE_CROSSCOMPILING_EMULATOR})
set(CPACK_HEED_OPENED ${HEED_OPENBLAS_LIBRARY})
include(CPack)
