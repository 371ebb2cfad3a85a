// The models as the engine holds them: admission of a declaration, and for each layer group the
// place on the device where its K and V lie.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/attention/backend.h"
#include "attn/kvcache/kv_cache.h"
#include "server/core/call.h"
#include "server/core/model.h"
#include "server/core/model_registry.h"

namespace attn::server {

// One layer group of one model on the device.
struct GroupStore {
  uint32_t group = 0;
  AttentionSpec spec;
  kvcache::PoolGeometry geometry;
  std::unique_ptr<KvStore> kv;
  // Copies that the cache has asked for and no launch has done yet, in its order. They outlive a
  // failed launch: the cache counts on them whatever becomes of the append they came with.
  std::vector<kvcache::PageMove> moves;
  // The number of the launch in which each layer last took part.
  std::vector<uint64_t> last_launch_of_layer;  // [spec.num_layers]
  // Place in the step's list of launches; kIdle outside a step.
  static constexpr size_t kIdle = SIZE_MAX;
  size_t launch_index = kIdle;
};

// Engine thread only; the registry shows the same models to other threads.
class ModelTable : public kvcache::SlabBacking {
 public:
  // All outlive the table. The cache is set once it exists, because it needs the table as backing.
  ModelTable(Backend* backend, ModelRegistry* registry) : backend_(backend), registry_(registry) {}
  ~ModelTable() override;
  void SetCache(kvcache::KvCache* cache) { cache_ = cache; }

  // Idempotent for an equal definition; MODEL_EXISTS names the first field that differs.
  absl::StatusOr<DeclareModelResult> Declare(const ModelDefinition& definition);
  // UNKNOWN_MODEL, or MODEL_IN_USE while sequences of it are open.
  absl::Status Remove(const std::string& name);

  // Null if there is none.
  const Model* Find(ModelSlot slot) const;
  // REQUIRES: `model` is in the table.
  GroupStore& StoreOf(const Model& model, uint32_t group);

  absl::Status CommitSlab(ModelSlot model, uint32_t group, int32_t slab) override;
  void ReleaseSlab(ModelSlot model, uint32_t group, int32_t slab) override;

 private:
  struct Entry {
    ModelPtr model;
    std::vector<std::unique_ptr<GroupStore>> groups;
  };

  absl::Status CheckDefinition(const ModelDefinition& definition) const;
  absl::StatusOr<ModelSlot> FreeSlot();
  absl::Status Build(const ModelDefinition& definition, ModelSlot slot, Entry& entry);

  Backend* backend_;
  ModelRegistry* registry_;
  kvcache::KvCache* cache_ = nullptr;
  std::map<ModelSlot, Entry> entries_;
  uint16_t last_slot_ = 0;
};

// The path of the first field in which two definitions differ, "" if they are equal.
std::string FirstDifference(const ModelDefinition& a, const ModelDefinition& b);

}  // namespace attn::server
