// The thread and its turn. The order of the stages is in Step; what they do is in their files.
#include "server/core/engine.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "attn/base/check.h"
#include "attn/base/error.h"
#include "server/core/answers.h"
#include "server/core/attend_line.h"
#include "server/core/attend_time.h"
#include "server/core/batcher.h"
#include "server/core/cost_model.h"
#include "server/core/gather_rule.h"
#include "server/core/lifecycle.h"
#include "server/core/model_table.h"
#include "server/core/placement.h"
#include "server/core/sequence_order.h"
#include "server/core/sequence_traits.h"
#include "server/core/settle.h"
#include "server/core/staging.h"

namespace attn::server {
namespace {

// While there is work: how often late calls, leases and figures for others are looked at. Late
// calls are answered after this and one chunk.
constexpr Nanos kHousekeeping = 5 * kMillisecond;

using Calls = std::vector<std::unique_ptr<Call>>;

CallQueueLimits QueueLimitsOf(const EngineOptions& options) {
  CallQueueLimits limits = options.queue;
  limits.chunk_time = options.chunk_time;
  return limits;
}

}  // namespace

class Engine::Loop {
 public:
  Loop(const EngineOptions& options, std::unique_ptr<Backend> backend, ModelRegistry* registry,
       const Clock* clock, EngineObserver* observer);

  void Start();
  void Stop();
  absl::Status Submit(std::unique_ptr<Call> call);
  bool StepByHand();

  const EngineOptions options;
  CallQueue queue;
  EngineStats stats;
  const std::unique_ptr<Backend> backend;
  const std::string device_name;

  kvcache::CacheStats cache_stats() const;
  absl::Status device_error() const;
  kvcache::KvCache& cache() { return cache_; }

 private:
  void Run();
  void Step(Calls calls);
  bool HasWork() const { return line_.num_calls() > 0 || lifecycle_.num_waiting() > 0; }

  Calls TakeCalls();
  Nanos NextWake();
  void Gather(Calls& calls);
  void Admit(Calls calls);
  void RunFree();
  void Execute(std::span<Launch> launches);
  void Start(Launch& launch);
  void End(Launch& launch, Nanos since);
  void EndStep(const std::vector<Placed>& placed, std::span<const Launch> launches, Nanos began);
  void Housekeep(Nanos now);
  void LoseDevice(const absl::Status& status);
  void FinishDraining();
  void PublishCacheStats();

  const Clock& clock_;
  EngineObserver silent_;
  EngineObserver& observer_;
  ModelTable models_;
  kvcache::KvCache cache_;
  SequenceOrder order_;
  SequenceTraits traits_;
  CostModel costs_;
  Batcher batcher_;
  GatherRule gather_;
  Answers answers_;
  AttendLine line_;
  Lifecycle lifecycle_;
  Placement placement_;
  Staging staging_;
  Nanos next_housekeeping_ = 0;

