# What an installed copy needs of the toolchain is installed with it, in lib/ppengine/runtime/ and laid out as the toolchain is, and found by
# relative search paths: the tree can be moved, packed (cpack) and used by anyone. Included after all targets are defined.
get_property(_communicators GLOBAL PROPERTY PPENGINE_COMM_MODULES)
if(NOT PPENGINE_INSTALL_GPU)
  list(REMOVE_ITEM _communicators ppengine_comm_oneccl_gpu)
endif()
set(_own "")
foreach(_target ppengine ppengine_cli ${_communicators})
  list(APPEND _own "$<TARGET_FILE:${_target}>")
endforeach()
if(PPENGINE_INSTALL_RUNTIME)
  install(CODE "
    set(OWN \"${_own}\")
    set(TOOLCHAIN_ROOT \"${PPENGINE_TOOLCHAIN_ROOT}\")
    set(TOOLCHAIN_LIB \"${PPENGINE_TOOLCHAIN_LIB}\")
    set(SYSTEM_LIB \"/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE};/lib/${CMAKE_LIBRARY_ARCHITECTURE};/usr/lib64;/usr/lib;/usr/local/lib\")
    set(COMPILER ${PPENGINE_INSTALL_COMPILER})
    set(GPU ${PPENGINE_INSTALL_GPU})
    set(STRIP \"${CMAKE_STRIP}\")
    set(OBJDUMP \"${CMAKE_OBJDUMP}\")
    set(RUNTIME \"\${CMAKE_INSTALL_PREFIX}/${PPENGINE_RUNTIME_DIR}\")
    set(LICENCES \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/InstallRuntime.cmake\")")
endif()

# cpack -G TGZ, cpack -G DEB, in the build folder.
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_CONTACT "ppengine <nobody@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES OFF)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)  # xz takes minutes for the compilers inside
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libstdc++6 (>= 12), libgcc-s1")  # all else is in lib/ppengine/runtime
include(CPack)
