// The calls of attnctl. An error says what to do; it names the server's address.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attn/v1/admin.grpc.pb.h"
#include "attn/v1/attention.grpc.pb.h"

namespace attn::ctl {

class ServerLink {
 public:
  // Connects with the first call.
  ServerLink(const std::string& address, std::chrono::milliseconds timeout);

  const std::string& address() const { return address_; }

  absl::StatusOr<v1::GetServerInfoResponse> Info();
  // All pages.
  absl::StatusOr<v1::ListModelsResponse> Models();
  absl::StatusOr<v1::GetModelResponse> Model(const std::string& name);
  // At most `limit`, from as many pages as that takes; the last one's token is kept.
  absl::StatusOr<v1::ListSequencesResponse> Sequences(v1::ListSequencesRequest request,
                                                      uint32_t limit);
  absl::StatusOr<v1::GetStatsResponse> Stats();
  // Of grpc.health.v1. NOT_FOUND for a service that the server does not know.
  absl::StatusOr<bool> IsServing(const std::string& service);

 private:
  // Calls a method of `Service`, &v1::Models::Stub::GetModel say, within the timeout.
  template <typename Service, typename Request, typename Response>
  absl::Status Ask(grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&,
                                                         Response*),
                   const Request& request, Response* response) const;
  void SetTimeout(grpc::ClientContext* context) const;
  absl::Status Explain(const grpc::Status& status) const;

  const std::string address_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace attn::ctl
