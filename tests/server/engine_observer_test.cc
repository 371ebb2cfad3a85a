// What the engine tells an observer, and how often.
#include "server/core/engine_observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Recorder : public EngineObserver {
 public:
  void DeviceLost(const absl::Status& status) override {
    events.push_back(absl::StrCat("lost: ", status.message()));
  }
  void ModelDeclared(const std::string& name) override { events.push_back("declared " + name); }
  void ModelRemoved(const std::string& name) override { events.push_back("removed " + name); }
  void OwnerExpired(const std::string& owner, size_t num_sequences) override {
    events.push_back(absl::StrCat("expired ", owner, " ", num_sequences));
  }
  std::vector<std::string> events;
};

class EngineObserverTest : public ::testing::Test {
 protected:
  EngineObserverTest() : f({.num_groups = 2, .observer = &recorder}) {
    EXPECT_THAT(recorder.events, ElementsAre("declared model"));
    recorder.events.clear();
  }
  Recorder recorder;
  EngineFixture f;
};

TEST_F(EngineObserverTest, ModelsAreToldOfWhenTheyComeAndGo) {
  f.Run(f.Make(DeclareModelCall{FixtureModel(f.options, "model")}));
  EXPECT_THAT(recorder.events, IsEmpty()) << "it was there";
  const uint64_t id = f.Open();
  f.Run(f.Make(RemoveModelCall{"model"}));
  EXPECT_THAT(recorder.events, IsEmpty()) << "it is in use";
  f.Run(f.Make(CloseCall{.sequences = {{id}}}));
  f.Run(f.Make(RemoveModelCall{"model"}));
  EXPECT_THAT(recorder.events, ElementsAre("removed model"));
}

TEST_F(EngineObserverTest, AnOwnerWhoExpiresIsToldOfOnceWithItsSequences) {
  f.Open("me", kSecond);
  f.Open("me", kSecond);
  f.Open("other", 60 * kSecond);
  f.clock.Advance(2 * kSecond);
  f.Run(f.Make(RenewCall{.owner = "nobody", .lease = kSecond}));
  EXPECT_THAT(recorder.events, ElementsAre("expired me 2"));
  EXPECT_EQ(f.engine->stats().expired_owners.value(), 1u);
  EXPECT_EQ(f.engine->stats().expired_sequences.value(), 2u);
}

TEST_F(EngineObserverTest, ALostDeviceIsToldOfOnce) {
  const uint64_t id = f.Open();
  int num_launches = 0;
  f.device->on_launch = [&](const Batch&) {
    ++num_launches;
    f.device->next_launch_error = MakeError(Reason::kDeviceLost, "", "gone");
  };
  f.RunAttend({{.seq = id, .tokens = {1}}, {.seq = id, .layer = 1, .tokens = {1}}});
  EXPECT_EQ(num_launches, 2) << "each layer has its group";
  EXPECT_THAT(recorder.events, ElementsAre("lost: gone"));
  EXPECT_EQ(ReasonOf(f.engine->device_error()), Reason::kDeviceLost);
}

}  // namespace
}  // namespace attn::server
