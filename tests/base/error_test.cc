// Does an error carry its code, reason, field and retry hint through copies and annotations?
#include "attn/base/error.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace attn {
namespace {

constexpr int kLastReason = static_cast<int>(Reason::kModelInUse);

TEST(ErrorTest, MessageNamesTheFieldAndThePayloadsComeBack) {
  const absl::Status status =
      MakeError(Reason::kQueueFull, "items", "got 9, want at most 8", /*retry_after_ms=*/250);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "items: got 9, want at most 8");
  EXPECT_EQ(ReasonOf(status), Reason::kQueueFull);
  EXPECT_EQ(FieldOf(status), "items");
  EXPECT_EQ(RetryAfterMsOf(status), 250u);
}

TEST(ErrorTest, FieldAndRetryHintMayBeAbsent) {
  const absl::Status status = MakeError(Reason::kInternal, "", "lost a page");
  EXPECT_EQ(status.message(), "lost a page");
  EXPECT_EQ(FieldOf(status), "");
  EXPECT_EQ(RetryAfterMsOf(status), 0u);
  EXPECT_EQ(ReasonOf(status), Reason::kInternal);
}

TEST(ErrorTest, PayloadsSurviveACopy) {
  const absl::Status status = MakeError(Reason::kNoPages, "pages", "none left", 7);
  const absl::Status copy = status;
  EXPECT_EQ(ReasonOf(copy), Reason::kNoPages);
  EXPECT_EQ(FieldOf(copy), "pages");
  EXPECT_EQ(RetryAfterMsOf(copy), 7u);
}

TEST(ErrorTest, EveryReasonHasANameOfItsOwnAndACodeThatIsAnError) {
  std::set<std::string> names;
  for (int number = 0; number <= kLastReason; ++number) {
    const Reason reason = static_cast<Reason>(number);
    EXPECT_TRUE(names.insert(std::string(NameOf(reason))).second) << NameOf(reason);
    EXPECT_EQ(CodeOf(reason) == absl::StatusCode::kOk, reason == Reason::kOk) << number;
  }
}

TEST(ErrorTest, EveryReasonComesBackFromItsStatus) {
  for (int number = 2; number <= kLastReason; ++number) {
    const Reason reason = static_cast<Reason>(number);
    const absl::Status status = MakeError(reason, "field", "message");
    EXPECT_EQ(ReasonOf(status), reason);
    EXPECT_EQ(status.code(), CodeOf(reason));
  }
}

TEST(ErrorTest, CodesSayWhatACallerCanDo) {
  EXPECT_EQ(CodeOf(Reason::kInvalid), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Reason::kUnsupported), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CodeOf(Reason::kUnknownSequence), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(Reason::kLengthMismatch), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(Reason::kNoPages), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf(Reason::kDraining), absl::StatusCode::kUnavailable);
}

TEST(ErrorTest, AStatusWithoutPayloadGetsAReasonByItsCode) {
  EXPECT_EQ(ReasonOf(absl::OkStatus()), Reason::kOk);
  EXPECT_EQ(ReasonOf(absl::InvalidArgumentError("x")), Reason::kInvalid);
  EXPECT_EQ(ReasonOf(absl::UnimplementedError("x")), Reason::kUnsupported);
  EXPECT_EQ(ReasonOf(absl::CancelledError("x")), Reason::kCancelled);
  EXPECT_EQ(ReasonOf(absl::UnknownError("x")), Reason::kInternal);
  EXPECT_EQ(FieldOf(absl::InvalidArgumentError("x")), "");
}

TEST(ErrorDeathTest, AnErrorWithoutAnErrorEndsTheProcess) {
  EXPECT_DEATH(MakeError(Reason::kOk, "field", "fine"), "an error needs a reason");
}

}  // namespace
}  // namespace attn
