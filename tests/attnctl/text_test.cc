#include "tools/attnctl/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attn::ctl {
namespace {

TEST(TextTest, NumbersHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(Bytes(0), "0");
  EXPECT_EQ(Bytes(1000), "1000");
  EXPECT_EQ(Bytes(1024), "1 KiB");
  EXPECT_EQ(Bytes(1536), "1.5 KiB");
  EXPECT_EQ(Bytes(std::pow(1024, 4) * 12.34), "12.3 TiB");
  EXPECT_EQ(Seconds(0), "0");
  EXPECT_EQ(Seconds(8.5e-5), "85 us");
  EXPECT_EQ(Seconds(0.9999e-3), "1 ms");
  EXPECT_EQ(Seconds(123.4), "123 s");
  EXPECT_EQ(Number(0.25), "0.25");
  EXPECT_EQ(Number(9999), "9999");
  EXPECT_EQ(Number(56789), "56.8k");
  EXPECT_EQ(Number(3.2e6), "3.2M");
  EXPECT_EQ(Number(999'999), "1M");
  EXPECT_EQ(Whole(999), "999");
  EXPECT_EQ(Whole(1234567), "1,234,567");
}

TEST(TextTest, TerminalsGetNoControlBytes) {
  EXPECT_EQ(Printable("a\x1b[31m\n\"b\""), "a\\033[31m\\n\\\"b\\\"");
  EXPECT_EQ(Printable("größe"), "größe");
}

TEST(TextTest, LinesAreCutByCodePoints) {
  EXPECT_EQ(Fit("größe", 5), "größe");
  EXPECT_EQ(Fit("größe", 4), "grö…");
  EXPECT_EQ(Fit("größe", 1), "…");
  EXPECT_EQ(Fit("größe", 0), "");
}

TEST(TextTest, BarsAreNeverWiderThanTheyMayBe) {
  EXPECT_EQ(Bar(0, 6), "[....]");
  EXPECT_EQ(Bar(0.5, 6), "[##..]");
  EXPECT_EQ(Bar(1, 6), "[####]");
  EXPECT_EQ(Bar(7, 6), "[####]");
  EXPECT_EQ(Bar(-1, 6), "[....]");
  EXPECT_EQ(Bar(NAN, 6), "[....]");
  EXPECT_EQ(Bar(1, 0), "[]");
}

TEST(TextTest, ColumnsAreAsWideAsTheirLongestEntry) {
  Table table({{"NAME"}, {"N", Table::Align::kRight}});
  EXPECT_EQ(table.ToString(), "NAME  N\n");
  table.Add({"größe", "7"});
  table.Add({"x", "1234"});
  EXPECT_EQ(table.ToString(),
            "NAME      N\n"
            "größe     7\n"
            "x      1234\n");
}

}  // namespace
}  // namespace attn::ctl
