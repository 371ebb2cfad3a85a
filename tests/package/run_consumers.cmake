# Installs the components that the consumers ask for, moves the installed tree, then configures,
# builds and runs the consumers against it. With -DSOURCE_DIR, BINARY_DIR, WORK_DIR, CXX_COMPILER,
# GENERATOR, WITH_CLIENT.
set(prefix ${WORK_DIR}/moved)
file(REMOVE_RECURSE ${WORK_DIR})

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} ended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# Arguments for configuring the consumer project `name`; gRPC and protobuf are hidden from it
# unless it is the client.
function(consumer_arguments name out)
  set(arguments -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK_DIR}/${name}
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_PREFIX_PATH=${prefix}
      -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF ${ARGN})
  if(NOT name STREQUAL "client")
    list(APPEND arguments -DCMAKE_DISABLE_FIND_PACKAGE_gRPC=ON
         -DCMAKE_DISABLE_FIND_PACKAGE_Protobuf=ON)
  endif()
  set(${out} ${arguments} PARENT_SCOPE)
endfunction()

function(build_and_run consumer components)
  consumer_arguments(${consumer} arguments -DCONSUMER=${consumer} "-DCOMPONENTS=${components}")
  run("configuring ${consumer}" ${CMAKE_COMMAND} ${arguments})
  run("building ${consumer}" ${CMAKE_COMMAND} --build ${WORK_DIR}/${consumer})
  run("${consumer}" ${WORK_DIR}/${consumer}/${consumer})
  message(STATUS "${consumer}: ${output}")
endfunction()

# That the program links what `pattern` names is an error.
function(expect_not_linked consumer pattern)
  run("readelf" readelf -d ${WORK_DIR}/${consumer}/${consumer})
  if(NOT output MATCHES "NEEDED.*libstdc")
    message(FATAL_ERROR "readelf shows no libraries of ${consumer}:\n${output}")
  endif()
  if(output MATCHES "NEEDED[^\n]*(${pattern})[^\n]*")
    message(FATAL_ERROR "${consumer} needs ${CMAKE_MATCH_0}")
  endif()
endfunction()

# Configuring with these components fails, and says `message`.
function(expect_refused name components message)
  consumer_arguments(${name} arguments -DCONSUMER=cache_only "-DCOMPONENTS=${components}")
  execute_process(COMMAND ${CMAKE_COMMAND} ${arguments} RESULT_VARIABLE result
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  # Messages are broken into lines anywhere.
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(result EQUAL 0 OR NOT output MATCHES "${message}")
    message(FATAL_ERROR "want a refusal with \"${message}\", got ${result}:\n${output}")
  endif()
endfunction()

# Package files carry neither our warnings nor places of the machine that built them.
function(expect_clean_exports)
  file(GLOB files ${prefix}/lib*/cmake/attnserve/*.cmake ${prefix}/lib*/*/cmake/attnserve/*.cmake)
  foreach(file IN LISTS files)
    file(STRINGS ${file} lines REGEX "(-W[a-z]|${SOURCE_DIR}|${BINARY_DIR})")
    if(lines)
      message(FATAL_ERROR "${file}: ${lines}")
    endif()
  endforeach()
  list(LENGTH files count)
  if(count LESS 5)
    message(FATAL_ERROR "got ${count} package files under ${prefix}")
  endif()
endfunction()

function(install_components)
  foreach(component IN LISTS ARGN)
    run("installing ${component}" ${CMAKE_COMMAND} --install ${BINARY_DIR} --component ${component}
        --prefix ${WORK_DIR}/installed)
  endforeach()
  file(REMOVE_RECURSE ${prefix})
  file(RENAME ${WORK_DIR}/installed ${prefix})
  expect_clean_exports()
endfunction()

install_components(package base kvcache)
build_and_run(cache_only kvcache)
expect_refused(nonsense kvcache,nonsense "attnserve has no component \"nonsense\"; it was built")
expect_refused(missing attention "component \"attention\" of attnserve is not installed here")

install_components(package base kvcache attention engine)
build_and_run(embedded engine)
expect_not_linked(embedded "grpc|protobuf|ssl|crypto|prometheus")
if(WITH_CLIENT)
  install_components(package base proto client)
  build_and_run(client client)
endif()
