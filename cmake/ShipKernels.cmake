# ppengine_ship_kernels(SOURCES a.cpp ... HEADERS b.hpp ...): compiles kernels when the library is built (tools/compile_kernels.cpp) into
# lib/ppengine/kernels/, where the library looks for them; they are installed with it. The target is ppengine_kernels.
option(PPENGINE_SHIP_KERNELS "Compile kernels when the library is built; OFF: when they are first used" ON)

function(ppengine_ship_kernels)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS" ${ARGN})
  add_custom_target(ppengine_kernels ALL)
  # With sanitizers the tests compile at run time, so that this path is run too.
  if(NOT PPENGINE_SHIP_KERNELS OR PPENGINE_SANITIZE)
    return()
  endif()
  find_library(PPENGINE_OPENCL_DRIVER intelocl PATHS ${PPENGINE_TOOLCHAIN_LIB} NO_DEFAULT_PATH)
  find_library(PPENGINE_OPENCL_LIBRARY NAMES OpenCL libOpenCL.so.1 PATHS ${PPENGINE_TOOLCHAIN_LIB} NO_DEFAULT_PATH)
  if(NOT PPENGINE_OPENCL_DRIVER OR NOT PPENGINE_OPENCL_LIBRARY)
    message(STATUS "No OpenCL driver for CPUs in the toolchain: kernels are compiled when they are first used")
    return()
  endif()
  add_executable(compile_kernels ${PROJECT_SOURCE_DIR}/tools/compile_kernels.cpp)
  target_compile_options(compile_kernels PRIVATE ${PPENGINE_QUICK_COMPILE})
  target_link_libraries(compile_kernels PRIVATE ppengine_options ppengine_sycl ${PPENGINE_OPENCL_LIBRARY})
  set(_out ${PROJECT_BINARY_DIR}/lib/ppengine/kernels)
  file(MAKE_DIRECTORY ${_out})
  set(_made)
  foreach(_source ${ARG_SOURCES})
    get_filename_component(_name ${_source} NAME_WE)
    set(_files ${_out}/${_name}.cpu ${_out}/${_name}.spv)
    add_custom_command(OUTPUT ${_files} COMMENT "Compiling kernels/${_name}"
      COMMAND ${CMAKE_COMMAND} -E env OCL_ICD_FILENAMES=${PPENGINE_OPENCL_DRIVER} SYCL_CACHE_PERSISTENT=0
        $<TARGET_FILE:compile_kernels> ${_out} ${_source} ${ARG_HEADERS}
      DEPENDS compile_kernels ${_source} ${ARG_HEADERS} VERBATIM)
    list(APPEND _made ${_files})
  endforeach()
  add_custom_target(ppengine_kernel_files DEPENDS ${_made})
  add_dependencies(ppengine_kernels ppengine_kernel_files)
  install(FILES ${_made} DESTINATION ${CMAKE_INSTALL_LIBDIR}/ppengine/kernels)
endfunction()
