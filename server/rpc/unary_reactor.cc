#include "server/rpc/unary_reactor.h"

namespace attn::server {

Nanos DeadlineOf(const grpc::CallbackServerContext& rpc, const Clock& clock) {
  const std::chrono::system_clock::time_point deadline = rpc.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return kNever;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      deadline - std::chrono::system_clock::now());
  // A year ahead is as good as none, and keeps the sum in range.
  constexpr Nanos kYear = 365 * 24 * 3600 * kSecond;
  return left.count() > kYear ? kNever : clock.Now() + left.count();
}

}  // namespace attn::server
