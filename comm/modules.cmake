# Communicators in shared modules of their own (build/lib/ppengine/ppengine_comm_*.so), loaded when chosen. Included after the
# library ppengine is defined, which they link.
function(ppengine_comm_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;OPTIONS" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/comm/)
  add_library(ppengine_comm_${name} MODULE ${ARG_SOURCES})
  set_target_properties(ppengine_comm_${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/ppengine)
  target_link_libraries(ppengine_comm_${name} PRIVATE ppengine_flags ppengine fmt::fmt Threads::Threads ${ARG_LINK})
  ppengine_may_include(ppengine_comm_${name} OWN comm USES base ops)
  target_link_options(ppengine_comm_${name} PRIVATE ${ARG_OPTIONS})
  if(PPENGINE_INSTALL_GPU OR NOT name STREQUAL oneccl_gpu)
    install(TARGETS ppengine_comm_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ppengine)
  endif()
  set_property(GLOBAL APPEND PROPERTY PPENGINE_COMM_MODULES ppengine_comm_${name})
endfunction()

find_library(PPENGINE_CCL_CPU NAMES libccl.a PATHS ${PPENGINE_TOOLCHAIN_LIB} PATH_SUFFIXES ccl/cpu/lib NO_DEFAULT_PATH)
find_library(PPENGINE_MPI mpi PATHS ${PPENGINE_TOOLCHAIN_LIB} PATH_SUFFIXES release NO_DEFAULT_PATH)
if(PPENGINE_CCL_CPU AND PPENGINE_CCL_CPU MATCHES "cpu" AND PPENGINE_MPI)
  set(_link ${PPENGINE_CCL_CPU} ${PPENGINE_MPI})
  foreach(_name fabric hwloc irc intlc svml imf)
    find_library(PPENGINE_LIB_${_name} ${_name} PATHS ${PPENGINE_TOOLCHAIN_LIB} NO_DEFAULT_PATH)
    list(APPEND _link ${PPENGINE_LIB_${_name}})
  endforeach()
  ppengine_comm_module(oneccl_cpu
    SOURCES oneccl/baseline.cpp oneccl/channel.cpp oneccl/collective.cpp oneccl/cpu.cpp oneccl/engine.cpp oneccl/group.cpp oneccl/itt.cpp oneccl/last_words.cpp
            oneccl/mpi.cpp
    LINK ${_link}
    OPTIONS -Wl,--exclude-libs,ALL)
  target_include_directories(ppengine_comm_oneccl_cpu SYSTEM PRIVATE ${PPENGINE_TOOLCHAIN_INCLUDE})
else()
  message(STATUS "No oneCCL CPU library: ranks as processes on CPUs will not be available")
endif()

# NCCL itself is loaded at run time, as is RCCL for AMD, which has its functions: nothing of theirs is needed here.
foreach(_name nccl rccl)
  ppengine_comm_module(${_name} SOURCES nccl/api.cpp nccl/communicator.cpp nccl/lane.cpp nccl/nccl.cpp nccl/target.cpp LINK ppengine_sycl)
endforeach()
target_compile_definitions(ppengine_comm_rccl PRIVATE PPENGINE_RCCL)

# oneCCL's SYCL build, for Intel GPUs: the same lanes, another library under them.
find_library(PPENGINE_CCL_SYCL NAMES libccl.so.1 PATHS ${PPENGINE_TOOLCHAIN_LIB} NO_DEFAULT_PATH)
if(PPENGINE_CCL_SYCL)
  ppengine_comm_module(oneccl_gpu SOURCES nccl/api.cpp nccl/communicator.cpp nccl/lane.cpp oneccl/gpu.cpp LINK ppengine_sycl ${PPENGINE_CCL_SYCL})
else()
  message(STATUS "No oneCCL SYCL library: ranks as processes on Intel GPUs will not be available")
endif()
