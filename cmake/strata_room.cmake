# A room is a folder of src/, a namespace and a static library strata_<room> of all its *.cc files,
# those one folder below included (transport has one for each kind).
# A room of headers only is an interface library of the same name. Tests link rooms; users link
# strata::strata (strata_library, below), which is made of the same objects.
function(strata_room room)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/${room}/*.cc ${PROJECT_SOURCE_DIR}/src/${room}/*/*.cc)
  if(sources)
    add_library(strata_${room} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(strata_${room} PRIVATE strata_flags)
  else()
    add_library(strata_${room} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(strata_${room} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(strata_${room} ${scope} ${arg_LINK})
  set_property(GLOBAL APPEND PROPERTY STRATA_ROOMS ${room})
  list(FILTER arg_LINK EXCLUDE REGEX "^strata_")
  set_property(GLOBAL APPEND PROPERTY STRATA_ROOM_EXTERNALS ${arg_LINK})
endfunction()

# tests/<room>/*_test.cc of one folder as one test program, discovered by CTest.
function(strata_test name)
  cmake_parse_arguments(arg "" "" "LINK;SOURCES" ${ARGN})
  if(NOT arg_SOURCES)
    file(GLOB arg_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  endif()
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE strata_flags ${arg_LINK} GTest::gtest GTest::gtest_main)
  include(GoogleTest)
  gtest_discover_tests(${name} TEST_PREFIX "${name}/" DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()

function(strata_optional_subdirectory folder)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
    add_subdirectory(${folder})
  endif()
endfunction()

# strata::strata, what users link: the objects of all rooms in one shared library, which exports
# what the public headers mark STRATA_PUBLIC and nothing else.
function(strata_library)
  get_property(rooms GLOBAL PROPERTY STRATA_ROOMS)
  get_property(externals GLOBAL PROPERTY STRATA_ROOM_EXTERNALS)
  list(REMOVE_DUPLICATES externals)
  list(REMOVE_ITEM externals tl::expected)
  set(objects "")
  foreach(room ${rooms})
    get_target_property(type strata_${room} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND objects $<TARGET_OBJECTS:strata_${room}>)
    endif()
  endforeach()

  add_library(strata SHARED ${objects})
  add_library(strata::strata ALIAS strata)
  # Before 1.0 each minor version is an ABI of its own.
  set_target_properties(strata PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINKER_LANGUAGE CXX
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/strata.map)
  target_compile_features(strata INTERFACE cxx_std_20)
  target_include_directories(strata INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # BUILD_INTERFACE keeps the names of private libraries out of the installed package files.
  foreach(external ${externals})
    target_link_libraries(strata PRIVATE $<BUILD_INTERFACE:${external}>)
  endforeach()
  target_link_libraries(strata PRIVATE $<BUILD_INTERFACE:strata_flags> INTERFACE tl::expected)
  target_link_options(strata PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/strata.map
    -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now)
  if(NOT STRATA_SANITIZE)
    # A sanitizer's runtime may be the program's alone (clang), so only here is everything defined.
    target_link_options(strata PRIVATE -Wl,-z,defs)
  endif()
endfunction()