  std::thread thread_;
  std::atomic<bool> stopping_{false};
  bool stopped_ = false;
  mutable std::mutex mutex_;  // leaf: the figures below, for other threads
  kvcache::CacheStats cache_stats_;
  absl::Status device_error_;
};

Engine::Loop::Loop(const EngineOptions& engine_options, std::unique_ptr<Backend> engine_backend,
                   ModelRegistry* registry, const Clock* clock, EngineObserver* observer)
    : options(engine_options),
      queue(QueueLimitsOf(options)),
      backend(std::move(engine_backend)),
      device_name(backend->device_name()),
      clock_(*clock),
      observer_(observer == nullptr ? silent_ : *observer),
      models_(backend.get(), registry),
      cache_({.budget_bytes = options.kv_bytes,
              .max_sequences = options.max_sequences,
              .max_sequence_len = options.max_sequence_len,
              .remembered_appends = options.remembered_appends,
              .backing = &models_}),
      costs_(backend.get()),
      batcher_({.chunk_time = options.chunk_time, .max_launch_items = options.max_launch_items},
               &costs_),
      gather_(options.max_batch_wait),
      answers_(clock, &queue, &stats),
      line_({.clock = clock,
             .cache = &cache_,
             .models = &models_,
             .order = &order_,
             .traits = &traits_,
             .batcher = &batcher_,
             .answers = &answers_,
             .stats = &stats}),
      lifecycle_({.clock = clock,
                  .cache = &cache_,
                  .models = &models_,
                  .order = &order_,
                  .traits = &traits_,
                  .answers = &answers_,
                  .stats = &stats,
                  .observer = &observer_,
                  .max_sequences = options.max_sequences}),
      placement_(&cache_, &line_),
      staging_(&cache_) {
  models_.SetCache(&cache_);
  PublishCacheStats();
}

// One turn. Each line is a stage of docs/architecture.md; the value on the left is all that the
// next one may use.
void Engine::Loop::Step(Calls calls) {
  const Nanos began = clock_.Now();
  Admit(std::move(calls));  // puts calls in line, drops late ones
  RunFree();                // lifecycle calls act, items become ready
  answers_.Flush();
  const std::vector<DueChunk>& due = batcher_.TakeDue(clock_.Now());
  std::vector<Placed>& placed = placement_.Place(due, clock_.Now());
  const std::span<Launch> launches = staging_.Build(placed);
  Execute(launches);
  EndStep(placed, launches, began);
  Settle(placed, launches, line_, stats);
  RunFree();
  answers_.Flush();
  line_.Reap();
}

void Engine::Loop::Run() {
  while (!stopping_.load(std::memory_order_acquire)) Step(TakeCalls());
  FinishDraining();
}

bool Engine::Loop::StepByHand() {
  ATTN_CHECK(!thread_.joinable(), "the engine's thread is running");
  Calls calls = queue.WaitForCalls(0);
  const bool any = !calls.empty() || HasWork();
  Step(std::move(calls));
  if (!HasWork()) PublishCacheStats();
  return any;
}

Calls Engine::Loop::TakeCalls() {
  // Work that was put in line by the last step is not kept waiting for more.
  Calls calls = queue.WaitForCalls(HasWork() ? 0 : NextWake());
  if (calls.empty() && !HasWork()) Housekeep(clock_.Now());
  Gather(calls);
  return calls;
}

// When an idle engine has something to do by itself, by the real clock.
Nanos Engine::Loop::NextWake() {
  PublishCacheStats();
  const Nanos expiry = cache_.NextExpiry();
  if (expiry == kNever) return kNever;
  // Not at once again when the lease cannot end yet.
  return Clock::Real().Now() + std::max(expiry - clock_.Now(), kMillisecond);
}

void Engine::Loop::Gather(Calls& calls) {
  if (calls.empty() || batcher_.has_bulk()) return;
  const Nanos now = clock_.Now();
  const Nanos since = std::min(batcher_.OldestReady(now), calls.front()->arrival);
  const size_t num_calls = line_.num_calls() + calls.size();
  const std::optional<GatherRule::Wait> wait = gather_.WaitFor(num_calls, since, now);
  if (!wait.has_value()) return;
  Calls more = queue.WaitForMoreCalls(wait->num_calls - num_calls,
                                      Clock::Real().Now() + (wait->until - now));
  std::move(more.begin(), more.end(), std::back_inserter(calls));
}

void Engine::Loop::Admit(Calls calls) {
  const Nanos now = clock_.Now();
  if (now >= next_housekeeping_) Housekeep(now);
  for (std::unique_ptr<Call>& call : calls) {
    const bool is_attend = std::holds_alternative<AttendCall>(call->request);
    const bool needs_device = is_attend || std::holds_alternative<OpenCall>(call->request) ||
                              std::holds_alternative<ForkCall>(call->request) ||
                              std::holds_alternative<DeclareModelCall>(call->request);
    if (needs_device && !device_error_.ok()) {
      lifecycle_.Refuse(std::move(call), device_error_);
    } else if (is_attend) {
      line_.Add(std::move(call));
    } else {
      lifecycle_.Add(std::move(call));
    }
  }
}

void Engine::Loop::RunFree() {
  while (SequenceOrder::Entry* entry = order_.NextFree()) {
    if (entry->work() != nullptr) {
      line_.Begin(*entry->work());
    } else {
      lifecycle_.Run(*entry->operation());
    }
  }
}

// A device that works in the background gets all launches of the step at once: it computes one
// while the next is sent.
void Engine::Loop::Execute(std::span<Launch> launches) {
  for (Launch& launch : launches) Start(launch);
  Nanos free_since = 0;  // of the device
  for (Launch& launch : launches) {
    if (launch.ticket.has_value()) {
      launch.outcome = backend->Wait(*launch.ticket);
      launch.ticket.reset();
      End(launch, std::max(launch.began, free_since));
    }
    free_since = launch.ended;
  }
}

void Engine::Loop::Start(Launch& launch) {
  launch.began = clock_.Now();
  launch.outcome = absl::OkStatus();
  const Batch& batch = launch.batch;
  if (!batch.copies.empty() || !batch.appends.empty() || !batch.rows.empty()) {
    const absl::StatusOr<Ticket> ticket = backend->Launch(*launch.store->kv, batch);
    if (ticket.ok() && !ticket->is_done) {
      launch.ticket = *ticket;
      return;
    }
    launch.outcome = ticket.ok() ? backend->Wait(*ticket) : ticket.status();
  }
  End(launch, launch.began);
}

// `since`: when the device could begin with it.
void Engine::Loop::End(Launch& launch, Nanos since) {
  launch.ended = clock_.Now();
  const Nanos elapsed = launch.ended - since;
  stats.launch_time.Observe(static_cast<uint64_t>(elapsed));
  if (launch.outcome.ok()) {
    costs_.Observe(launch.units, elapsed);
  } else if (ReasonOf(launch.outcome) == Reason::kDeviceLost) {
    LoseDevice(launch.outcome);
  }
}

// Figures of the step, and what the gather rule learns from it.
void Engine::Loop::EndStep(const std::vector<Placed>& placed, std::span<const Launch> launches,
                           Nanos began) {
  const Nanos now = clock_.Now();
  const Nanos in_launches = launches.empty() ? 0 : launches.back().ended - launches.front().began;
  if (!placed.empty()) gather_.Launched(placement_.num_calls(), now);
  stats.steps.Add(1);
  stats.longest_step_ns.Max(static_cast<uint64_t>(now - began));
  if (!placed.empty()) stats.schedule_ns.Add(static_cast<uint64_t>(now - began - in_launches));
}

void Engine::Loop::Housekeep(Nanos now) {
  next_housekeeping_ = now + kHousekeeping;
  line_.DropLate(now);
  lifecycle_.DropLate(now);
  lifecycle_.Expire(now);
  if (HasWork()) PublishCacheStats();
}

void Engine::Loop::LoseDevice(const absl::Status& status) {
  bool is_first = false;
  {
    std::lock_guard lock(mutex_);
    is_first = device_error_.ok();
    device_error_ = status;
  }
  line_.SetDeviceError(status);
  if (is_first) observer_.DeviceLost(status);
}

void Engine::Loop::FinishDraining() {
  const Nanos end = clock_.Now() + options.drain_grace;
  Step(queue.WaitForCalls(0));
  while (HasWork() && clock_.Now() < end) Step({});
  const absl::Status draining = MakeError(Reason::kDraining, "", "the server stopped");
  line_.FailAll(draining);
  lifecycle_.FailAll(draining);
  RunFree();
  answers_.Flush();
  line_.Reap();
  PublishCacheStats();
}

void Engine::Loop::Start() {
  ATTN_CHECK(!thread_.joinable() && !stopped_, "an engine starts once");
  thread_ = std::thread([this] { Run(); });
}

void Engine::Loop::Stop() {
  if (std::exchange(stopped_, true)) return;
  queue.Close();
  stopping_.store(true, std::memory_order_release);
  queue.Poke();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    FinishDraining();
  }
}

