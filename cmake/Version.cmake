# The one source that knows the commit. Included, it gives PPENGINE_VERSION_SOURCE and a target that refreshes it in every
# build; run as a script, it refreshes it. The file changes only when the commit does, and nothing else depends on it.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(PPENGINE_VERSION_SOURCE ${PROJECT_BINARY_DIR}/generated/version.cpp)
  add_custom_target(ppengine_version BYPRODUCTS ${PPENGINE_VERSION_SOURCE} COMMENT "Version" COMMAND ${CMAKE_COMMAND}
    -D SOURCE_DIR=${PROJECT_SOURCE_DIR} -D OUTPUT=${PPENGINE_VERSION_SOURCE} -D PPENGINE_VERSION=${PROJECT_VERSION}
    -D "PPENGINE_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}"
    -P ${CMAKE_CURRENT_LIST_FILE})
  return()
endif()

set(PPENGINE_COMMIT unknown)
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE _commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _failed)
  if(NOT _failed)
    # --no-optional-locks: a build must not get in the way of a git command that runs beside it.
    execute_process(COMMAND ${GIT} --no-optional-locks status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE_DIR}
      OUTPUT_VARIABLE _changes ERROR_QUIET)
    set(PPENGINE_COMMIT ${_commit})
    if(_changes)
      string(APPEND PPENGINE_COMMIT "+changes")
    endif()
  endif()
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.cpp.in ${OUTPUT} @ONLY)
