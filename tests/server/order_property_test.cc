// Random items and lifecycle calls on a few sequences, executed by the engine in batches as they
// fall, must end as if each had been executed alone in arrival order on plain vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/server/engine_fixture.h"
#include "tests/support/random.h"

namespace attn::server {
namespace {

using Item = EngineFixture::Item;

constexpr uint32_t kNumLayers = 3;

// A sequence as plain vectors: the tokens of each layer.
struct PlainSequence {
  std::array<std::vector<int>, kNumLayers> layers;
  Reason state = Reason::kOk;  // or why it cannot be used

  uint32_t committed() const {
    size_t least = layers[0].size();
    for (const auto& layer : layers) least = std::min(least, layer.size());
    return static_cast<uint32_t>(least);
  }
  uint32_t longest() const {
    size_t most = 0;
    for (const auto& layer : layers) most = std::max(most, layer.size());
    return static_cast<uint32_t>(most);
  }
};

class OrderProperty {
 public:
  explicit OrderProperty(uint64_t seed) : random_(seed), f_(Options()) {
    f_.device->nanos_per_flop = 20;
    f_.device->nanos_per_byte = 160;
    for (int i = 0; i < 3; ++i) Open();
  }

  void Run(int num_calls) {
    for (int i = 0; i < num_calls; ++i) {
      PushOne();
      while (random_.Chance(0.25)) f_.engine->StepByHand();
      if (random_.Chance(0.01)) Check();
    }
    Check();
  }

 private:
  static FixtureOptions Options() {
    FixtureOptions options;
    options.num_layers = kNumLayers;
    options.num_groups = 2;
    options.num_heads = 2;
    options.engine.chunk_time = kMillisecond;
    return options;
  }

  void PushOne() {
    const int64_t kind = random_.Integer(0, 99);
    if (kind < 75) return Attend();
    if (kind < 80) return Fork();
    if (kind < 85) return Reorder();
    if (kind < 93) return Truncate();
    if (kind < 96) return Close();
    Open();
  }

  uint64_t AnyAlias() { return static_cast<uint64_t>(random_.Integer(1, int64_t(last_alias_))); }
  // Usually one of the newest few, so that calls meet.
  uint64_t SomeAlias() {
    const uint64_t oldest = last_alias_ > 4 ? last_alias_ - 4 : 1;
    return random_.Chance(0.9)
               ? static_cast<uint64_t>(random_.Integer(int64_t(oldest), int64_t(last_alias_)))
               : AnyAlias();
  }

  void Expect(uint64_t call, std::function<void(const Call&)> check) {
    checks_.emplace_back(call, std::move(check));
  }

  void Open() {
    OpenCall open;
    open.model = f_.model;
    open.owner = "owner";
    open.lease = 3600 * kSecond;
    open.items.push_back({.alias = static_cast<uint32_t>(++last_alias_)});
    plain_[last_alias_] = PlainSequence();
    Expect(f_.Push(f_.Make(std::move(open), stream_)),
           [](const Call& call) { EXPECT_TRUE(std::get<OpenResult>(call.result).items[0].ok()); });
  }

  void Attend() {
    std::vector<Item> items;
    std::vector<std::function<void(const Call&)>> checks;
    int64_t row = 0;
    const uint64_t alias = SomeAlias();
    for (int64_t i = random_.Integer(1, 3); i > 0; --i) {
      // Different layers, because an appended pair stands once in a call.
      const auto layer = static_cast<uint32_t>((items.size() + alias) % kNumLayers);
      Item item = RandomItem(alias, layer);
      checks.push_back(Apply(item, items.size(), row));
      row += item.q_len;
      items.push_back(std::move(item));
    }
    Expect(f_.Push(f_.Attend(items, stream_)), [checks](const Call& call) {
      for (const auto& check : checks) check(call);
    });
  }