absl::Status Engine::Loop::Submit(std::unique_ptr<Call> call) {
  if (const auto* attend = std::get_if<AttendCall>(&call->request)) {
    call->time = TimeOf(*attend, costs_);
  }
  return queue.Push(std::move(call));
}

void Engine::Loop::PublishCacheStats() {
  const kvcache::CacheStats now = cache_.Stats();
  std::lock_guard lock(mutex_);
  cache_stats_ = now;
}

kvcache::CacheStats Engine::Loop::cache_stats() const {
  std::lock_guard lock(mutex_);
  return cache_stats_;
}

absl::Status Engine::Loop::device_error() const {
  std::lock_guard lock(mutex_);
  return device_error_;
}

Engine::Engine(const EngineOptions& options, std::unique_ptr<Backend> backend,
               ModelRegistry* registry, const Clock* clock, EngineObserver* observer)
    : loop_(std::make_unique<Loop>(options, std::move(backend), registry, clock, observer)) {}

Engine::~Engine() { Stop(); }

void Engine::Start() { loop_->Start(); }
void Engine::Stop() { loop_->Stop(); }
absl::Status Engine::Submit(std::unique_ptr<Call> call) { return loop_->Submit(std::move(call)); }
CallQueue& Engine::queue() { return loop_->queue; }
const CallQueue& Engine::queue() const { return loop_->queue; }
const EngineStats& Engine::stats() const { return loop_->stats; }
const EngineOptions& Engine::options() const { return loop_->options; }
kvcache::CacheStats Engine::cache_stats() const { return loop_->cache_stats(); }
std::string Engine::device_name() const { return loop_->device_name; }
uint64_t Engine::heartbeat() const { return loop_->stats.steps.value(); }
bool Engine::StepByHand() { return loop_->StepByHand(); }
kvcache::CacheStats Engine::CloseAllSequences() {
  loop_->cache().Expire(kNever);
  return loop_->cache().Stats();
}
absl::Status Engine::CheckAccounts() const { return loop_->cache().CheckInvariants(); }
absl::Status Engine::device_error() const { return loop_->device_error(); }
kvcache::KvCache& Engine::cache_for_test() { return loop_->cache(); }

absl::Status Engine::Supports(const AttentionSpec& spec) const {
  if (absl::Status lost = loop_->device_error(); !lost.ok()) return lost;
  return loop_->backend->Supports(spec);
}

}  // namespace attn::server
