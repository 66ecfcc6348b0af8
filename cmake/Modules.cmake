# ppengine_module(): one folder of the architecture, as an object library that sees only the folders below it.
# ppengine_test(): one Boost.Test program per folder under tests/.

# Sources say #include <ppengine/ops/device/tensor.hpp>, in the tree as after installation.
set(PPENGINE_INCLUDE ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${PPENGINE_INCLUDE}/ppengine)
foreach(_folder base schedules ops comm engine models runs)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${_folder} ${PPENGINE_INCLUDE}/ppengine/${_folder} SYMBOLIC)
endforeach()
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/cmake/ppengine.hpp ${PPENGINE_INCLUDE}/ppengine/ppengine.hpp SYMBOLIC)

# Paths are hashed relative to the project, so that clones and worktrees share what one of them has compiled.
find_program(PPENGINE_CCACHE ccache)
if(PPENGINE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime ${PPENGINE_CCACHE})
endif()

include(Unity)
add_library(ppengine_options INTERFACE)
target_compile_features(ppengine_options INTERFACE cxx_std_20)
target_compile_options(ppengine_options INTERFACE -Wall -Wextra ${PPENGINE_UNITY_WARNINGS} -Wnon-virtual-dtor $<$<BOOL:${PPENGINE_DEVELOPER}>:-Werror>)
target_include_directories(ppengine_options INTERFACE ${PPENGINE_INCLUDE})
if(PPENGINE_SANITIZE)
  add_compile_options(-fsanitize=${PPENGINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PPENGINE_SANITIZE})
endif()

# For code that parses flags or tests: optimizing its templates takes longer than running it.
set(PPENGINE_QUICK_COMPILE $<$<CONFIG:Release>:-O1>)

# Targets with a precompiled header: one that ccache brought from another clone once made g++ see every header twice.
function(ppengine_uncached target)
  set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "")
endfunction()

# ppengine_module(NAME PUBLIC a.hpp ... SOURCES a.cpp ... [LINK target ...] [PCH header]): PUBLIC headers are installed, others are not.
function(ppengine_module name)
  cmake_parse_arguments(ARG "" "PCH" "PUBLIC;SOURCES;LINK" ${ARGN})
  add_library(ppengine_${name} OBJECT ${ARG_SOURCES})
  set_target_properties(ppengine_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(ppengine_${name} PRIVATE ppengine_options fmt::fmt nlohmann_json::nlohmann_json Threads::Threads ${ARG_LINK})
  if(ARG_PCH)
    target_precompile_headers(ppengine_${name} PRIVATE ${ARG_PCH})
    ppengine_uncached(ppengine_${name})
  endif()
  ppengine_unity(ppengine_${name})
  foreach(_header ${ARG_PUBLIC})
    get_filename_component(_folder ${name}/${_header} DIRECTORY)
    install(FILES ${_header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ppengine/${_folder})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY PPENGINE_MODULES ${name})
  set_property(GLOBAL APPEND PROPERTY PPENGINE_LINK fmt::fmt ${ARG_LINK})
endfunction()

# What the sanitizers say about libraries that are not ours is silenced by name.
set(PPENGINE_TEST_ENVIRONMENT "")
if(PPENGINE_SANITIZE)
  set(_supp ${PROJECT_SOURCE_DIR}/cmake/suppressions)
  list(APPEND PPENGINE_TEST_ENVIRONMENT
    # The SYCL runtime compiler brings an operator new of its own.
    "ASAN_OPTIONS=suppressions=${_supp}/asan.supp:detect_stack_use_after_return=1:alloc_dealloc_mismatch=0"
    "LSAN_OPTIONS=suppressions=${_supp}/lsan.supp:print_suppressions=0"
    # A rank that has failed leaves without joining its threads.
    "TSAN_OPTIONS=suppressions=${_supp}/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1:report_thread_leaks=0"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()

# ppengine_test(NAME SOURCES a.cpp ... [LINK target ...] [ALONE]): ctest runs it as NAME. ALONE: sources that do not get along in one batch.
function(ppengine_test name)
  cmake_parse_arguments(ARG "ALONE" "" "SOURCES;LINK" ${ARGN})
  if(NOT TARGET ppengine_test_main)
    add_library(ppengine_test_main OBJECT ${PROJECT_SOURCE_DIR}/tests/main.cpp ${PROJECT_SOURCE_DIR}/tests/headers.cpp)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/main.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)  # says that main() goes there
    target_link_libraries(ppengine_test_main PRIVATE ppengine_options fmt::fmt nlohmann_json::nlohmann_json Boost::unit_test_framework)
    target_precompile_headers(ppengine_test_main PRIVATE <boost/test/unit_test.hpp> <fmt/format.h> <nlohmann/json.hpp>)
    target_compile_options(ppengine_test_main PRIVATE ${PPENGINE_QUICK_COMPILE})
    ppengine_uncached(ppengine_test_main)
  endif()
  add_executable(test_${name} $<TARGET_OBJECTS:ppengine_test_main> ${ARG_SOURCES})
  target_link_libraries(test_${name} PRIVATE ppengine_options ppengine fmt::fmt nlohmann_json::nlohmann_json Boost::unit_test_framework ${ARG_LINK})
  target_compile_definitions(test_${name} PRIVATE PPENGINE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" PPENGINE_BINARY="$<TARGET_FILE:ppengine_cli>")
  target_compile_options(test_${name} PRIVATE ${PPENGINE_QUICK_COMPILE})
  target_precompile_headers(test_${name} REUSE_FROM ppengine_test_main)
  ppengine_uncached(test_${name})
  if(NOT ARG_ALONE)
    ppengine_unity(test_${name})
  endif()
  ppengine_test_again(${name} ${name})
endfunction()

# ppengine_test_again(NAME PROGRAM [ENVIRONMENT A=1 ...] [ARGUMENTS --run_test=x ...]): one more run of a test program,
# for instance ppengine_test_again(ops_without_onednn ops ENVIRONMENT PPENGINE_ONEDNN=off).
function(ppengine_test_again name program)
  cmake_parse_arguments(ARG "" "" "ENVIRONMENT;ARGUMENTS" ${ARGN})
  add_test(NAME ${name} COMMAND test_${program} --log_level=error --report_level=short ${ARG_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 ENVIRONMENT "${PPENGINE_TEST_ENVIRONMENT};${ARG_ENVIRONMENT}")
endfunction()
