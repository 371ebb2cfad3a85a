// Pointers and page lists for the backend.
#include "server/core/staging.h"

#include <utility>

#include "server/core/stream_scope.h"

namespace attn::server {
namespace {

PageList PagesOf(const kvcache::PageTable& table) {
  return {.chunks = table.chunks,
          .chunk_log2 = kvcache::kPagesPerChunkLog2,
          .num_pages = table.num_pages};
}

AppendEntry AppendOf(const Placed& placed, const PageList& pages) {
  const AttendWork& work = *placed.chunk.work;
  const AttendCall& request = *work.call->request;
  const int64_t size = static_cast<int64_t>(SizeOf(request.activation_dtype));
  const int64_t row = (work.item->kv_row + placed.chunk.key_begin) * request.num_kv_heads * size;
  AppendEntry entry;
  entry.k = request.k_data() + row * request.head_dim_qk;
  entry.v = request.v_data() + row * request.head_dim_v;
  entry.pages = pages;
  entry.layer = work.layer;
  entry.begin = work.reservation.begin() + placed.chunk.key_begin;
  entry.count = placed.chunk.key_end - placed.chunk.key_begin;
  return entry;
}

AttendEntry RowsOf(const DueChunk& chunk, const PageList& pages) {
  const AttendWork& work = *chunk.work;
  const AttendCall& request = *work.call->request;
  const int64_t row = (work.item->q_row + chunk.row_begin) * request.num_q_heads;
  const auto in_size = static_cast<int64_t>(SizeOf(request.activation_dtype));
  const auto out_size = static_cast<int64_t>(SizeOf(request.out_dtype));
  AttendEntry entry = ShapeOf(work, chunk);
  entry.q = request.q_data() + row * request.head_dim_qk * in_size;
  entry.out = work.call->out + row * request.head_dim_v * out_size;
  if (request.return_lse) entry.lse = work.call->lse + row;
  entry.pages = pages;
  entry.out_dtype = request.out_dtype;
  return entry;
}

}  // namespace

std::span<Launch> Staging::Build(std::vector<Placed>& placed) {
  num_active_ = 0;
  for (Placed& chunk : placed) {
    Launch& launch = LaunchOf(*chunk.chunk.work->store);
    chunk.launch = launch.store->launch_index;
    AddChunk(launch, chunk);
  }
  for (size_t i = 0; i < num_active_; ++i) launches_[i].store->launch_index = GroupStore::kIdle;
  return std::span(launches_).first(num_active_);
}

Launch& Staging::LaunchOf(GroupStore& store) {
  if (store.launch_index != GroupStore::kIdle) return launches_[store.launch_index];
  store.launch_index = num_active_++;
  if (launches_.size() < num_active_) launches_.emplace_back();
  Launch& launch = launches_[store.launch_index];
  Batch batch = std::move(launch.batch);
  batch.copies.clear();
  batch.appends.clear();
  batch.rows.clear();
  launch = Launch();
  launch.store = &store;
  launch.batch = std::move(batch);
  launch.number = ++num_launches_;
  for (const kvcache::PageMove& move : store.moves) {
    launch.batch.copies.push_back({move.source, move.target, move.slots_per_layer.data()});
  }
  return launch;
}

void Staging::AddChunk(Launch& launch, const Placed& placed) {
  const AttendWork& work = *placed.chunk.work;
  const PageList pages = PagesOf(cache_->TableOf(work.sequence, launch.store->group));
  if (placed.writes()) launch.batch.appends.push_back(AppendOf(placed, pages));
  if (placed.chunk.has_rows()) {
    launch.batch.rows.push_back(RowsOf(placed.chunk, pages));
  }
  (work.lane == Lane::kBulk ? launch.units.prefill : launch.units.decode) += placed.chunk.units;
  launch.units.append += placed.chunk.append_units;
  launch.num_q_rows += placed.chunk.row_end - placed.chunk.row_begin;
  ++launch.num_items;
  Count(launch, work);
}

// Each layer, call and client is marked with the last launch that has counted it.
void Staging::Count(Launch& launch, const AttendWork& work) {
  uint64_t& layer = launch.store->last_launch_of_layer[work.layer];
  if (layer != launch.number) ++launch.num_layers;
  layer = launch.number;

  PendingCall& call = *work.call;
  const bool is_new_call = call.last_launch != launch.number;
  call.last_launch = launch.number;
  if (is_new_call) ++launch.num_calls;

  StreamScope* const stream = call.call->stream.get();
  uint64_t* const client = stream == nullptr ? nullptr : &stream->last_launch;
  if (client == nullptr ? is_new_call : *client != launch.number) ++launch.num_clients;
  if (client != nullptr) *client = launch.number;
}

}  // namespace attn::server
