// Base of test fixtures that need a GPU: skips where there is none that the kernels run on, and
// says why.
#pragma once

#include <gtest/gtest.h>

#include "attn/attention/cuda_backend.h"

namespace attn::test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status usable = CheckCudaDevice(0);
    if (!usable.ok()) GTEST_SKIP() << "no usable GPU: " << usable.message();
  }
};

}  // namespace attn::test
