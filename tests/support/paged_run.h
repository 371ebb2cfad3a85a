// Runs a problem on a backend: pages, appends, rows. How the work is laid out and cut is a Layout,
// and no Layout may change a bit of the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "attn/attention/backend.h"
#include "attn/attention/batch.h"
#include "tests/support/attention_case.h"

namespace attn::test {

struct Layout {
  uint64_t page_seed = 1;         // order of page ids
  int32_t spare_pages = 3;        // pages nobody uses, full of NaN
  int32_t table_chunk_log2 = 31;  // page ids per chunk of the page tables
  int32_t append_piece = 0;       // tokens per append; 0: all at once
  bool appends_in_same_launch = true;
  int32_t cut_rows = 0;        // entries end at absolute multiples of this; 0: not cut
  bool cut_kv_heads = false;   // one entry per KV head
  bool reversed = false;       // last item first
  bool is_misaligned = false;  // q, k, v and out at odd addresses
  std::optional<RowClass> row_class = std::nullopt;  // else by the item's q_len
};

struct ItemOutput {
  std::vector<char> out;   // [q_len, num_q_heads, head_dim_v], the item's out_dtype
  std::vector<float> lse;  // [q_len, num_q_heads]; empty if not wanted

  std::vector<double> OutAsDoubles(DType dtype) const;
  // Same bytes.
  friend bool operator==(const ItemOutput& a, const ItemOutput& b);
};

// One output per item. Outputs are poisoned before the launch; writing outside of them is an
// INTERNAL error.
absl::StatusOr<std::vector<ItemOutput>> RunOnBackend(Backend& backend, const Problem& problem,
                                                     const Layout& layout);

}  // namespace attn::test
