# What `cmake --install` puts where. Libraries are parts of components, each with an export set of
# its own, so that find_package(attnserve COMPONENTS kvcache) needs nothing of the others:
#
#   attn_install_library(attn_kvcache kvcache)   its archive and its header set, if it has one
#   attn_install_programs(attn-server …)         component programs
#   attn_install_package()                       the exports and the package file, once, at the end
#
# A component may be installed alone: cmake --install build --component kvcache, and with every one
# the package file, component package.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(ATTN_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/attnserve)

function(attn_install_library target component)
  get_target_property(header_sets ${target} INTERFACE_HEADER_SETS)
  set(headers "")
  if(header_sets)
    set(headers FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${component})
  endif()
  install(TARGETS ${target} EXPORT attnserve-${component}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} ${headers})
  set_property(GLOBAL APPEND PROPERTY ATTN_COMPONENTS ${component})
endfunction()

function(attn_install_programs)
  install(TARGETS ${ARGN} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endfunction()

function(attn_install_package)
  get_property(components GLOBAL PROPERTY ATTN_COMPONENTS)
  list(REMOVE_DUPLICATES components)
  foreach(component IN LISTS components)
    install(EXPORT attnserve-${component} NAMESPACE attn:: COMPONENT ${component}
            DESTINATION ${ATTN_PACKAGE_DIR})
  endforeach()
  list(JOIN components " " ATTN_COMPONENTS)
  # Device code in a static library wants the CUDA runtime of whoever links it.
  set(ATTN_CUDA_PACKAGE "")
  if(ATTN_BUILD_CUDA)
    set(ATTN_CUDA_PACKAGE CUDAToolkit)
  endif()
  configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/attnserveConfig.cmake.in ${PROJECT_BINARY_DIR}/attnserveConfig.cmake
    INSTALL_DESTINATION ${ATTN_PACKAGE_DIR}
    NO_SET_AND_CHECK_MACRO)
  # Until 1.0 a minor version may change what it likes.
  write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/attnserveConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/attnserveConfig.cmake
                ${PROJECT_BINARY_DIR}/attnserveConfigVersion.cmake
          DESTINATION ${ATTN_PACKAGE_DIR} COMPONENT package)
endfunction()
