// An error keeps its code, reason, field, message and hint on the wire.
#include "server/rpc/status_codec.h"

#include <gtest/gtest.h>

#include "attn/base/error.h"
#include "attn/v1/rpc_status.pb.h"

namespace attn::test {
namespace {

TEST(StatusCodecTest, EveryReasonTravelsWithItsCode) {
  for (int number = 2; number < v1::Reason_ARRAYSIZE; ++number) {
    const auto reason = static_cast<Reason>(number);
    SCOPED_TRACE(std::string(NameOf(reason)));
    EXPECT_EQ("REASON_" + std::string(NameOf(reason)),
              v1::Reason_Name(static_cast<v1::Reason>(number)));
    v1::Status out;
    server::EncodeStatus(MakeError(reason, "a.b[1]", "got 1, want 2", 30), &out);
    EXPECT_EQ(out.code(), static_cast<int>(CodeOf(reason)));
    EXPECT_EQ(out.reason(), number);
    EXPECT_EQ(out.field(), "a.b[1]");
    EXPECT_EQ(out.message(), "a.b[1]: got 1, want 2");
    EXPECT_EQ(out.retry_after_ms(), 30u);
  }
}

TEST(StatusCodecTest, AFailedRpcCarriesTheStatusInItsDetails) {
  const grpc::Status status = server::ToGrpcStatus(MakeError(Reason::kQueueFull, "", "busy", 20));
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "busy");
  v1::RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), grpc::RESOURCE_EXHAUSTED);
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/attn.v1.Status");
  v1::Status detail;
  ASSERT_TRUE(details.details(0).UnpackTo(&detail));
  EXPECT_EQ(detail.reason(), v1::REASON_QUEUE_FULL);
  EXPECT_EQ(detail.retry_after_ms(), 20u);
}

TEST(StatusCodecTest, OkStaysOk) { EXPECT_TRUE(server::ToGrpcStatus(absl::OkStatus()).ok()); }

}  // namespace
}  // namespace attn::test
