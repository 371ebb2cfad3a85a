// A well-behaved client among others: it appends, reads, cuts, forks and reopens sequences of its
// own, by unary calls or on a stream, and compares every row that comes back with plain attention.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/test_server.h"

namespace attn::test {

class Survivor {
 public:
  enum class Kind { kUnary, kStream };

  Survivor(const std::string& target, Kind kind, uint64_t seed);

  // Acts until `stop` is set. What differs is a GoogleTest failure.
  void Run(const std::atomic<bool>& stop);
  // Compares the lengths of all sequences with what was sent, and closes them.
  void Finish();

  int64_t num_rows() const { return num_rows_; }

 private:
  using Stream = grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>;
  struct Sequence {
    uint64_t id = 0;
    std::array<PlainLayer, kLayers> layers;
    int64_t CommittedLen() const;
  };

  void ActOnce();
  void Attend();
  void Truncate(Sequence& sequence);
  void Fork(Sequence& parent, Sequence& replaced);
  void Reopen(Sequence& sequence);
  void Close(uint64_t id);
  v1::AttendResponse Send(const v1::AttendRequest& request);
  void Check(const Step& step, const PlainLayer& kv, std::vector<float> out);

  Random random_;
  Stubs stubs_;
  const std::string owner_;
  std::vector<Sequence> sequences_;
  int64_t num_rows_ = 0;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;  // null: unary
  uint64_t last_request_ = 0;
};

}  // namespace attn::test
