# The shared library ppengine::ppengine made of all modules; installation, find_package() and pkg-config.
get_property(_modules GLOBAL PROPERTY PPENGINE_MODULES)
get_property(_links GLOBAL PROPERTY PPENGINE_LINK)
list(REMOVE_DUPLICATES _links)
list(TRANSFORM _modules REPLACE "(.+)" "$<TARGET_OBJECTS:ppengine_\\1>" OUTPUT_VARIABLE _objects)
add_library(ppengine SHARED ${_objects})
add_library(ppengine::ppengine ALIAS ppengine)
set_target_properties(ppengine PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib INSTALL_RPATH "${PPENGINE_INSTALL_RPATH}")
target_compile_features(ppengine PUBLIC cxx_std_20)
target_include_directories(ppengine INTERFACE $<BUILD_INTERFACE:${PPENGINE_ARROWS}/installed> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(ppengine PRIVATE ${_links} Threads::Threads ${CMAKE_DL_LIBS})
# The linker looks at what the libraries need in turn (libdnnl wants libtbb), and they do not say where that is.
list(TRANSFORM PPENGINE_TOOLCHAIN_LIB PREPEND "-Wl,-rpath-link," OUTPUT_VARIABLE _rpath_link)
if(PPENGINE_INSTALL_RUNTIME)
  target_link_options(ppengine INTERFACE "$<BUILD_INTERFACE:${_rpath_link}>"
    "$<INSTALL_INTERFACE:-Wl,-rpath-link,$<INSTALL_PREFIX>/${PPENGINE_RUNTIME_DIR}/lib>")
else()
  target_link_options(ppengine INTERFACE ${_rpath_link})
endif()

ppengine_link(${PROJECT_SOURCE_DIR}/cmake/ppengine.hpp ${PPENGINE_ARROWS}/installed/ppengine/ppengine.hpp)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/ppengine.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ppengine)
install(TARGETS ppengine EXPORT ppengine LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

include(CMakePackageConfigHelpers)
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/ppengine)
install(EXPORT ppengine NAMESPACE ppengine:: FILE ppengineConfig.cmake DESTINATION ${_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ppengineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ppengineConfigVersion.cmake DESTINATION ${_package})

list(JOIN _rpath_link " " PPENGINE_RPATH_LINK)
if(PPENGINE_INSTALL_RUNTIME)
  set(PPENGINE_RPATH_LINK "-Wl,-rpath-link,\${libdir}/ppengine/runtime/lib")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/ppengine.pc.in ${PROJECT_BINARY_DIR}/ppengine.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ppengine.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
