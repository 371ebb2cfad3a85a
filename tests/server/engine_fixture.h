// An engine on a fake device and a fake clock, and short ways to say what calls it gets. The model
// has two layers in one group, one head pair and tiny dims; a sequence's tokens are numbers from
// which K and V follow, so that a test can say what a row must see.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/clock.h"
#include "attn/base/error.h"
#include "server/core/engine.h"
#include "server/core/stream_scope.h"
#include "tests/support/fake_backend.h"

namespace attn::server {

// Keeps settled calls. Any thread.
class CollectingSink : public CallSink {
 public:
  void Complete(std::unique_ptr<Call> call) override {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return calls_.size();
  }
  // The answer to the call of this id, null if there is none yet.
  const Call* Find(uint64_t id) const {
    std::lock_guard lock(mutex_);
    for (const auto& call : calls_) {
      if (call->id == id) return call.get();
    }
    return nullptr;
  }
  // Ids in the order of their answers.
  std::vector<uint64_t> order() const {
    std::lock_guard lock(mutex_);
    std::vector<uint64_t> ids;
    for (const auto& call : calls_) ids.push_back(call->id);
    return ids;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Call>> calls_;
};

inline EngineOptions SmallEngine() {
  EngineOptions options;
  options.kv_bytes = 4 << 20;
  return options;
}

struct FixtureOptions {
  uint32_t num_layers = 2;
  uint32_t num_groups = 1;  // layers are dealt out in turn
  uint32_t num_heads = 1;
  uint32_t page_size = 4;
  EngineOptions engine = SmallEngine();
  EngineObserver* observer = nullptr;
};

class EngineFixture {
 public:
  explicit EngineFixture(FixtureOptions options = {});

  static constexpr uint32_t kDim = 4;

  // ---- making calls. Each returns the call, not yet pushed; `seq` is an id or an alias.
  struct Item {
    uint64_t seq = 0;
    uint32_t layer = 0;
    uint32_t expected_len = 0;
    std::vector<int> tokens = {};  // appended: K and V of each follow from the number
    uint32_t q_len = 1;
    uint32_t flags = 0;
    uint64_t append_token = 0;  // 0: made from sequence, layer, length and tokens
    std::optional<uint32_t> q_start = std::nullopt;
  };
  std::unique_ptr<Call> Attend(const std::vector<Item>& items,
                               std::shared_ptr<StreamScope> stream = nullptr);
  std::unique_ptr<Call> Make(Request request, std::shared_ptr<StreamScope> stream = nullptr);

  // ---- sending
  // Pushes and returns the call's id.
  uint64_t Push(std::unique_ptr<Call> call);
  // Steps until the engine has nothing more to do.
  void Drain();
  // Push, Drain, answer.
  const Call& Run(std::unique_ptr<Call> call);
  const AttendResult& RunAttend(const std::vector<Item>& items);
  const Call* Answer(uint64_t id) const { return sink.Find(id); }
  const AttendResult& AttendAnswer(uint64_t id) const;

  // Opens a sequence and returns its id.
  uint64_t Open(const std::string& owner = "owner", Nanos lease = 30 * kSecond);
  uint32_t LengthOf(uint64_t sequence, uint32_t layer);

  // ---- what must come out
  // One output row (one head) over these tokens: the query is all ones, so the weights follow from
  // the keys alone.
  static float ExpectedOut(const std::vector<int>& tokens);
  // First element of a row of the answer, all heads being equal.
  float OutRow(const Call& call, int64_t row) const;

  std::shared_ptr<test::FakeDevice> device;
  FakeClock clock;
  ModelRegistry registry;
  CollectingSink sink;
  std::unique_ptr<Engine> engine;
  ModelPtr model;
  const FixtureOptions options;

 private:
  uint64_t next_id_ = 1;
};

// The model of the fixture under another name or shape.
ModelDefinition FixtureModel(const FixtureOptions& options, const std::string& name);

// Reason of the item, kOk if it went well.
inline Reason ReasonAt(const AttendResult& result, size_t item) {
  return ReasonOf(result.items.at(item).status);
}

}  // namespace attn::server
