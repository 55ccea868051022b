# The Debian packages: their names, their dependencies, and their files in addition to the installed
# ones (as_debian.cmake, before packing; mend_debian.cmake, after).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stasis)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Stasis maintainers <maintainers@stasis.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
  GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/as_debian.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/mend_debian.cmake)

set(CPACK_COMPONENTS_ALL runtime dev command doc)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/abi)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=") # the binary layout may still change
set(SESSIONS "Sessions of language models as data, exact to the bit")
set(ABOUT "Stasis runs language models inside a program. A session can be frozen to a
file, copied, moved to another machine, resumed, and proven: the same weights
and tokens give the same bits, whatever the machine and the number of threads.")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libstasis0)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${SESSIONS} (library)\n${ABOUT}
.
This package holds the shared library.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libstasis-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libstasis0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "libstasis-doc, libsentencepiece-dev, libpcre2-dev, \
libutf8proc-dev, libxxhash-dev, libzstd-dev, libsqlite3-dev, libssl-dev, \
g++") # for the static library
set(CPACK_COMPONENT_DEV_DESCRIPTION "${SESSIONS} (development files)\n${ABOUT}
.
This package holds the headers for C and C++, the static library, what
pkg-config and CMake need, and the bindings to Go and Rust as sources, in
/usr/share/stasis. The libraries that it suggests are for the static library.")

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME stasis)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "libstasis0 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "${SESSIONS} (command)\n${ABOUT}
.
This package holds the command stasis, its manual page, and completion for
bash.")

set(CPACK_DEBIAN_DOC_PACKAGE_NAME libstasis-doc)
set(CPACK_DEBIAN_DOC_PACKAGE_SECTION doc)
set(CPACK_DEBIAN_DOC_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_DOC_DESCRIPTION "${SESSIONS} (documents)\n${ABOUT}
.
This package holds the numerics contract, the description of the file format,
the guide, the benchmarks, and examples in C.")

if(TARGET stasis_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
set(CPACK_DEBIAN_CUDA_PACKAGE_NAME libstasis-cuda0)
set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "libstasis0 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_CUDA_DESCRIPTION "${SESSIONS} (CUDA)\n${ABOUT}
.
This package holds the module with which the library computes on NVIDIA GPUs.
It needs their driver, which it looks for when a model is opened there.")

if(TARGET stasis_s3)
  list(APPEND CPACK_COMPONENTS_ALL s3)
endif()
set(CPACK_DEBIAN_S3_PACKAGE_NAME libstasis-s3-0)
set(CPACK_DEBIAN_S3_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_S3_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_S3_PACKAGE_DEPENDS "libstasis0 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_S3_DESCRIPTION "${SESSIONS} (S3)\n${ABOUT}
.
This package holds the module with which the library keeps stores of sessions
in object storage.")
include(CPack)
