// grpc.health.v1 by bytes, since Debian ships no message of it: one question, or a watch that
// remembers every answer. Field 1 of both messages is all there is; 1 is SERVING, 2 NOT_SERVING.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace attn::test {

inline constexpr int kServing = 1;
inline constexpr int kNotServing = 2;

// Health/Check of `service`; minus the status code if the call fails.
int HealthOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& service);

// Health/Watch in a thread of its own.
class HealthWatcher {
 public:
  HealthWatcher(std::shared_ptr<grpc::Channel> channel, const std::string& service);
  ~HealthWatcher();

  // Whether the service was told to be `status` before `patience` has passed.
  bool WaitFor(int status, std::chrono::milliseconds patience);
  // When `status` came, or the epoch if it has not.
  std::chrono::steady_clock::time_point Since(int status) const;

 private:
  void Watch(const std::string& service);

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int status_ = 0;
  std::chrono::steady_clock::time_point since_[4] = {};
  std::thread thread_;
};

}  // namespace attn::test