  Item RandomItem(uint64_t alias, uint32_t layer) {
    Item item{.seq = alias, .layer = layer};
    const auto& tokens = plain_[alias].layers[layer];
    item.expected_len = static_cast<uint32_t>(tokens.size());
    item.q_len = static_cast<uint32_t>(random_.Chance(0.2) ? random_.Integer(17, 40)
                                                           : random_.Integer(1, 3));
    if (random_.Chance(0.2)) return item;  // read only
    const int64_t count = random_.Chance(0.2) ? random_.Integer(5, 40) : 1;
    for (int64_t i = 0; i < count; ++i) item.tokens.push_back(++last_token_ % 1000);
    item.append_token = random_.Next() | 1;
    if (random_.Chance(0.1)) item.flags |= kItemAppendAfter;
    if (random_.Chance(0.1)) item.flags |= kItemNonCausal;
    if (random_.Chance(0.2)) item.flags |= kItemRewind;
    if (random_.Chance(0.2)) item.expected_len -= std::min(item.expected_len, 2u);
    if (random_.Chance(0.1)) item.q_len = 0;
    return item;
  }

  // Changes the plain sequence as the item does, and returns how to check the item's answer.
  std::function<void(const Call&)> Apply(const Item& item, size_t index, int64_t first_row) {
    PlainSequence& sequence = plain_[item.seq];
    std::vector<int>& tokens = sequence.layers[item.layer];
    Reason reason = sequence.state;
    if (reason == Reason::kOk && !item.tokens.empty()) {
      const bool rewinds = (item.flags & kItemRewind) != 0 && tokens.size() > item.expected_len;
      if (tokens.size() != item.expected_len && !rewinds) reason = Reason::kLengthMismatch;
    }
    if (reason == Reason::kOk && !item.tokens.empty()) {
      tokens.resize(item.expected_len);
      tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    }
    const auto new_len = static_cast<uint32_t>(sequence.state == Reason::kOk ? tokens.size() : 0);
    const std::vector<int> keys = tokens;
    return [this, item, index, first_row, reason, new_len, keys](const Call& call) {
      const auto& result = std::get<AttendResult>(call.result);
      ASSERT_EQ(ReasonAt(result, index), reason) << result.items[index].status;
      EXPECT_EQ(result.items[index].new_len, new_len);
      for (uint32_t row = 0; row < item.q_len; ++row) {
        const float out = f_.OutRow(call, first_row + row);
        if (reason != Reason::kOk) {
          EXPECT_TRUE(std::isnan(out));
          continue;
        }
        const int64_t position = int64_t(keys.size()) - item.q_len + row;
        int64_t end =
            (item.flags & kItemAppendAfter) != 0 ? item.expected_len : int64_t(keys.size());
        if ((item.flags & kItemNonCausal) == 0) end = std::min(end, position + 1);
        const std::vector<int> visible(keys.begin(), keys.begin() + std::max<int64_t>(end, 0));
        EXPECT_NEAR(out, f_.ExpectedOut(visible), 1e-3) << "row " << row;
      }
    };
  }

  void Fork() {
    ForkCall fork;
    fork.items.resize(1);
    fork.items[0].parent.value = SomeAlias();
    fork.items[0].num_children = static_cast<uint32_t>(random_.Integer(1, 2));
    fork.items[0].first_alias = static_cast<uint32_t>(last_alias_ + 1);
    const PlainSequence& parent = plain_[fork.items[0].parent.value];
    uint32_t at_len = parent.committed();
    if (random_.Chance(0.5)) {
      at_len = static_cast<uint32_t>(random_.Integer(0, int64_t(parent.committed()) + 1));
      fork.items[0].at_len = at_len;
    }
    Reason reason = parent.state;
    if (reason == Reason::kOk && at_len > parent.committed()) reason = Reason::kInvalid;
    PlainSequence child = parent;
    child.state = reason == Reason::kOk ? Reason::kOk : Reason::kSkipped;
    for (auto& layer : child.layers) layer.resize(reason == Reason::kOk ? at_len : 0);
    for (uint32_t i = 0; i < fork.items[0].num_children; ++i) plain_[++last_alias_] = child;
    Expect(f_.Push(f_.Make(std::move(fork), stream_)), [reason](const Call& call) {
      EXPECT_EQ(ReasonOf(std::get<ForkResult>(call.result).items[0]), reason);
    });
  }

