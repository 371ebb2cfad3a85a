# The borders of docs/architecture.md, by grep: cmake -DSOURCE_DIR=… -P layering.cmake
#
# Each rule: files that match the globs must not have an #include that matches the pattern, unless
# the file's path matches the exception.

function(forbid globs pattern except why)
  foreach(glob IN LISTS globs)
    file(GLOB_RECURSE files RELATIVE "${SOURCE_DIR}" "${SOURCE_DIR}/${glob}/*.h"
         "${SOURCE_DIR}/${glob}/*.cc" "${SOURCE_DIR}/${glob}/*.cu" "${SOURCE_DIR}/${glob}/*.cuh")
    foreach(file IN LISTS files)
      if(NOT except STREQUAL "" AND file MATCHES "${except}")
        continue()
      endif()
      file(STRINGS "${SOURCE_DIR}/${file}" includes REGEX "^ *# *include.*(${pattern})")
      if(includes)
        message(STATUS "${file}: ${includes} (${why})")
        set_property(GLOBAL APPEND PROPERTY layering_failures "${file}")
      endif()
    endforeach()
  endforeach()
endfunction()

forbid("base" "attn/(kvcache|attention|client)|attention/|server/|kvcache/src" "" "base is a leaf")
forbid("kvcache" "attn/attention|attention/|server/" "" "kvcache does not know attention")
forbid("attention" "attn/kvcache|kvcache/|server/" "" "attention does not know kvcache")
forbid("client" "attn/kvcache|attn/attention|attn/engine|attention/|kvcache/|server/" ""
       "the client depends on proto and base only")
forbid("server/core" "server/(rpc|embed)/|attn/engine" "" "the core knows none of its borders")
forbid("server/embed" "server/rpc/" "" "one border does not know the other")
forbid("base;kvcache;attention;server/core;server/embed" "grpc|\\.pb\\.h|google/protobuf" ""
       "gRPC and protobuf stay in server/rpc, client, proto and tools")
forbid("base;kvcache;attention;client;server;tools" "prometheus/|[cC]ivet"
       "^server/rpc/metrics_endpoint\\.cc" "prometheus-cpp stays in the endpoint")
# Of CUDA others know the backend's public header only.
forbid("base;kvcache;server;client;tools" "attention/cuda/|[<\"]cuda" "^tools/bench/gpu/"
       "CUDA stays in attention/cuda")
forbid("attention" "cuda" "^attention/(cuda|training/cuda)/|cuda_backend" "CUDA stays in attention/cuda")
forbid("attention/score" "attn/attention|hwy/|attention/(plan|cpu|reference)"
       "attention/score/lower\\." "kernel-side headers include base only")
forbid("attention/reference" "attention/(score|plan|cpu)" "" "the reference shares the spec only")

# Public headers show no third-party type but absl.
foreach(module IN ITEMS base kvcache attention client server/embed)
  forbid("${module}/include" "grpc|\\.pb\\.h|hwy/|cuda|google/|server/|/src/" ""
         "public headers stand alone")
endforeach()

get_property(found GLOBAL PROPERTY layering_failures)
if(found)
  message(FATAL_ERROR "borders crossed by: ${found}")
endif()
message(STATUS "all borders hold")
