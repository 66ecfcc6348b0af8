# Run by cmake --install (cmake/Runtime.cmake): copies the libraries that ppengine needs to RUNTIME/lib, with what they need in turn.
# What every Debian has, the compiler's and C's own libraries, is left to the system.
cmake_minimum_required(VERSION 3.22)
set(system_only "^(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\\+\\+))\\.so")

# find_needed(NAME): its path in the toolchain, else in the system; empty if it is left to the system.
function(find_needed name variable)
  set(${variable} "" PARENT_SCOPE)
  if(name MATCHES "${system_only}" OR name MATCHES "^libppengine\\.so")
    return()
  endif()
  foreach(_folder ${TOOLCHAIN_LIB} ${SYSTEM_LIB})
    if(EXISTS ${_folder}/${name})
      set(${variable} ${_folder}/${name} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${name} is needed by ppengine and is neither in ${TOOLCHAIN_LIB} nor in ${SYSTEM_LIB}")
endfunction()

# What is opened by name while the program runs: the OpenCL loader and driver with its vector math, SYCL's adapters, TBB's allocator and
# its threads' arbiter, MPI's network with its providers, and the compiler for kernels that are made at run time.
set(plugins libOpenCL.so.1 libintelocl.so libocl_svml_*.so libur_loader.so.0 libur_adapter_*.so.0 libumf.so.1 libtbbmalloc.so.2 libtbbbind*.so.3
  libtcm.so.1 libfabric.so.1 lib*-fi.so)
if(COMPILER)
  list(APPEND plugins libsycl-jit.so)
endif()
set(files "")
foreach(folder ${TOOLCHAIN_LIB})
  list(TRANSFORM plugins PREPEND ${folder}/ OUTPUT_VARIABLE patterns)
  file(GLOB found ${patterns})
  list(APPEND files ${found})
endforeach()

# Network providers for hardware whose libraries are not here would not load there either.
set(optional "-fi\\.so$")
set(to_read ${OWN} ${files})
while(to_read)
  list(POP_FRONT to_read file)
  execute_process(COMMAND ${OBJDUMP} -p ${file} OUTPUT_VARIABLE header RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    message(FATAL_ERROR "${OBJDUMP} cannot read ${file}")
  endif()
  string(REGEX MATCHALL "NEEDED +[^\n ]+" needed "${header}")
  foreach(line ${needed})
    string(REGEX REPLACE "NEEDED +" "" name "${line}")
    if(file MATCHES "${optional}")
      continue()
    endif()
    find_needed(${name} path)
    if(path AND NOT path IN_LIST files)
      list(APPEND files ${path})
      list(APPEND to_read ${path})
    endif()
  endforeach()
endwhile()

# Wheels and Debian keep a library under its full version with links to it: one file under the name that is asked for is enough.
foreach(file ${files})
  get_filename_component(real ${file} REALPATH)
  get_filename_component(name ${file} NAME)
  file(INSTALL ${real} DESTINATION ${RUNTIME}/lib RENAME ${name} USE_SOURCE_PERMISSIONS)
endforeach()

# Built-in functions and settings of the OpenCL driver.
foreach(folder ${TOOLCHAIN_LIB})
  file(GLOB data ${folder}/cl.cfg ${folder}/*.rtl ${folder}/cllibrary*.o)
  file(INSTALL ${data} DESTINATION ${RUNTIME}/lib)
endforeach()

# mpiexec, and what MPI reads beside its library.
file(GLOB programs ${TOOLCHAIN_ROOT}/bin/mpiexec* ${TOOLCHAIN_ROOT}/bin/hydra_*)
foreach(program ${programs})
  get_filename_component(real ${program} REALPATH)
  get_filename_component(name ${program} NAME)
  file(INSTALL ${real} DESTINATION ${RUNTIME}/bin RENAME ${name} USE_SOURCE_PERMISSIONS)
endforeach()
if(EXISTS ${TOOLCHAIN_ROOT}/opt/mpi/etc)
  file(INSTALL ${TOOLCHAIN_ROOT}/opt/mpi/etc DESTINATION ${RUNTIME}/opt/mpi)
endif()
if(EXISTS ${TOOLCHAIN_ROOT}/licensing)
  file(INSTALL ${TOOLCHAIN_ROOT}/licensing DESTINATION ${LICENCES})
endif()
