// AttendRequests with tensors that live as long as they do, whose rows can be told apart.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "attn/client/attend.h"

namespace attn::client {

// One query head and one KV head of kDim dims, fp32; every element of row r of q is `first + r`.
class RequestMaker {
 public:
  static constexpr uint32_t kDim = 8;

  explicit RequestMaker(std::vector<AttendItem> items, float first = 1) {
    size_t q_rows = 0, kv_rows = 0;
    for (const AttendItem& item : items) {
      q_rows += item.q_len;
      kv_rows += item.kv_new_len;
    }
    for (size_t r = 0; r < q_rows; ++r) {
      q_.insert(q_.end(), kDim, first + static_cast<float>(r));
    }
    k_.assign(kv_rows * kDim, 0.5f);
    v_.assign(kv_rows * kDim, 0.25f);
    request_.items = std::move(items);
    request_.q = BytesOf(q_);
    request_.k = BytesOf(k_);
    request_.v = BytesOf(v_);
  }
  RequestMaker(const RequestMaker&) = delete;
  RequestMaker& operator=(const RequestMaker&) = delete;

  AttendRequest& request() { return request_; }
  // What a server that returns q as out must have answered.
  std::string out() const {
    return std::string(reinterpret_cast<const char*>(q_.data()), q_.size() * sizeof(float));
  }

 private:
  std::vector<float> q_;
  std::vector<float> k_;
  std::vector<float> v_;
  AttendRequest request_;
};

// One new token at `len` of layer 0.
inline AttendItem OneToken(uint64_t sequence, uint32_t len, uint32_t layer = 0) {
  AttendItem item;
  item.sequence = SequenceId(sequence);
  item.layer = layer;
  item.expected_len = len;
  item.q_len = 1;
  item.kv_new_len = 1;
  return item;
}

inline RetryPolicy FastRetry(uint32_t max_attempts = 6) {
  RetryPolicy retry;
  retry.max_attempts = max_attempts;
  retry.initial_backoff_ms = 1;
  retry.max_backoff_ms = 200;
  return retry;
}

}  // namespace attn::client
