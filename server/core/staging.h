// Placed chunks become launches: one per layer group, items of all clients, sequences and layers
// of the group together. The launches and what they point to are kept from step to step, so that a
// warm engine allocates nothing here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "attn/attention/backend.h"
#include "attn/attention/batch.h"
#include "attn/kvcache/kv_cache.h"
#include "server/core/placement.h"
#include "server/core/stats.h"

namespace attn::server {

struct Launch {
  GroupStore* store = nullptr;
  Batch batch;
  LaunchUnits units;
  uint64_t number = 0;  // counts launches of the engine, from 1
  uint32_t num_items = 0;
  uint32_t num_q_rows = 0;
  uint32_t num_layers = 0;       // distinct
  uint32_t num_calls = 0;        // distinct
  uint32_t num_clients = 0;      // distinct streams; a unary call is one
  std::optional<Ticket> ticket;  // while the device works on it
  Nanos began = 0;
  Nanos ended = 0;
  absl::Status outcome;
};

// Engine thread only.
class Staging {
 public:
  explicit Staging(const kvcache::KvCache* cache) : cache_(cache) {}

  // REQUIRES: every chunk of the step is placed, because page tables move when a sequence grows.
  // Valid until the next call, and as long as no sequence changes.
  std::span<Launch> Build(std::vector<Placed>& placed);

 private:
  Launch& LaunchOf(GroupStore& store);
  void AddChunk(Launch& launch, const Placed& placed);
  void Count(Launch& launch, const AttendWork& work);

  const kvcache::KvCache* cache_;
  std::vector<Launch> launches_;
  size_t num_active_ = 0;
  uint64_t num_launches_ = 0;
};

}  // namespace attn::server
