// The CUDA backend as the tested one: bf16 and head dimension 128.
#include "attn/attention/cuda_backend.h"
#include "gtest/gtest.h"
#include "tests/support/tested_backend.h"

namespace attn::test {
namespace {

class SkipsWithoutGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    const absl::Status usable = CheckCudaDevice(0);
    if (!usable.ok()) GTEST_SKIP() << "no usable GPU: " << usable.message();
  }
};

[[maybe_unused]] ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new SkipsWithoutGpu);

}  // namespace

// The least staging cuts most launches of the tests into several steps.
const std::vector<Backend*>& TestedBackends() {
  static const auto* const backends = [] {
    auto* const made = new std::vector<Backend*>();
    made->push_back(CreateCudaBackend({.copy_threads = 1}).value().release());
    made->push_back(CreateCudaBackend({.staging_bytes = int64_t{1} << 20, .copy_threads = 3})
                        .value()
                        .release());
    return made;
  }();
  return *backends;
}

void Narrow(AttentionSpec& spec) {
  spec.head_dim_qk = 128;
  spec.head_dim_v = 128;
  spec.activation_dtype = DType::kBFloat16;
  spec.kv_dtype = DType::kBFloat16;
}

const std::vector<DType>& TestedDTypes() {
  static const auto* const dtypes = new std::vector<DType>{DType::kBFloat16};
  return *dtypes;
}

int TestedRepeats() { return 1000; }

}  // namespace attn::test
