# The arrows between folders, as include paths. Every folder is seen in three ways, each a folder of links in build/arrows/:
#   own/NAME     all of its headers: for the folder itself
#   below/NAME   without its private ones: for the folders above that use it
#   installed    the public headers of all folders, as they are installed: for programs that use the library
# So an upward include, or one of another folder's private headers, names a file that is not there. tests/arrows shows both.
set(PPENGINE_ARROWS ${PROJECT_BINARY_DIR}/arrows)

function(ppengine_link from to)
  get_filename_component(_folder ${to} DIRECTORY)
  file(MAKE_DIRECTORY ${_folder})
  file(CREATE_LINK ${from} ${to} SYMBOLIC)
endfunction()

# Called in the folder itself. The global properties PPENGINE_PRIVATE_<NAME> and PPENGINE_OPEN_<NAME> list its headers, for tests/arrows.
function(ppengine_arrows name)
  cmake_parse_arguments(ARG "" "" "PUBLIC;PRIVATE" ${ARGN})
  file(REMOVE_RECURSE ${PPENGINE_ARROWS}/below/${name} ${PPENGINE_ARROWS}/installed/ppengine/${name})
  ppengine_link(${CMAKE_CURRENT_SOURCE_DIR} ${PPENGINE_ARROWS}/own/${name}/ppengine/${name})
  file(GLOB_RECURSE _headers RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.hpp)
  foreach(_header ${_headers})
    set(_private OFF)
    foreach(_room ${ARG_PRIVATE})
      string(FIND ${_header} ${_room}/ _at)
      if(_at EQUAL 0 OR _header STREQUAL _room)
        set(_private ON)
      endif()
    endforeach()
    if(_private)
      set_property(GLOBAL APPEND PROPERTY PPENGINE_PRIVATE_${name} ${name}/${_header})
    else()
      set_property(GLOBAL APPEND PROPERTY PPENGINE_OPEN_${name} ${name}/${_header})
      ppengine_link(${CMAKE_CURRENT_SOURCE_DIR}/${_header} ${PPENGINE_ARROWS}/below/${name}/ppengine/${name}/${_header})
    endif()
  endforeach()
  foreach(_header ${ARG_PUBLIC})
    ppengine_link(${CMAKE_CURRENT_SOURCE_DIR}/${_header} ${PPENGINE_ARROWS}/installed/ppengine/${name}/${_header})
  endforeach()
endfunction()

# ppengine_may_include(TARGET [OWN folder] [USES folder ...]): all headers of OWN, and those of the others that are not private.
function(ppengine_may_include target)
  cmake_parse_arguments(ARG "" "OWN" "USES" ${ARGN})
  if(ARG_OWN)
    target_include_directories(${target} PRIVATE ${PPENGINE_ARROWS}/own/${ARG_OWN})
  endif()
  foreach(_folder ${ARG_USES})
    target_include_directories(${target} PRIVATE ${PPENGINE_ARROWS}/below/${_folder})
  endforeach()
endfunction()
