// What grpc.health.v1 answers: "" for the process, "attn.v1.Attention" for the data path, and
// "attn.model.NAME" for each model.
#pragma once

#include <grpcpp/health_check_service_interface.h>

#include <mutex>
#include <set>
#include <string>

namespace attn::server {

// Any thread. Before Attach nothing is published, only remembered.
class HealthBoard {
 public:
  // `service` belongs to the gRPC server and outlives the board's use.
  void Attach(grpc::HealthCheckServiceInterface* service);
  // Everything to NOT_SERVING, for good.
  void Drain();
  // Whether that is news.
  bool SetDataPath(bool serving);
  // Whether the data path is SERVING.
  bool serving() const;
  void AddModel(const std::string& name);
  void RemoveModel(const std::string& name);

 private:
  void Publish(const std::string& name, bool serving);  // REQUIRES: mutex_

  mutable std::mutex mutex_;
  grpc::HealthCheckServiceInterface* service_ = nullptr;
  bool draining_ = false;
  bool data_path_ = true;
  std::set<std::string> models_;
};

}  // namespace attn::server