  void Reorder() {
    ReorderCall reorder;
    std::vector<PlainSequence> sources;
    Reason reason = Reason::kOk;
    const uint64_t first = SomeAlias();
    const uint64_t second = first == last_alias_ ? 1 : first + 1;
    for (const uint64_t target : {first, second}) {
      reorder.targets.push_back({target});
      reorder.sources.push_back({SomeAlias()});
    }
    for (const auto& refs : {reorder.targets, reorder.sources}) {
      for (const SequenceRef ref : refs) {
        if (reason == Reason::kOk) reason = plain_[ref.value].state;
      }
    }
    if (reason == Reason::kOk) {
      for (const SequenceRef source : reorder.sources) sources.push_back(plain_[source.value]);
      for (size_t i = 0; i < 2; ++i) plain_[reorder.targets[i].value] = sources[i];
    }
    const bool works = reason == Reason::kOk;
    Expect(f_.Push(f_.Make(std::move(reorder), stream_)),
           [works](const Call& call) { EXPECT_EQ(call.status.ok(), works) << call.status; });
  }

  void Truncate() {
    TruncateCall truncate;
    truncate.items.resize(1);
    const uint64_t alias = SomeAlias();
    PlainSequence& sequence = plain_[alias];
    const auto len = static_cast<uint32_t>(random_.Integer(0, int64_t(sequence.longest()) + 1));
    truncate.items[0].sequence.value = alias;
    truncate.items[0].len = len;
    Reason reason = sequence.state;
    if (reason == Reason::kOk && len > sequence.longest()) reason = Reason::kInvalid;
    if (reason == Reason::kOk) {
      for (auto& layer : sequence.layers) layer.resize(std::min<size_t>(layer.size(), len));
    }
    const uint32_t committed = sequence.committed();
    Expect(f_.Push(f_.Make(std::move(truncate), stream_)), [reason, committed](const Call& call) {
      const auto& item = std::get<TruncateResult>(call.result).items[0];
      EXPECT_EQ(ReasonOf(item.status()), reason);
      EXPECT_EQ(item.value_or(committed), committed);
    });
  }

  void Close() {
    const uint64_t alias = SomeAlias();
    PlainSequence& sequence = plain_[alias];
    if (sequence.state == Reason::kOk) sequence.state = Reason::kStaleSequence;
    Expect(f_.Push(f_.Make(CloseCall{.sequences = {{alias}}}, stream_)), [](const Call& call) {
      EXPECT_EQ(std::get<CloseResult>(call.result).items.size(), 1u);
    });
    Open();
  }

  void Check() {
    f_.Drain();
    for (const auto& [call, check] : checks_) {
      const Call* answer = f_.Answer(call);
      ASSERT_NE(answer, nullptr) << "call " << call;
      check(*answer);
    }
    checks_.clear();
    const absl::Status invariants = f_.engine->cache_for_test().CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants;
  }

  test::Random random_;
  EngineFixture f_;
  std::shared_ptr<StreamScope> stream_ = std::make_shared<StreamScope>();
  std::map<uint64_t, PlainSequence> plain_;  // by alias
  std::vector<std::pair<uint64_t, std::function<void(const Call&)>>> checks_;
  uint64_t last_alias_ = 0;
  int last_token_ = 0;
};

TEST(OrderPropertyTest, TheEngineEqualsExecutionOneByOneInArrivalOrder) {
  const auto fresh = static_cast<uint64_t>(Clock::Real().Now());
  for (uint64_t i = 0; i < 40; ++i) {
    const uint64_t seed = i < 20 ? i : fresh + i;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    OrderProperty property(seed);
    property.Run(150);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace attn::server
