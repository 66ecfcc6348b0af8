# Where SYCL, oneDNN and oneCCL are: an installed oneAPI (ONEAPI_ROOT) or the wheels that scripts/setup put in .toolchain.
# Gives the target ppengine_sycl and the variables PPENGINE_TOOLCHAIN_LIB (a list of folders) and PPENGINE_TOOLCHAIN_INCLUDE.
if(DEFINED ENV{ONEAPI_ROOT} AND EXISTS "$ENV{ONEAPI_ROOT}/include/sycl/sycl.hpp")  # the unified layout: one folder for all
  set(_root "$ENV{ONEAPI_ROOT}")
  set(_include ${_root}/include)
  set(_lib ${_root}/lib)
elseif(DEFINED ENV{ONEAPI_ROOT} AND EXISTS "$ENV{ONEAPI_ROOT}/compiler/latest/include/sycl/sycl.hpp")  # a folder per component
  set(_root "$ENV{ONEAPI_ROOT}")
  set(_include "")
  set(_lib "")
  foreach(_component compiler dnnl ccl mpi tbb umf tcm)
    if(EXISTS ${_root}/${_component}/latest/include)
      list(APPEND _include ${_root}/${_component}/latest/include)
    endif()
    if(EXISTS ${_root}/${_component}/latest/lib)
      list(APPEND _lib ${_root}/${_component}/latest/lib)
    endif()
  endforeach()
else()
  get_filename_component(_root ${PROJECT_SOURCE_DIR}/.toolchain REALPATH)
  if(NOT EXISTS ${_root}/include/sycl/sycl.hpp)
    message(FATAL_ERROR "No SYCL toolchain in ${PROJECT_SOURCE_DIR}/.toolchain and no ONEAPI_ROOT: run scripts/setup first.")
  endif()
  set(_include ${_root}/include)
  set(_lib ${_root}/lib)
endif()

# Another toolchain than at the last run: forget what was found in the old one.
if(PPENGINE_TOOLCHAIN_ROOT AND NOT PPENGINE_TOOLCHAIN_ROOT STREQUAL _root)
  get_cmake_property(_cached CACHE_VARIABLES)
  foreach(_variable ${_cached})
    string(FIND "${${_variable}}" "${PPENGINE_TOOLCHAIN_ROOT}/" _at)
    if(_at EQUAL 0)
      unset(${_variable} CACHE)
    endif()
  endforeach()
endif()
set(PPENGINE_TOOLCHAIN_ROOT ${_root} CACHE INTERNAL "The SYCL toolchain in use")
set(PPENGINE_TOOLCHAIN_INCLUDE ${_include} CACHE INTERNAL "Headers of the SYCL toolchain")
set(PPENGINE_TOOLCHAIN_LIB ${_lib} CACHE INTERNAL "Libraries of the SYCL toolchain")

find_library(PPENGINE_SYCL_LIBRARY sycl PATHS ${_lib} NO_DEFAULT_PATH REQUIRED)
find_library(PPENGINE_DNNL_LIBRARY dnnl PATHS ${_lib} NO_DEFAULT_PATH REQUIRED)
# The threads that oneDNN and the OpenCL runtime compute with. The wheels have no headers of it: they are the system's.
find_library(PPENGINE_TBB_LIBRARY tbb PATHS ${_lib} NO_DEFAULT_PATH REQUIRED)
find_path(PPENGINE_TBB_INCLUDE oneapi/tbb/parallel_for.h HINTS ${_include} REQUIRED)

add_library(ppengine_sycl INTERFACE)
target_include_directories(ppengine_sycl SYSTEM INTERFACE ${_include} ${PPENGINE_TBB_INCLUDE})
target_compile_definitions(ppengine_sycl INTERFACE SYCL_DISABLE_FSYCL_SYCLHPP_WARNING)
target_link_libraries(ppengine_sycl INTERFACE ${PPENGINE_SYCL_LIBRARY} ${PPENGINE_DNNL_LIBRARY} ${PPENGINE_TBB_LIBRARY})

# The wheels' own libraries carry no search path, and only DT_RPATH (not DT_RUNPATH) is inherited by what they load.
add_link_options(-Wl,--disable-new-dtags)
set(CMAKE_BUILD_RPATH ${_lib})

# An installed copy brings the libraries along (cmake/Runtime.cmake); without them it looks for them here.
option(PPENGINE_INSTALL_RUNTIME "Install the libraries of the toolchain that ppengine needs with it" ON)
option(PPENGINE_INSTALL_COMPILER "Among them the compiler for kernels that are made at run time (250 MB)" ON)
option(PPENGINE_INSTALL_GPU "Among them what GPUs need: SYCL's adapters for them, oneCCL's SYCL build (225 MB)" ON)
set(PPENGINE_RUNTIME_DIR ${CMAKE_INSTALL_LIBDIR}/ppengine/runtime)
if(PPENGINE_INSTALL_RUNTIME)
  set(PPENGINE_INSTALL_RPATH "$ORIGIN;$ORIGIN/ppengine/runtime/lib")  # of the library
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" "$ORIGIN/../${PPENGINE_RUNTIME_DIR}/lib" "$ORIGIN/.." "$ORIGIN/runtime/lib")
else()
  set(PPENGINE_INSTALL_RPATH "$ORIGIN;${_lib}")
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" "$ORIGIN/.." ${_lib})  # for bin/ and for lib/ppengine/
endif()
