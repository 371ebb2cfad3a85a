# The only places that set compiler flags: attn_library, attn_program, attn_test, attn_fuzzer.
#
#   attn_library(NAME kvcache SOURCES … PUBLIC_HEADERS … DEPS … PRIVATE_DEPS …
#                [INTERNAL] [COMPONENT engine] [HEADERS core|grpc] [ALONE])
#
# makes the static library attn_kvcache and its alias attn::kvcache. PUBLIC_HEADERS lie under
# <module>/include and are included as "attn/<module>/<file>.h"; private ones are included from the
# repository root, "attention/score/logit.h". The library is installed, with its public headers, as
# part of COMPONENT, by default one of its own name (AttnInstall.cmake). INTERNAL libraries have no
# public headers and are installed only where a COMPONENT needs them to link. HEADERS names the
# precompiled headers it takes over (attn_headers); a source includes what it uses all the same, and
# the presets dev and fuzz build without them, and each source by itself. Elsewhere up to eight
# sources are compiled as one (ATTN_JOIN_SOURCES), unless ALONE says that they cannot be.
include_guard(GLOBAL)
include(AttnInstall)

set(ATTN_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Walloca -Wvla)
# GCC 12 sees overlapping copies in std::string's operator+ where there are none (GCC bug 105651),
# and, as it forgets that a precompiled header is the system's, too large ones.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND ATTN_WARNINGS -Wno-restrict)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    list(APPEND ATTN_WARNINGS -Wno-stringop-overflow)
  endif()
endif()
option(ATTN_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)

# A third of what a source costs are the same templates, instantiated in each.
option(ATTN_JOIN_SOURCES "Compile several sources of a target as one" ON)
function(attn_join_sources target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ATTN_JOIN_SOURCES}
                                             UNITY_BUILD_BATCH_SIZE 8)
endfunction()

function(attn_set_flags target)
  target_compile_options(${target} PRIVATE ${ATTN_WARNINGS})
  if(ATTN_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(ATTN_SANITIZER)
    target_compile_options(${target} PRIVATE -fsanitize=${ATTN_SANITIZER} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all -g1)
    target_link_options(${target} PUBLIC -fsanitize=${ATTN_SANITIZER})
  endif()
  if(ATTN_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

function(attn_library)
  cmake_parse_arguments(LIB "INTERNAL;ALONE" "NAME;COMPONENT;HEADERS"
                        "SOURCES;PUBLIC_HEADERS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(LIB_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "attn_library(${LIB_NAME}): unknown arguments ${LIB_UNPARSED_ARGUMENTS}")
  endif()
  set(target attn_${LIB_NAME})
  add_library(${target} STATIC ${LIB_SOURCES})
  add_library(attn::${LIB_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${LIB_NAME} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  if(LIB_PUBLIC_HEADERS)
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS include FILES ${LIB_PUBLIC_HEADERS})
  endif()
  target_link_libraries(${target} PUBLIC ${LIB_DEPS} PRIVATE ${LIB_PRIVATE_DEPS})
  attn_set_flags(${target})
  if(NOT LIB_ALONE)
    attn_join_sources(${target})
  endif()
  if(LIB_HEADERS)
    target_precompile_headers(${target} REUSE_FROM attn_headers_${LIB_HEADERS})
  endif()
  if(NOT LIB_INTERNAL AND NOT LIB_COMPONENT)
    set(LIB_COMPONENT ${LIB_NAME})
  endif()
  if(LIB_COMPONENT)
    attn_install_library(${target} ${LIB_COMPONENT})
  endif()
endfunction()

#   attn_headers(core HEADER precompiled/core.h DEPS … [TEST])
#
# makes attn_headers_core, whose precompiled header others take over: parsing the headers of the
# standard library, Abseil and gRPC is most of what a source costs. TEST: for tests, with their flags.
function(attn_headers name)
  cmake_parse_arguments(SET "TEST" "HEADER" "DEPS" ${ARGN})
  set(target attn_headers_${name})
  file(CONFIGURE OUTPUT ${target}.cc CONTENT "// The precompiled headers need a source.\n")
  add_library(${target} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${target}.cc)
  target_link_libraries(${target} PRIVATE ${SET_DEPS})
  if(SET_TEST)
    attn_set_test_flags(${target})
  else()
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    attn_set_flags(${target})
  endif()
  target_precompile_headers(${target} PRIVATE ${SET_HEADER})
endfunction()

#   attn_program(attn-server SOURCES … DEPS …)
function(attn_program name)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_link_libraries(${name} PRIVATE ${PROGRAM_DEPS})
  attn_set_flags(${name})
endfunction()

#   attn_test(kv_cache_test SOURCES … DEPS … [GRPC] [ALONE] [LABELS …] [TIMEOUT seconds])
#
# One program per call; GoogleTest's own main. ctest runs the program as one test: a program start
# costs more than most of its cases. GRPC: its sources include gRPC or the messages.
#
# Two thirds of what a test costs to compile are headers of GoogleMock and gRPC and the optimizer's
# work on assertions, so tests share precompiled headers and are built with -O1. What they call is
# optimized as ever. For the same reason their own code is without those checks of the sanitizer for
# undefined behaviour that stand at every use of a pointer, and whose faults the one for addresses
# meets as well.
set(ATTN_TEST_DEFINITIONS ATTN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                          ATTN_BINARY_DIR="${PROJECT_BINARY_DIR}")

# Tests are linked with gold where it is there: it takes a third of the time.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold ATTN_HAS_GOLD)

function(attn_set_test_flags target)
  attn_set_flags(${target})
  if(ATTN_HAS_GOLD AND NOT ATTN_SANITIZER)
    target_link_options(${target} PRIVATE -fuse-ld=gold)
  endif()
  target_link_libraries(${target} PRIVATE GTest::gmock Threads::Threads)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(ATTN_SANITIZER MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,vptr,object-size,alignment)
  endif()
  target_compile_definitions(${target} PRIVATE ${ATTN_TEST_DEFINITIONS})
endfunction()

function(attn_test name)
  cmake_parse_arguments(TEST "GRPC;ALONE" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_DEPS} GTest::gtest_main)
  attn_set_test_flags(${name})
  if(NOT TEST_ALONE)
    attn_join_sources(${name})
  endif()
  if(TEST_GRPC)
    target_precompile_headers(${name} REUSE_FROM attn_headers_test_grpc)
  else()
    target_precompile_headers(${name} REUSE_FROM attn_headers_test_core)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT})
  if(TEST_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${TEST_LABELS}")
  endif()
endfunction()

#   attn_fuzzer(codec SOURCES codec_fuzz.cc … DEPS … [GRPC])
#
# With ATTN_BUILD_FUZZERS the program codec_fuzz, libFuzzer's; else codec_corpus_test, which replays
# the inputs that are kept in tests/fuzz/corpus/codec.
function(attn_fuzzer name)
  cmake_parse_arguments(FUZZER "GRPC" "" "SOURCES;DEPS" ${ARGN})
  if(ATTN_BUILD_FUZZERS)
    attn_program(${name}_fuzz SOURCES ${FUZZER_SOURCES} DEPS ${FUZZER_DEPS} GTest::gtest)
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    return()
  endif()
  set(grpc "")
  if(FUZZER_GRPC)
    set(grpc GRPC)
  endif()
  attn_test(${name}_corpus_test ${grpc}
    SOURCES replay_corpus.cc ${FUZZER_SOURCES}
    DEPS ${FUZZER_DEPS}
    LABELS fuzz)
endfunction()
