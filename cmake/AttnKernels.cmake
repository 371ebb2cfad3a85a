# Compiled kernels are rows of a manifest:
#
#   attn_kernels(attn_cuda MANIFEST forward/instances.txt TEMPLATE forward/instance.cu.in
#                TYPE ForwardInstance HEADER attention/cuda/forward/launch.h TABLE ForwardInstances)
#
# writes one .cu per row from the template, whose placeholders are the columns, and one .cc with the
# function TABLE() over all of them, and adds both to the target. A new row rebuilds one object.
# The manifest's last comment line names the columns; the first is the kernel's name.

# Registers that do not fit are an error: a kernel that spills is not the one that was designed.
set(ATTN_CUDA_FLAGS -Xptxas=-warn-spills,-warn-lmem-usage,-Werror)

# CMake 3.25 does not know that nvcc has C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")

# For targets with CUDA sources.
function(attn_set_cuda_flags target)
  get_target_property(cxx_options ${target} COMPILE_OPTIONS)
  set_property(TARGET ${target} PROPERTY COMPILE_OPTIONS
               "$<$<COMPILE_LANGUAGE:CXX>:${cxx_options}>"
               "$<$<COMPILE_LANGUAGE:CUDA>:${ATTN_CUDA_FLAGS}>")
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES 90a-real CUDA_STANDARD 20
                                             CUDA_RUNTIME_LIBRARY Static)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

function(attn_kernels target)
  cmake_parse_arguments(KERNELS "" "MANIFEST;TEMPLATE;TYPE;HEADER;TABLE" "" ${ARGN})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${KERNELS_MANIFEST})
  file(STRINGS ${KERNELS_MANIFEST} rows)
  set(columns "")
  set(names "")
  foreach(row IN LISTS rows)
    string(REGEX REPLACE "[ \t]+" ";" fields "${row}")
    if(row MATCHES "^#")
      list(SUBLIST fields 2 -1 columns)
      continue()
    endif()
    list(POP_FRONT fields NAME)
    foreach(column value IN ZIP_LISTS columns fields)
      set(${column} ${value})
    endforeach()
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${NAME}.cu)
    configure_file(${KERNELS_TEMPLATE} ${source} @ONLY)
    target_sources(${target} PRIVATE ${source})
    list(APPEND names ${NAME})
  endforeach()

  set(declarations "")
  set(entries "")
  foreach(name IN LISTS names)
    string(APPEND declarations "extern const ${KERNELS_TYPE} kInstance_${name};\n")
    string(APPEND entries "    &kInstance_${name},\n")
  endforeach()
  set(table ${CMAKE_CURRENT_BINARY_DIR}/${KERNELS_TABLE}.cc)
  file(CONFIGURE OUTPUT ${table} CONTENT "// Generated: all compiled kernels of one kind.
#include \"${KERNELS_HEADER}\"

namespace attn::cuda {

${declarations}
absl::Span<const ${KERNELS_TYPE}* const> ${KERNELS_TABLE}() {
  static const ${KERNELS_TYPE}* const kAll[] = {
${entries}  };
  return kAll;
}

}  // namespace attn::cuda
" @ONLY)
  target_sources(${target} PRIVATE ${table})
endfunction()
