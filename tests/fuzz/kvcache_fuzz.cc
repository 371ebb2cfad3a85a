// Any sequence of cache calls: what the cache answers and holds is compared with plain vectors
// after every call, and its accounts with themselves.
#include <gtest/gtest.h>

#include <cstdlib>
#include <span>

#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/kvcache/cache_fixture.h"
#include "tests/kvcache/random_walk.h"

namespace attn::fuzz {

const char kCorpusName[] = "kvcache";

namespace {

using kvcache::test::OneGroup;
using kvcache::test::RandomWalk;
using kvcache::test::WalkOptions;

kvcache::CacheModel TwoGroups(uint32_t page_size) {
  return {.num_layers = 3,
          .page_size = page_size,
          .groups = {{.layers = {0, 2}, .page_bytes = 300}, {.layers = {1}, .page_bytes = 200}}};
}

// Small caches, which run out of pages, sequences and lengths within a few steps.
WalkOptions OptionsOf(ByteSource& input) {
  WalkOptions options;
  options.num_steps = 200;
  switch (input.Integer(0, 2)) {
    case 0:
      options.models = {OneGroup(1, 1)};
      break;
    case 1:
      options.models = {TwoGroups(static_cast<uint32_t>(input.Integer(1, 5)))};
      break;
    default:
      options.models = {TwoGroups(4), OneGroup(2, 3, 170)};
      break;
  }
  options.cache.budget_bytes = input.Integer(10, 120) * 100;
  options.cache.max_sequences = static_cast<uint32_t>(input.Integer(1, 9));
  options.cache.max_sequence_len = static_cast<uint32_t>(input.Integer(1, 80));
  options.cache.remembered_appends = static_cast<uint32_t>(input.Integer(0, 4));
  options.backing_refuses = input.Integer(0, 3) == 3 ? 0.3 : 0;
  return options;
}

}  // namespace
}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attn::fuzz::ByteSource input({data, size});
  attn::fuzz::WalkOptions options = attn::fuzz::OptionsOf(input);
  options.choices = input.Take(size);
  if (options.choices.empty()) return 0;
  attn::fuzz::RandomWalk(options).Run();
  if (testing::Test::HasFailure()) std::abort();  // GoogleTest has said what differs
  return 0;
}
