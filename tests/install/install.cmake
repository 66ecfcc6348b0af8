# Run as a script by the test `install`.
set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})

# run(COMMAND...): must succeed; what it printed is in `output`.
function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY ${WORK_DIR} OUTPUT_VARIABLE _out ERROR_VARIABLE _error RESULT_VARIABLE _result)
  if(NOT _result EQUAL 0)
    list(JOIN ARGV " " _command)
    message(FATAL_ERROR "failed: ${_command}\n${_out}${_error}")
  endif()
  set(output "${_out}" PARENT_SCOPE)
endfunction()

# run_bare(PROGRAM...): with an empty environment but HOME, and must say its version.
function(run_bare)
  run(env -i HOME=$ENV{HOME} ${ARGV})
  if(NOT output MATCHES "ppengine [0-9]+\\.[0-9]+\\.[0-9]+")
    message(FATAL_ERROR "${ARGV} does not tell its version: ${output}")
  endif()
  message("${ARGV}:\n${output}")
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run_bare(${prefix}/bin/ppengine --version)

foreach(example embed custom_schedule checkpoint custom_op)
  run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE_DIR}/examples/${example} -B ${WORK_DIR}/${example}
    -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_BUILD_TYPE=Release)
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/${example})
  run_bare(${WORK_DIR}/${example}/${example})
endforeach()

# Every installed header stands on its own: it compiles first in a file, and needs nothing that is not installed with it.
file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/ppengine/*.hpp)
set(project ${WORK_DIR}/headers)
foreach(header ${headers})
  string(MAKE_C_IDENTIFIER ${header} name)
  file(WRITE ${project}/${name}.cpp "#include <${header}>\n")
  file(STRINGS ${prefix}/include/${header} foreign REGEX "^#include <(fmt|nlohmann|sycl|oneapi|CLI|boost)/")
  if(foreign)
    message(FATAL_ERROR "${header} is public and says ${foreign}: move it to detail/, or hide the type behind a pointer.")
  endif()
endforeach()
file(WRITE ${project}/CMakeLists.txt "cmake_minimum_required(VERSION 3.22)
project(headers LANGUAGES CXX)
find_package(ppengine REQUIRED)
file(GLOB sources *.cpp)
add_library(headers OBJECT \${sources})
target_link_libraries(headers PRIVATE ppengine::ppengine)\n")
run(${CMAKE_COMMAND} -G Ninja -S ${project} -B ${project}/build -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${CXX}
  -D CMAKE_CXX_COMPILER_LAUNCHER=${CCACHE})
execute_process(COMMAND ${CMAKE_COMMAND} --build ${project}/build OUTPUT_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${output}\nA header that lies directly in its folder is public and may include only such headers and the \
standard library; private ones belong in a folder below (detail/). See HACKING.md.")
endif()
list(LENGTH headers count)
message("${count} headers stand on their own")

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(PKG_CONFIG)
  run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${prefix}/${LIBDIR}/pkgconfig ${PKG_CONFIG} --cflags --libs ppengine)
  separate_arguments(flags UNIX_COMMAND "${output}")
  run(${CXX} -std=c++20 ${SOURCE_DIR}/examples/embed/main.cpp -o embed_pkgconfig ${flags})
  run_bare(${WORK_DIR}/embed_pkgconfig)
endif()
