#include "tests/support/golden_problem.h"

#include <utility>

namespace attn::test {
namespace {

// Where the rows of one item stand in the file's tensors.
struct Source {
  int64_t q_row = 0;          // index of the first query row, over [batch, row]
  std::vector<int64_t> keys;  // index of each key, over [batch, key] or [page, slot]
  int64_t lse_first = 0;      // element of lse of row 0, head 0
  int64_t lse_head_stride = 0;
};

struct Sequence {
  int32_t q_len = 0;
  int32_t kv_len = 0;
  Source source;
};

std::vector<int64_t> Consecutive(int64_t first, int64_t count) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(first + i);
  return indices;
}

std::vector<Sequence> DenseSequences(const GoldenFile& file) {
  const int64_t q_len = file.dim("Sq");
  const int64_t kv_len = file.dim("Sk");
  std::vector<Sequence> sequences;
  for (int64_t b = 0; b < file.dim("B"); ++b) {
    sequences.push_back({static_cast<int32_t>(q_len),
                         static_cast<int32_t>(kv_len),
                         {.q_row = b * q_len,
                          .keys = Consecutive(b * kv_len, kv_len),
                          .lse_first = b * file.dim("Hq") * q_len,
                          .lse_head_stride = q_len}});
  }
  return sequences;
}

std::vector<int64_t> PagedKeys(const GoldenFile& file, int64_t sequence, int64_t kv_len) {
  const GoldenTensor& tables = file["block_tables"];
  const int64_t page_size = file.dim("page_size");
  std::vector<int64_t> keys;
  for (int64_t j = 0; j < kv_len; ++j) {
    const double page = tables.at(sequence * tables.shape[1] + j / page_size);
    keys.push_back(static_cast<int64_t>(page) * page_size + j % page_size);
  }
  return keys;
}

// Packed rows; keys packed as well, or in pages.
std::vector<Sequence> PackedSequences(const GoldenFile& file) {
  const bool is_paged = file.has("block_tables");
  const GoldenTensor& q_begins = file[is_paged ? "query_start_loc" : "cu_seqlens_q"];
  std::vector<Sequence> sequences;
  for (int64_t s = 0; s + 1 < q_begins.size(); ++s) {
    const int64_t q_row = static_cast<int64_t>(q_begins.at(s));
    Sequence sequence;
    sequence.q_len = static_cast<int32_t>(q_begins.at(s + 1)) - static_cast<int32_t>(q_row);
    if (is_paged) {
      sequence.kv_len = static_cast<int32_t>(file["context_lens"].at(s));
      sequence.source.keys = PagedKeys(file, s, sequence.kv_len);
    } else {
      const GoldenTensor& k_begins = file["cu_seqlens_k"];
      const int64_t first = static_cast<int64_t>(k_begins.at(s));
      sequence.kv_len = static_cast<int32_t>(static_cast<int64_t>(k_begins.at(s + 1)) - first);
      sequence.source.keys = Consecutive(first, sequence.kv_len);
    }
    sequence.source.q_row = q_row;
    sequence.source.lse_first = q_row;
    sequence.source.lse_head_stride = file["q"].shape[0];
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

// Rows of `width` elements of a tensor, copied one after the other as `dtype`.
std::vector<char> Gather(const GoldenTensor& from, const std::vector<int64_t>& rows, int64_t width,
                         DType dtype) {
  std::vector<char> to(rows.size() * static_cast<size_t>(width) * SizeOf(dtype));
  int64_t at = 0;
  for (const int64_t row : rows) {
    for (int64_t i = 0; i < width; ++i) {
      StoreFromFloat(dtype, to.data(), at++, static_cast<float>(from.at(row * width + i)));
    }
  }
  return to;
}

AttentionSpec SpecOf(const GoldenFile& file, DType dtype) {
  AttentionSpec spec;
  spec.num_q_heads = static_cast<uint32_t>(file.dim("Hq"));
  spec.num_kv_heads = static_cast<uint32_t>(file.dim("Hk"));
  spec.head_dim_qk = static_cast<uint32_t>(file.dim("D"));
  spec.head_dim_v = static_cast<uint32_t>(file.dim("Dv"));
  spec.activation_dtype = dtype;
  spec.kv_dtype = dtype;
  if (file.has("block_tables")) spec.page_size = static_cast<uint32_t>(file.dim("page_size"));
  ScoreSpec& score = spec.score;
  score.softmax_scale = static_cast<float>(file.attrs["softmax_scale"].number());
  if (const JsonValue& cap = file.attrs["logits_soft_cap"]; !cap.is_null()) {
    score.logit_soft_cap = static_cast<float>(cap.number());
  }
  if (const JsonValue& window = file.attrs["window"]; window.is_array()) {
    score.window.left = static_cast<uint32_t>(window.array()[0].number());
    score.window.right = static_cast<uint32_t>(window.array()[1].number());
  }
  if (file.has("sinks")) {  // [heads, n], or [n] for all heads
    const GoldenTensor& sinks = file["sinks"];
    const int64_t per_head = sinks.shape.back();
    score.sink_logits_per_head = static_cast<uint32_t>(per_head);
    for (int64_t i = 0; i < per_head * spec.num_q_heads; ++i) {
      score.sink_logits.push_back(static_cast<float>(sinks.at(i % sinks.size())));
    }
  }
  return spec;
}

Expected ExpectedFrom(const GoldenFile& file, const Sequence& sequence, DType dtype) {
  const int64_t num_q_heads = file.dim("Hq");
  const int64_t width = num_q_heads * file.dim("Dv");
  Expected expected;
  for (int64_t i = 0; i < sequence.q_len * width; ++i) {
    expected.result.out.push_back(file["out"].at(sequence.source.q_row * width + i));
  }
  for (int64_t row = 0; row < sequence.q_len; ++row) {
    for (int64_t head = 0; head < num_q_heads; ++head) {
      expected.result.lse.push_back(
          file["lse"].at(sequence.source.lse_first + head * sequence.source.lse_head_stride + row));
    }
  }
  const char* name = dtype == DType::kFloat32 ? "f32" : dtype == DType::kFloat16 ? "f16" : "bf16";
  const JsonValue& naive = file.attrs["naive_err"][name];
  const JsonValue& absmax = file.attrs["ref_absmax"];
  expected.out_tolerance = ToleranceOf(naive["out"].number(), absmax["out"].number());
  expected.lse_tolerance = ToleranceOf(naive["lse"].number(), absmax["lse"].number());
  return expected;
}

}  // namespace

std::string MissingField(const GoldenFile& file) {
  if (file.attrs["op"].text() == "cosine_sim") return "op";
  for (const char* tensor : {"bias", "attention_mask", "key_mask", "q_segment_ids"}) {
    if (file.has(tensor)) return tensor;
  }
  if (file.attrs["dropout_prob"].number() != 0) return "dropout_prob";
  if (!file.attrs["normalize_output"].boolean()) return "normalize_output";
  if (file.dim("D") > 256) return "head_dim_qk";
  return "";
}

GoldenProblem MakeGoldenProblem(const GoldenFile& file, DType dtype) {
  GoldenProblem golden;
  golden.has_page_size = file.has("block_tables");
  golden.problem.spec = SpecOf(file, dtype);
  const AttentionSpec& spec = golden.problem.spec;
  const bool is_top_left = file.attrs["causal_align"].text() == "top_left";
  const std::string k_name = golden.has_page_size ? "k_pages" : "k";
  const std::string v_name = golden.has_page_size ? "v_pages" : "v";
  const std::vector<Sequence> sequences =
      file.attrs["op"].text() == "attention" ? DenseSequences(file) : PackedSequences(file);
  for (const Sequence& sequence : sequences) {
    CaseItem item;
    item.q_len = sequence.q_len;
    item.kv_len = sequence.kv_len;
    item.q_start = is_top_left ? 0 : int64_t{sequence.kv_len} - sequence.q_len;
    item.out_dtype = dtype;
    item.causal = file.attrs["causal"].boolean();
    golden.problem.items.push_back(item);
    const std::vector<int64_t> q_rows = Consecutive(sequence.source.q_row, sequence.q_len);
    const std::vector<int64_t>& keys = sequence.source.keys;
    golden.problem.tensors.push_back(
        {Gather(file["q"], q_rows, int64_t{spec.num_q_heads} * spec.head_dim_qk, dtype),
         Gather(file[k_name], keys, int64_t{spec.num_kv_heads} * spec.head_dim_qk, dtype),
         Gather(file[v_name], keys, int64_t{spec.num_kv_heads} * spec.head_dim_v, dtype)});
    golden.expected.push_back(ExpectedFrom(file, sequence, dtype));
  }
  return golden;
}

}  // namespace attn::test
