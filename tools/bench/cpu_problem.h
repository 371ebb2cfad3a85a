// A pool of pages filled with known keys and values, and sequences over it, for benchmarks of the
// CPU backend; with a float64 check of sampled rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "attn/attention/cpu_backend.h"
#include "attn/base/dtype.h"

namespace attn::bench {

// Every page holds the next page_size tokens of a repeating tape of random rows, so that the
// reference knows every key without keeping a copy of a gigabyte.
class CpuProblem {
 public:
  static constexpr int64_t kTapeTokens = 4096;

  CpuProblem(Backend& backend, const AttentionSpec& spec, int32_t num_pages)
      : backend_(backend), spec_(spec) {
    store_ = backend.CreateKvStore(spec, {.num_pages = num_pages}).value();
    order_.resize(static_cast<size_t>(num_pages));
    for (int32_t i = 0; i < num_pages; ++i) order_[static_cast<size_t>(i)] = i;
    std::shuffle(order_.begin(), order_.end(), random_);
    keys_ = Tape(spec.head_dim_qk * spec.num_kv_heads * kTapeTokens);
    values_ = Tape(spec.head_dim_v * spec.num_kv_heads * kTapeTokens);
    for (int64_t token = 0; token < tokens();) {
      const int64_t count = std::min(kTapeTokens, tokens() - token);
      Append(token, count);
      token += count;
    }
  }

  int64_t tokens() const { return static_cast<int64_t>(order_.size()) * spec_.page_size; }
  int64_t bytes_per_token() const { return store_->page_bytes() / spec_.page_size; }
  KvStore& store() { return *store_; }

  // Writes tokens [begin, begin + count) of the pool again. REQUIRES: at most one lap of the tape,
  // not across its end.
  void Append(int64_t begin, int64_t count) {
    const int64_t at = begin % kTapeTokens;
    const int64_t width = SizeOf(spec_.activation_dtype);
    const PageId* pages = order_.data();
    Batch batch;
    batch.appends.push_back(
        {.k = keys_.data() + at * spec_.num_kv_heads * spec_.head_dim_qk * width,
         .v = values_.data() + at * spec_.num_kv_heads * spec_.head_dim_v * width,
         .pages = {.chunks = &pages, .num_pages = static_cast<int32_t>(order_.size())},
         .begin = static_cast<uint32_t>(begin),
         .count = static_cast<uint32_t>(count)});
    Run(batch);
  }

  // Prepares launches of `num_sequences` sequences of kv_len tokens with q_len last rows each.
  void SetRows(int32_t num_sequences, int32_t q_len, int32_t kv_len, bool causal) {
    num_sequences_ = num_sequences;
    q_len_ = q_len;
    kv_len_ = kv_len;
    causal_ = causal;
    const int64_t rows = int64_t{num_sequences} * q_len * spec_.num_q_heads;
    queries_ = Tape(rows * spec_.head_dim_qk);
    out_.assign(static_cast<size_t>(rows * spec_.head_dim_v) * SizeOf(spec_.activation_dtype), 0);
  }

  // Each launch takes the next pages of the pool.
  void Attend() {
    const int32_t pages_each = (kv_len_ + static_cast<int32_t>(spec_.page_size) - 1) /
                               static_cast<int32_t>(spec_.page_size);
    const int64_t width = SizeOf(spec_.activation_dtype);
    Batch batch;
    starts_.resize(static_cast<size_t>(num_sequences_));
    for (int32_t i = 0; i < num_sequences_; ++i) {
      if (next_page_ + pages_each > static_cast<int32_t>(order_.size())) next_page_ = 0;
      starts_[static_cast<size_t>(i)] = order_.data() + next_page_;
      next_page_ += pages_each;
      const int64_t row = int64_t{i} * q_len_ * spec_.num_q_heads;
      batch.rows.push_back(
          {.q = queries_.data() + row * spec_.head_dim_qk * width,
           .out = out_.data() + row * spec_.head_dim_v * width,
           .pages = {.chunks = &starts_[static_cast<size_t>(i)], .num_pages = pages_each},
           .q_start = kv_len_ - q_len_,
           .q_len = q_len_,
           .kv_end = kv_len_,
           .kv_head_end = spec_.num_kv_heads,
           .out_dtype = spec_.activation_dtype,
           .row_class = ClassOf(static_cast<uint32_t>(q_len_)),
           .causal = causal_});
    }
    Run(batch);
  }

