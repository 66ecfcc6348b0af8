# ppengine_fuzz(): a fuzz target that the ordinary test run runs briefly.
#
# The target is one file with LLVMFuzzerTestOneInput and the sources of ours that it needs.
# - It is always compiled by the project's own compiler and linked with our driver and the library: that replays the corpus and mutates it.
# - Where there is a clang++ with libFuzzer (PPENGINE_FUZZ_CXX) it is compiled by that too, with address and undefined-behaviour
#   sanitizers, as a program of its own: it links no library of ours, so the rest of the tree can come from any compiler. Targets share
#   the objects of the sources that they have in common.
#
# ppengine_fuzz(NAME SOURCES fuzz_name.cpp ../../folder/a.cpp ... CORPUS folder [SECONDS n] [LIBRARIES -lname ...])
# gives the test fuzz_NAME: libFuzzer for SECONDS (default 5; 10 minutes with PPENGINE_FUZZ=ON), or our driver where there is no clang.
# With libFuzzer, the test fuzz_NAME_replay runs our driver for a second, so that both are built and run on every machine with clang.
# -D PPENGINE_FUZZ_CXX=none builds as on a machine without clang.

set(PPENGINE_FUZZ_CXX "" CACHE STRING "A clang++ with libFuzzer; found by itself if empty; none: do without")
if(NOT PPENGINE_FUZZ_CXX)
  foreach(_name clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
    find_program(_fuzz_${_name} ${_name})
    if(NOT _fuzz_${_name} OR PPENGINE_FUZZ_CXX)
      continue()
    endif()
    # A clang without its runtime library cannot link a fuzz target: try.
    set(_probe ${CMAKE_BINARY_DIR}/CMakeFiles/fuzz_probe)
    file(WRITE ${_probe}.cpp "#include <cstddef>\n#include <span>\nextern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, size_t) { return 0; }\n")
    execute_process(COMMAND ${_fuzz_${_name}} -std=c++20 -fsanitize=fuzzer,address,undefined ${_probe}.cpp -o ${_probe}
      RESULT_VARIABLE _failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT _failed)
      set_property(CACHE PPENGINE_FUZZ_CXX PROPERTY VALUE ${_fuzz_${_name}})
    endif()
  endforeach()
endif()
if(PPENGINE_FUZZ_CXX AND NOT PPENGINE_FUZZ_CXX STREQUAL none)
  set(PPENGINE_LIBFUZZER ON)
  message(STATUS "Fuzz targets: libFuzzer of ${PPENGINE_FUZZ_CXX}")
else()
  set(PPENGINE_LIBFUZZER OFF)
  message(STATUS "Fuzz targets: own driver (no clang++ with libFuzzer)")
endif()

# The object of a source for libFuzzer, compiled once in this folder however many targets use it; its path is in `variable`.
function(ppengine_fuzz_object source variable)
  get_filename_component(_path ${source} ABSOLUTE)
  file(RELATIVE_PATH _name ${PROJECT_SOURCE_DIR} ${_path})
  string(REPLACE "/" "." _name ${_name})
  set(_object ${CMAKE_CURRENT_BINARY_DIR}/libfuzzer/${_name}.o)
  set(${variable} ${_object} PARENT_SCOPE)
  get_property(_known DIRECTORY PROPERTY PPENGINE_FUZZ_OBJECTS)
  if(NOT _object IN_LIST _known)
    set_property(DIRECTORY APPEND PROPERTY PPENGINE_FUZZ_OBJECTS ${_object})
    add_custom_command(OUTPUT ${_object}
      COMMAND ${CMAKE_COMMAND} -E env ${CMAKE_CXX_COMPILER_LAUNCHER} ${PPENGINE_FUZZ_CXX} -std=c++20 -O1 -gline-tables-only
        -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -DFMT_SHARED -I${PPENGINE_INCLUDE}
        -MD -MF ${_object}.d -c ${_path} -o ${_object}
      DEPENDS ${_path} DEPFILE ${_object}.d VERBATIM)
  endif()
endfunction()

function(ppengine_fuzz_test name seconds)
  # What it finds new stays in the build folder; what is worth keeping is copied into the corpus by hand.
  set(_found ${CMAKE_CURRENT_BINARY_DIR}/found_${name})
  file(MAKE_DIRECTORY ${_found})
  # The first folder is where libFuzzer writes, the others are only read.
  add_test(NAME fuzz_${name} COMMAND ${_program} -max_total_time=${seconds} -rss_limit_mb=2048 -timeout=60 -verbosity=0
    -print_final_stats=1 -artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/fuzz_${name}. ${_found} ${_corpus})
endfunction()

function(ppengine_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS;SECONDS" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 5)
  endif()
  if(PPENGINE_FUZZ)
    set(ARG_SECONDS 600)
  endif()
  get_filename_component(_corpus ${ARG_CORPUS} ABSOLUTE)

  set(_target_source ${ARG_SOURCES})
  list(FILTER _target_source INCLUDE REGEX "fuzz_${name}.cpp$")
  add_executable(fuzz_${name}_replay ${_target_source} ${PROJECT_SOURCE_DIR}/tests/fuzz/driver.cpp)
  target_link_libraries(fuzz_${name}_replay PRIVATE ppengine_options ppengine)
  target_compile_options(fuzz_${name}_replay PRIVATE ${PPENGINE_QUICK_COMPILE})
  set(_program fuzz_${name}_replay)
  if(NOT PPENGINE_LIBFUZZER)
    ppengine_fuzz_test(${name} ${ARG_SECONDS})
    return()
  endif()
  ppengine_fuzz_test(${name}_replay 1)

  set(_objects)
  foreach(_source ${ARG_SOURCES})
    ppengine_fuzz_object(${_source} _object)
    list(APPEND _objects ${_object})
  endforeach()
  set(_program ${CMAKE_CURRENT_BINARY_DIR}/libfuzzer/fuzz_${name})
  add_custom_command(OUTPUT ${_program}
    COMMAND ${PPENGINE_FUZZ_CXX} -fsanitize=fuzzer,address,undefined ${_objects} -lfmt ${ARG_LIBRARIES} -o ${_program}
    DEPENDS ${_objects} VERBATIM)
  add_custom_target(fuzz_${name} ALL DEPENDS ${_program})
  ppengine_fuzz_test(${name} ${ARG_SECONDS})
endfunction()
