#include "server/rpc/health_board.h"

namespace attn::server {
namespace {

const char kDataPath[] = "attn.v1.Attention";
const char kModelPrefix[] = "attn.model.";

}  // namespace

void HealthBoard::Publish(const std::string& name, bool serving) {
  if (service_ != nullptr) service_->SetServingStatus(name, serving && !draining_);
}

void HealthBoard::Attach(grpc::HealthCheckServiceInterface* service) {
  const std::lock_guard lock(mutex_);
  service_ = service;
  Publish("", true);
  Publish(kDataPath, data_path_);
  for (const std::string& name : models_) Publish(kModelPrefix + name, true);
}

void HealthBoard::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  if (service_ != nullptr) service_->SetServingStatus(false);
}

bool HealthBoard::SetDataPath(bool serving) {
  const std::lock_guard lock(mutex_);
  if (data_path_ == serving) return false;
  data_path_ = serving;
  Publish(kDataPath, serving);
  return true;
}

bool HealthBoard::serving() const {
  const std::lock_guard lock(mutex_);
  return data_path_ && !draining_;
}

void HealthBoard::AddModel(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (models_.insert(name).second) Publish(kModelPrefix + name, true);
}

void HealthBoard::RemoveModel(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (models_.erase(name) > 0) Publish(kModelPrefix + name, false);
}

}  // namespace attn::server
