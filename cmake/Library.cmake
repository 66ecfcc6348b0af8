# The shared library ppengine::ppengine made of all modules; installation, find_package() and pkg-config.
get_property(_modules GLOBAL PROPERTY PPENGINE_MODULES)
get_property(_links GLOBAL PROPERTY PPENGINE_LINK)
list(REMOVE_DUPLICATES _links)
list(TRANSFORM _modules REPLACE "(.+)" "$<TARGET_OBJECTS:ppengine_\\1>" OUTPUT_VARIABLE _objects)
add_library(ppengine SHARED ${_objects})
add_library(ppengine::ppengine ALIAS ppengine)
set_target_properties(ppengine PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
target_compile_features(ppengine PUBLIC cxx_std_20)
target_include_directories(ppengine INTERFACE $<BUILD_INTERFACE:${PPENGINE_INCLUDE}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(ppengine PRIVATE ${_links} Threads::Threads ${CMAKE_DL_LIBS})
