# ppengine_fuzz(): a fuzz target that the ordinary test run runs briefly.
#
# The target is one file with LLVMFuzzerTestOneInput and the sources of ours that it needs. Where there is a clang++ with libFuzzer
# (PPENGINE_FUZZ_CXX) it is compiled by that, with address and undefined-behaviour sanitizers, as a program of its own: it links no
# library of ours, so the rest of the tree can come from any compiler. Otherwise our own driver replays the corpus and mutates it.
#
# ppengine_fuzz(NAME SOURCES fuzz_name.cpp ../../folder/a.cpp ... CORPUS folder [SECONDS n] [LIBRARIES -lname ...])
# gives the test fuzz_NAME. With PPENGINE_FUZZ=ON it runs for 10 minutes instead of SECONDS (default 5).

set(PPENGINE_FUZZ_CXX "" CACHE FILEPATH "A clang++ with libFuzzer; found by itself if empty")
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
      set(PPENGINE_FUZZ_CXX ${_fuzz_${_name}} CACHE FILEPATH "A clang++ with libFuzzer; found by itself if empty" FORCE)
    endif()
  endforeach()
endif()
if(PPENGINE_FUZZ_CXX)
  message(STATUS "Fuzz targets: libFuzzer of ${PPENGINE_FUZZ_CXX}")
else()
  message(STATUS "Fuzz targets: own driver (no clang++ with libFuzzer)")
endif()

function(ppengine_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS;SECONDS" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 5)
  endif()
  if(PPENGINE_FUZZ)
    set(ARG_SECONDS 600)
  endif()
  get_filename_component(_corpus ${ARG_CORPUS} ABSOLUTE)
  set(_folder ${CMAKE_CURRENT_BINARY_DIR}/fuzz_${name}.dir)
  set(_program ${_folder}/fuzz_${name})
  file(MAKE_DIRECTORY ${_folder})
  # What it finds new stays in the build folder; what is worth keeping is copied into the corpus by hand.
  set(_found ${CMAKE_CURRENT_BINARY_DIR}/found_${name})
  file(MAKE_DIRECTORY ${_found})

  if(PPENGINE_FUZZ_CXX)
    set(_objects)
    foreach(_source ${ARG_SOURCES})
      get_filename_component(_path ${_source} ABSOLUTE)
      get_filename_component(_stem ${_source} NAME_WE)
      set(_object ${_folder}/${_stem}.o)
      add_custom_command(OUTPUT ${_object}
        COMMAND ${CMAKE_COMMAND} -E env ${CMAKE_CXX_COMPILER_LAUNCHER} ${PPENGINE_FUZZ_CXX} -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined
          -fno-sanitize-recover=all -DFMT_HEADER_ONLY=1 -I${PPENGINE_INCLUDE} -MD -MF ${_object}.d -c ${_path} -o ${_object}
        DEPENDS ${_path} DEPFILE ${_object}.d VERBATIM)
      list(APPEND _objects ${_object})
    endforeach()
    add_custom_command(OUTPUT ${_program}
      COMMAND ${PPENGINE_FUZZ_CXX} -fsanitize=fuzzer,address,undefined ${_objects} ${ARG_LIBRARIES} -o ${_program}
      DEPENDS ${_objects} VERBATIM)
    add_custom_target(fuzz_${name} ALL DEPENDS ${_program})
  else()
    set(_program fuzz_${name})
    add_executable(fuzz_${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/driver.cpp)
    target_link_libraries(fuzz_${name} PRIVATE ppengine_options fmt::fmt nlohmann_json::nlohmann_json ${ARG_LIBRARIES})
  endif()
  # The first folder is where libFuzzer writes, the others are only read.
  add_test(NAME fuzz_${name} COMMAND ${_program} -max_total_time=${ARG_SECONDS} -rss_limit_mb=2048 -timeout=10 -verbosity=0
    -print_final_stats=1 -artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/fuzz_${name}. ${_found} ${_corpus})
endfunction()
