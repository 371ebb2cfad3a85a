// Flags: what they set, and what is refused by name.
#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attn/base/error.h"

namespace attn::test {
namespace {

using server::ParseServerOptions;
using ::testing::HasSubstr;

TEST(OptionsTest, FlagsSetWhatTheyName) {
  const auto options = ParseServerOptions({"--listen=unix:/tmp/x=y", "--kv-bytes=3G", "--threads=2",
                                           "--chunk-us=700", "--grace-ms=20",
                                           "--max-message-bytes=8M", "--backend=cuda", "--device=3",
                                           "--metrics-listen=[::1]:0", "--log-level=error"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen, "unix:/tmp/x=y");
  EXPECT_EQ(options->engine.kv_bytes, int64_t{3} << 30);
  EXPECT_EQ(options->num_threads, 2);
  EXPECT_EQ(options->backend, "cuda");
  EXPECT_EQ(options->device, 3);
  EXPECT_EQ(options->metrics_listen, "[::1]:0");
  EXPECT_EQ(options->log_level, "error");
  EXPECT_EQ(options->engine.chunk_time, 700 * kMicrosecond);
  EXPECT_EQ(options->grace, 20 * kMillisecond);
  EXPECT_EQ(options->limits.max_message_bytes, uint64_t{8} << 20);
}

TEST(OptionsTest, WhatCannotBeIsRefusedNamingTheFlag) {
  const auto field = [](const char* argument) {
    return FieldOf(ParseServerOptions({argument}).status());
  };
  EXPECT_EQ(field("--no-such-flag=1"), "--no-such-flag");
  EXPECT_EQ(field("--threads=-1"), "--threads");
  EXPECT_EQ(field("--threads=9999"), "--threads");
  EXPECT_EQ(field("--threads=1K"), "--threads");
  EXPECT_EQ(field("--kv-bytes="), "--kv-bytes");
  EXPECT_EQ(field("--kv-bytes=9999999999T"), "--kv-bytes");
  EXPECT_EQ(field("--backend=gpu"), "--backend");
  EXPECT_EQ(field("--device=-1"), "--device");
  EXPECT_EQ(field("--default-lease-ms=1"), "--default-lease-ms");
  EXPECT_EQ(field("--threads"), "--threads");
  EXPECT_EQ(field("--log-level=loud"), "--log-level");
  EXPECT_EQ(field("--admin=yes"), "--admin");
  EXPECT_EQ(field("--metrics-listen=9464"), "--metrics-listen");
  EXPECT_EQ(field("--metrics-listen=127.0.0.1:"), "--metrics-listen");
  EXPECT_EQ(field("--metrics-listen=127.0.0.1:65536"), "--metrics-listen");
  EXPECT_EQ(field("serve"), "serve");
}

TEST(OptionsTest, AdminIsForThisHostUnlessSaidOtherwise) {
  const auto offers = [](const std::vector<std::string>& flags) {
    return ParseServerOptions(flags).value().OffersAdmin();
  };
  for (const char* own : {"127.0.0.1:50051", "127.1.2.3:0", "localhost:1", "[::1]:1", "unix:/x"}) {
    EXPECT_TRUE(offers({std::string("--listen=") + own})) << own;
    EXPECT_FALSE(offers({std::string("--listen=") + own, "--admin=off"})) << own;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.127.0.0:1", "host127.0.0.1:1", "[::10]:1"}) {
    EXPECT_FALSE(offers({std::string("--listen=") + open})) << open;
    EXPECT_TRUE(offers({std::string("--listen=") + open, "--admin=on"})) << open;
  }
}

TEST(OptionsTest, EveryFlagHasALineOfHelpAndAPlaceInTheStartLine) {
  const std::string help = server::ServerHelp();
  const std::string line = server::ServerOptions().ToString();
  for (const char* flag : {"listen", "kv-bytes", "threads", "models", "chunk-us", "grace-ms"}) {
    EXPECT_THAT(help, HasSubstr(std::string("--") + flag));
    EXPECT_THAT(line, HasSubstr(std::string(flag) + "="));
  }
  EXPECT_THAT(line, HasSubstr("listen=127.0.0.1:50051"));
}

}  // namespace
}  // namespace attn::test
