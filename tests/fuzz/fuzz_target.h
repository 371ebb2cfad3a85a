// What a fuzzer and the replay of its corpus have in common. Each <name>_fuzz.cc defines both
// symbols; libFuzzer or replay_corpus.cc calls the function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attn::fuzz {

// The folder below tests/fuzz/corpus.
extern const char kCorpusName[];

}  // namespace attn::fuzz

// Ends the process when what it tests breaks a promise. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
