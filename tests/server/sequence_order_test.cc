// Who waits for whom.
#include "server/core/sequence_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "server/core/attend_work.h"
#include "server/core/lifecycle.h"
#include "tests/support/random.h"

namespace attn::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SequenceId kS{1};
constexpr SequenceId kT{2};

class SequenceOrderTest : public ::testing::Test {
 protected:
  // What may start now, as indices into `entries`.
  std::vector<size_t> Free() {
    std::vector<size_t> free;
    while (SequenceOrder::Entry* entry = order.NextFree()) {
      for (size_t i = 0; i < entries.size(); ++i) {
        if (entries[i] == entry) free.push_back(i);
      }
    }
    return free;
  }
  void Item(SequenceId sequence, uint32_t layer) {
    entries.push_back(order.Add(sequence, layer, &work));
  }
  void Lifecycle(std::vector<SequenceId> sequences) {
    entries.push_back(order.Add(sequences, &operation));
  }

  AttendWork work;
  Operation operation;
  SequenceOrder order;
  std::vector<SequenceOrder::Entry*> entries;
};

TEST_F(SequenceOrderTest, ItemsOfOnePairRunOneAfterAnother) {
  Item(kS, 0);
  Item(kS, 0);
  Item(kS, 0);
  EXPECT_THAT(Free(), ElementsAre(0));
  order.Finish(entries[0]);
  EXPECT_THAT(Free(), ElementsAre(1));
  order.Finish(entries[1]);
  EXPECT_THAT(Free(), ElementsAre(2));
}

TEST_F(SequenceOrderTest, OtherLayersAndSequencesAreFree) {
  Item(kS, 0);
  Item(kS, 1);
  Item(kT, 0);
  EXPECT_THAT(Free(), ElementsAre(0, 1, 2));
}

TEST_F(SequenceOrderTest, ALifecycleCallWaitsForAllEarlierItemsAndHoldsBackLaterOnes) {
  Item(kS, 0);
  Item(kS, 1);
  Lifecycle({kS});
  Item(kS, 0);
  Item(kS, 1);
  Item(kT, 0);
  EXPECT_THAT(Free(), ElementsAre(0, 1, 5));
  order.Finish(entries[0]);
  EXPECT_THAT(Free(), IsEmpty());
  order.Finish(entries[1]);
  EXPECT_THAT(Free(), ElementsAre(2));
  order.Finish(entries[2]);
  EXPECT_THAT(Free(), ElementsAre(3, 4));
}

TEST_F(SequenceOrderTest, LifecycleCallsOfOneSequenceRunInOrder) {
  Lifecycle({kS, kT, kS});
  Lifecycle({kT});
  Lifecycle({kS});
  Lifecycle({});
  EXPECT_THAT(Free(), ElementsAre(0, 3));
  order.Finish(entries[0]);
  EXPECT_THAT(Free(), ElementsAre(1, 2));
}

TEST_F(SequenceOrderTest, AnAbandonedEntryStillKeepsThoseBehindItWaiting) {
  Item(kS, 0);
  Item(kS, 0);
  Item(kS, 0);
  EXPECT_THAT(Free(), ElementsAre(0));
  order.Abandon(entries[1]);
  EXPECT_THAT(Free(), IsEmpty());
  order.Finish(entries[0]);
  EXPECT_THAT(Free(), ElementsAre(2));
}

TEST_F(SequenceOrderTest, FailureIsRememberedForThoseInLineOnly) {
  Lifecycle({kS});
  Item(kS, 0);
  Item(kS, 0);
  EXPECT_THAT(Free(), ElementsAre(0));
  order.MarkFailed(kS);
  order.Finish(entries[0]);
  EXPECT_THAT(Free(), ElementsAre(1));
  order.Finish(entries[1]);
  EXPECT_THAT(Free(), ElementsAre(2));
  EXPECT_TRUE(order.IsFailed(kS));
  order.Finish(entries[2]);
  EXPECT_FALSE(order.IsFailed(kS));
}

TEST_F(SequenceOrderTest, NothingIsKeptOfFinishedSequences) {
  for (uint64_t i = 1; i <= 1000; ++i) {
    Item(SequenceId(i), 0);
    Lifecycle({SequenceId(i), SequenceId(i + 1)});
  }
  // A chain: each lifecycle call takes in the next sequence.
  std::vector<size_t> free = Free();
  for (size_t done = 0; done < free.size(); ++done) {
    order.Finish(entries[free[done]]);
    entries[free[done]] = nullptr;
    for (const size_t next : Free()) free.push_back(next);
  }
  EXPECT_EQ(free.size(), 2000u);
  EXPECT_EQ(order.num_lines(), 0u);
}

// Entries as the rule states them, all pairs compared.
struct Plain {
  std::vector<SequenceId> sequences;
  int layer = -1;  // -1: lifecycle
  bool finished = false;
};

bool MustWait(const Plain& later, const Plain& earlier) {
  if (earlier.finished) return false;
  for (const SequenceId s : later.sequences) {
    for (const SequenceId t : earlier.sequences) {
      if (s == t && (later.layer < 0 || earlier.layer < 0 || later.layer == earlier.layer)) {
        return true;
      }
    }
  }
  return false;
}

TEST_F(SequenceOrderTest, EntriesAreFreeExactlyWhenTheRuleSaysSo) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    test::Random random(seed);
    SequenceOrder fresh;
    std::vector<Plain> plain;
    std::map<SequenceOrder::Entry*, size_t> index;
    std::vector<std::pair<size_t, SequenceOrder::Entry*>> started;
    for (int turn = 0; turn < 60; ++turn) {
      if (random.Chance(0.6)) {
        Plain added;
        const auto sequence = [&] { return SequenceId(uint64_t(random.Integer(1, 3))); };
        added.sequences.push_back(sequence());
        if (random.Chance(0.3)) {
          if (random.Chance(0.5)) added.sequences.push_back(sequence());
          index[fresh.Add(added.sequences, &operation)] = plain.size();
        } else {
          added.layer = static_cast<int>(random.Integer(0, 2));
          index[fresh.Add(added.sequences[0], uint32_t(added.layer), &work)] = plain.size();
        }
        plain.push_back(added);
      } else if (!started.empty()) {
        const auto at = static_cast<size_t>(random.Integer(0, int64_t(started.size()) - 1));
        plain[started[at].first].finished = true;
        index.erase(started[at].second);
        fresh.Finish(started[at].second);
        started.erase(started.begin() + static_cast<ptrdiff_t>(at));
      }
      while (SequenceOrder::Entry* entry = fresh.NextFree()) {
        started.emplace_back(index.at(entry), entry);
      }
      std::vector<bool> is_started(plain.size(), false);
      for (const auto& [at, entry] : started) is_started[at] = true;
      for (size_t i = 0; i < plain.size(); ++i) {
        bool waits = plain[i].finished;
        for (size_t j = 0; j < i; ++j) waits = waits || MustWait(plain[i], plain[j]);
        ASSERT_EQ(is_started[i], !waits) << "entry " << i << " turn " << turn;
      }
    }
  }
}

}  // namespace
}  // namespace attn::server