  double flops() const {
    double pairs = double{1} * q_len_ * kv_len_;
    if (causal_) pairs -= 0.5 * q_len_ * (q_len_ - 1);
    return 2.0 * (spec_.head_dim_qk + spec_.head_dim_v) * spec_.num_q_heads * num_sequences_ *
           pairs;
  }
  double kv_bytes() const {
    return double{1} * static_cast<double>(bytes_per_token()) * kv_len_ * num_sequences_;
  }

  // Largest error of sampled rows of the last launch, over 1 + |value|.
  double Error() {
    double worst = 0;
    for (int sample = 0; sample < 24; ++sample) {
      const int32_t sequence =
          static_cast<int32_t>(random_() % static_cast<uint32_t>(num_sequences_));
      const int32_t row = static_cast<int32_t>(random_() % static_cast<uint32_t>(q_len_));
      worst = std::max(
          worst, RowError(sequence, row, static_cast<uint32_t>(random_() % spec_.num_q_heads)));
    }
    return worst;
  }

 private:
  std::vector<char> Tape(int64_t elements) {
    std::normal_distribution<float> normal;
    std::vector<char> tape(static_cast<size_t>(elements) * SizeOf(spec_.activation_dtype));
    for (int64_t i = 0; i < elements; ++i) {
      StoreFromFloat(spec_.activation_dtype, tape.data(), i, normal(random_));
    }
    return tape;
  }

  void Run(const Batch& batch) {
    const Ticket ticket = backend_.Launch(*store_, batch).value();
    if (!backend_.Wait(ticket).ok()) std::abort();
  }

  float Cached(const std::vector<char>& tape, int64_t token, int64_t head_dim, int64_t head,
               int64_t d) const {
    const int64_t row = token % kTapeTokens * spec_.num_kv_heads + head;
    return RoundTo(spec_.kv_dtype,
                   LoadAsFloat(spec_.activation_dtype, tape.data(), row * head_dim + d));
  }

  double RowError(int32_t sequence, int32_t row, uint32_t q_head) const {
    const int64_t first_token =
        (starts_[static_cast<size_t>(sequence)] - order_.data()) * int64_t{spec_.page_size};
    const int64_t at = (int64_t{sequence} * q_len_ + row) * spec_.num_q_heads + q_head;
    const uint32_t head = q_head / spec_.group_size();
    const int64_t keys = causal_ ? kv_len_ - q_len_ + row + 1 : kv_len_;
    std::vector<double> logits(static_cast<size_t>(keys));
    double top = -INFINITY;
    for (int64_t j = 0; j < keys; ++j) {
      double dot = 0;
      for (uint32_t d = 0; d < spec_.head_dim_qk; ++d) {
        dot += double{LoadAsFloat(spec_.activation_dtype, queries_.data(),
                                  at * spec_.head_dim_qk + d)} *
               Cached(keys_, first_token + j, spec_.head_dim_qk, head, d);
      }
      logits[static_cast<size_t>(j)] = dot * double{spec_.score.softmax_scale};
      top = std::max(top, logits[static_cast<size_t>(j)]);
    }
    double total = 0;
    std::vector<double> out(spec_.head_dim_v);
    for (int64_t j = 0; j < keys; ++j) {
      const double weight = std::exp(logits[static_cast<size_t>(j)] - top);
      total += weight;
      for (uint32_t d = 0; d < spec_.head_dim_v; ++d) {
        out[d] += weight * Cached(values_, first_token + j, spec_.head_dim_v, head, d);
      }
    }
    double worst = 0;
    for (uint32_t d = 0; d < spec_.head_dim_v; ++d) {
      const double want = out[d] / total;
      const double got =
          LoadAsFloat(spec_.activation_dtype, out_.data(), at * spec_.head_dim_v + d);
      const double error = std::fabs(got - want) / (1 + std::fabs(want));
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    return worst;
  }

  Backend& backend_;
  const AttentionSpec spec_;
  std::mt19937 random_{1};
  std::unique_ptr<KvStore> store_;
  std::vector<PageId> order_;  // page of the pool's token t: order_[t / page_size]
  std::vector<char> keys_, values_, queries_, out_;
  std::vector<const PageId*> starts_;  // [num_sequences], into order_
  int32_t num_sequences_ = 0;
  int32_t q_len_ = 0;
  int32_t kv_len_ = 0;
  bool causal_ = false;
  int32_t next_page_ = 0;
};

}  // namespace attn::bench
