// Commit or roll back.
#include "server/core/settle.h"

namespace attn::server {
namespace {

void CountLaunch(const Launch& launch, EngineStats& stats) {
  stats.launches.Add(1);
  if (!launch.outcome.ok()) stats.failed_launches.Add(1);
  stats.launch_items.Observe(launch.num_items);
  stats.launch_layers.Observe(launch.num_layers);
  stats.launch_clients.Observe(launch.num_clients);
  stats.launched_q_rows.Add(launch.num_q_rows);
  stats.launched_callers.Add(launch.num_calls);
  if (launch.num_clients > 1 && launch.num_layers > 1) {
    stats.multi_client_multi_layer_launches.Add(1);
  }
  stats.page_copies.Add(launch.batch.copies.size());
}

// Adds the launch to the call's times, once however many items of it are in the launch.
void NoteTime(const Launch& launch, PendingCall& call) {
  if (call.last_timed == launch.number) return;
  call.last_timed = launch.number;
  Timing& timing = call.result->timing;
  if (!call.has_started) timing.queue = launch.began - call.call->arrival;
  call.has_started = true;
  timing.compute += launch.ended - launch.began;
  timing.launch_items = launch.num_items;
  timing.launch_q_rows = launch.num_q_rows;
}

// The keys of the chunk are written; with the last of them the append stands.
void SettleAppend(const DueChunk& chunk, EngineStats& stats) {
  AttendWork& work = *chunk.work;
  if (work.reservation.replayed()) {
    if (chunk.key_begin == 0) stats.replayed_items.Add(1);
  } else if (chunk.key_end == work.item->kv_new_len) {
    stats.appended_tokens.Add(work.item->kv_new_len);
    work.reservation.Commit();
  }
}

}  // namespace

void Settle(std::vector<Placed>& placed, std::span<Launch> launches, AttendLine& line,
            EngineStats& stats) {
  for (const Launch& launch : launches) {
    CountLaunch(launch, stats);
    if (launch.outcome.ok()) launch.store->moves.clear();
  }
  for (size_t i = 0; i < placed.size(); ++i) {
    AttendWork& work = *placed[i].chunk.work;
    if (work.settled) continue;
    const Launch& launch = launches[placed[i].launch];
    NoteTime(launch, *work.call);
    if (!launch.outcome.ok()) {
      line.Fail(work, launch.outcome);
      continue;
    }
    if (placed[i].chunk.has_keys()) SettleAppend(placed[i].chunk, stats);
    if (work.lane == Lane::kBulk) stats.prefill_chunks.Add(1);
    const bool is_last = i + 1 == placed.size() || placed[i + 1].chunk.work != &work;
    if (is_last && work.IsTaken()) line.Done(work);
  }
  placed.clear();
}

}  // namespace attn::server
