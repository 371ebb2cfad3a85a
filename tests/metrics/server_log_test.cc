// The log of a real server, from its start to the end of its drain.
#include "server/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/e2e/test_server.h"
#include "tests/support/fake_backend.h"

namespace attn::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// Reads what a server logs, as it comes.
class LogReader {
 public:
  LogReader() { EXPECT_EQ(pipe(ends_), 0); }
  ~LogReader() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int in() const { return ends_[1]; }
  // Without what differs from run to run before the event. Waits for it.
  std::string NextLine() {
    while (lines_.find('\n') == std::string::npos) {
      char block[4096];
      const ssize_t got = read(ends_[0], block, sizeof(block));
      if (got <= 0) return "";
      lines_.append(block, static_cast<size_t>(got));
    }
    const size_t end = lines_.find('\n');
    std::string line = lines_.substr(lines_.find("level="), end - lines_.find("level="));
    lines_.erase(0, end + 1);
    return line;
  }

 private:
  int ends_[2] = {-1, -1};
  std::string lines_;
};

v1::DeclareModelRequest DeclareTiny() {
  v1::DeclareModelRequest request;
  *request.mutable_spec() = TinySpec();
  return request;
}

TEST(ServerLogTest, TellsOfStartModelsRefusalsAndDrain) {
  LogReader reader;
  server::Log log(reader.in(), server::LogLevel::kInfo);
  auto server = server::Server::Start(TestOptions(), &log);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(reader.NextLine(), AllOf(HasSubstr("level=info event=options listen=127.0.0.1:0 "),
                                       HasSubstr(" kv-bytes=67108864 ")));
  EXPECT_EQ(reader.NextLine().find("level=info event=start version="), 0u);

  Stubs stubs((*server)->address());
  {
    grpc::ClientContext context;
    v1::DeclareModelResponse response;
    EXPECT_TRUE(stubs.models->DeclareModel(&context, DeclareTiny(), &response).ok());
  }
  EXPECT_EQ(reader.NextLine(), "level=info event=model_declared model=tiny");
  {
    grpc::ClientContext context;
    v1::OpenSequencesRequest request;
    request.set_model("x\" level=error\nevent=forged");
    request.set_owner("me");
    request.add_items();
    v1::OpenSequencesResponse response;
    EXPECT_FALSE(stubs.sequences->OpenSequences(&context, request, &response).ok());
  }
  EXPECT_THAT(reader.NextLine(),
              ContainsRegex("^level=info event=call_refused reason=UNKNOWN_MODEL "
                            "request=OpenSequencesRequest message=\".*level=error"
                            "\\\\nevent=forged.*\"$"));
  (*server)->Drain();
  EXPECT_EQ(reader.NextLine(), "level=info event=drain_begins calls=0 streams=0");
  EXPECT_THAT(reader.NextLine(),
              ContainsRegex("^level=info event=drain_ends seconds=[0-9.]+ calls=0 streams=0$"));
}

TEST(ServerLogTest, TellsOfAStallAndOfItsEnd) {
  auto device = std::make_shared<FakeDevice>();
  std::mutex mutex;
  std::condition_variable change;
  bool goes_on = false;
  device->on_launch = [&](const Batch&) {
    std::unique_lock lock(mutex);
    change.wait(lock, [&] { return goes_on; });
  };
  LogReader reader;
  server::Log log(reader.in(), server::LogLevel::kInfo);
  server::ServerOptions options = TestOptions();
  options.stall_time = 100 * kMillisecond;
  TestServer server(options, CreateFakeBackend(device), &log);
  const uint64_t id = server.OpenOne();
  for (const char* const event : {"options", "start", "model_declared"}) {
    EXPECT_THAT(reader.NextLine(), HasSubstr(event));
  }
  std::thread caller([&] {
    Random random(1);
    PlainLayer kv;
    server.Attend(MakeRequest({AppendStep(random, id, 0, 1, &kv)}));
  });
  EXPECT_THAT(reader.NextLine(), ContainsRegex("^level=error event=stall seconds=[0-9.]+$"));
  {
    const std::lock_guard lock(mutex);
    goes_on = true;
  }
  change.notify_all();
  EXPECT_EQ(reader.NextLine(), "level=info event=recovery");
  caller.join();
}

}  // namespace
}  // namespace attn::test
