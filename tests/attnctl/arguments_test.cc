#include "tools/attnctl/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attn::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Complaint(const std::vector<std::string>& words) {
  const auto arguments = ParseArguments(words);
  EXPECT_FALSE(arguments.ok());
  return std::string(arguments.status().message());
}

TEST(ArgumentsTest, FlagsAndTheWordAreRead) {
  const auto arguments =
      ParseArguments({"sequences", "--address=unix:/x=y", "--owner=a b", "--model=m",
                      "--limit=1000000", "--timeout-ms=1", "--json"});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_EQ(arguments->verb, "sequences");
  EXPECT_EQ(arguments->address, "unix:/x=y");
  EXPECT_EQ(arguments->owner, "a b");
  EXPECT_EQ(arguments->model, "m");
  EXPECT_EQ(arguments->limit, 1'000'000u);
  EXPECT_EQ(arguments->timeout, std::chrono::milliseconds(1));
  EXPECT_TRUE(arguments->json);
  const auto model = ParseArguments({"model", "--json", "gemma"});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->name, "gemma");
}

TEST(ArgumentsTest, WhatIsAtFaultIsNamed) {
  EXPECT_THAT(Complaint({"tops"}), AllOf(HasSubstr("tops"), HasSubstr("top, health")));
  EXPECT_THAT(Complaint({"--json"}), HasSubstr("--json"));
  EXPECT_THAT(Complaint({"stats", "--interval-ms=5"}), HasSubstr("--interval-ms"));
  EXPECT_THAT(Complaint({"stats", "more"}), HasSubstr("more"));
  EXPECT_THAT(Complaint({"model"}), HasSubstr("NAME"));
  EXPECT_THAT(Complaint({"model", "a", "b"}), HasSubstr("b"));
  EXPECT_THAT(Complaint({"stats", "--json=yes"}), HasSubstr("takes no value"));
  EXPECT_THAT(Complaint({"stats", "--address"}), HasSubstr("--address=HOST:PORT"));
}

TEST(ArgumentsTest, NumbersHaveLimits) {
  for (const char* value : {"0", "99", "3600001", "-1", "", "1s", "1e3", "99999999999999999999"}) {
    EXPECT_THAT(Complaint({"top", std::string("--interval-ms=") + value}),
                AllOf(HasSubstr("--interval-ms"), HasSubstr("100 to 3600000")))
        << value;
  }
  EXPECT_TRUE(ParseArguments({"top", "--interval-ms=100"}).ok());
  EXPECT_TRUE(ParseArguments({"top", "--count=0"}).ok());
}

TEST(ArgumentsTest, HelpNamesEveryCommandAndOnlyTheFlagsOfTheOneAskedFor) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{}, {"--help"}, {"help"}, {"model", "--help"}}) {
    const auto arguments = ParseArguments(words);
    ASSERT_TRUE(arguments.ok()) << arguments.status();
    EXPECT_TRUE(arguments->help);
  }
  for (const char* verb : {"info", "models", "model NAME", "sequences", "stats", "top", "health"}) {
    EXPECT_THAT(HelpOf(""), HasSubstr(verb));
  }
  EXPECT_THAT(HelpOf("top"), AllOf(HasSubstr("--interval-ms=N"), Not(HasSubstr("--owner"))));
}

}  // namespace
}  // namespace attn::ctl
