// The backend that a program of tests/conformance is about. Which one that is, is decided by the
// library the program is linked with: test_on_cpu, or test_on_cuda, which skips all tests where
// there is no usable GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/attention/attention_spec.h"
#include "attn/attention/backend.h"
#include "attn/base/dtype.h"

namespace attn::test {

// Backends that must give the same bits: the CPU with one, two and three threads; the GPU with
// staging memory of different sizes. Made at the first call; live for ever.
const std::vector<Backend*>& TestedBackends();

// Makes a spec one that the backend supports, by as few changes as that takes.
void Narrow(AttentionSpec& spec);
// SpecOf of expect_reference.h, narrowed.
AttentionSpec NarrowedSpec(uint32_t num_q_heads, uint32_t num_kv_heads, uint32_t head_dim,
                           DType dtype = DType::kFloat32);
// Of activations and cache.
const std::vector<DType>& TestedDTypes();

// Launches of a test that repeats one for long.
int TestedRepeats();

}  // namespace attn::test
