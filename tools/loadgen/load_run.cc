#include "tools/loadgen/load_run.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/base/status_macros.h"
#include "attn/client/client.h"
#include "tools/loadgen/arrival_plan.h"
#include "tools/loadgen/engine_walker.h"
#include "tools/loadgen/progress.h"

namespace attn::loadgen {
namespace {

constexpr uint32_t kLeaseMs = 30'000;

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The calling thread's sends must not wait for threads that compute. Where a process may not do
// that, nothing changes.
void RaisePriority() { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -10); }

// One imitated engine with its connection and thread.
struct Engine {
  std::unique_ptr<client::Client> client;
  std::unique_ptr<client::LeaseKeeper> lease;
  std::unique_ptr<EngineWalker> walker;
  std::thread thread;
};

absl::StatusOr<std::vector<Engine>> MakeEngines(const Options& options, RunShared* shared) {
  std::vector<Engine> engines(options.clients);
  std::random_device random;
  for (size_t i = 0; i < engines.size(); ++i) {
    Engine& engine = engines[i];
    ATTN_ASSIGN_OR_RETURN(engine.client, client::Client::Connect(options.target));
    ATTN_RETURN_IF_ERROR(engine.client->DeclareModel(shared->model->spec).status());
    const std::string owner = absl::StrCat("loadgen-", getpid(), "-", random(), "-", i);
    const client::Limits limits = engine.client->info().limits;
    const uint32_t most = limits.max_lease_ms == 0 ? kLeaseMs : limits.max_lease_ms;
    engine.lease = engine.client->KeepLease(
        owner, std::clamp(kLeaseMs, std::min(limits.min_lease_ms, most), most));
    engine.walker = std::make_unique<EngineWalker>(engine.client.get(), owner, shared);
  }
  return engines;
}

// Hands each request to its engine at its time, round robin.
void Release(const std::vector<TraceRequest>& plan, Nanos start, SendLedger* ledger,
             std::vector<Engine>* engines) {
  RaisePriority();
  prctl(PR_SET_TIMERSLACK, 1);  // wake when asked, not some 50 µs later
  for (size_t i = 0; i < plan.size(); ++i) {
    const Nanos intended = start + plan[i].arrival;
    const Nanos wait = intended - Clock::Real().Now();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
    (*engines)[i % engines->size()].walker->Submit(i, plan[i], intended);
    ledger->Note(intended, Clock::Real().Now());
  }
  for (Engine& engine : *engines) engine.walker->Finish();
}

// Sequences of this run that the server still knows.
absl::StatusOr<uint64_t> CountLeft(client::Client& client, const std::vector<SequenceId>& opened) {
  const uint32_t limit = client.info().limits.max_items_per_request;
  const size_t batch = limit == 0 ? 1024 : std::min(limit, 1024u);
  uint64_t left = 0;
  for (size_t begin = 0; begin < opened.size(); begin += batch) {
    const size_t end = std::min(opened.size(), begin + batch);
    const std::vector<SequenceId> ids(opened.begin() + static_cast<ptrdiff_t>(begin),
                                      opened.begin() + static_cast<ptrdiff_t>(end));
    ATTN_ASSIGN_OR_RETURN(const auto infos, client.Describe(ids));
    left += static_cast<uint64_t>(
        std::count_if(infos.begin(), infos.end(), [](const auto& info) { return info.ok(); }));
  }
  return left;
}

void RunEngines(const std::vector<TraceRequest>& plan, RunShared* shared,
                std::vector<Engine>* engines) {
  for (Engine& engine : *engines) {
    engine.thread = std::thread([&walker = *engine.walker] {
      RaisePriority();
      walker.Run();
    });
  }
  const Nanos start = Clock::Real().Now() + 10 * kMillisecond;
  std::thread releaser([&] { Release(plan, start, shared->ledger, engines); });
  {
    const Progress progress(plan.size(), shared);
    for (Engine& engine : *engines) engine.thread.join();
  }
  releaser.join();
}

void VerifyRows(Verifier* verifier, RunReport* report) {
  const Nanos start = Clock::Real().Now();
  report->verify = verifier->Check(static_cast<int>(std::thread::hardware_concurrency()));
  report->verify_seconds = static_cast<double>(Clock::Real().Now() - start) / kSecond;
}

}  // namespace

absl::StatusOr<RunReport> RunLoad(const Options& options) {
  ATTN_ASSIGN_OR_RETURN(const std::vector<TraceRequest> plan, MakePlan(options));
  const ModelPlan model = PlanModel(options);
  const TensorSource source(options.seed, options.dtype);
  Verifier verifier(&model, &source);
  BitFlipper flipper;
  SendLedger ledger;
  RunShared shared;
  shared.options = &options;
  shared.model = &model;
  shared.source = &source;
  shared.verifier = &verifier;
  shared.flipper = options.inject_bitflip ? &flipper : nullptr;
  shared.ledger = &ledger;
  ATTN_ASSIGN_OR_RETURN(std::vector<Engine> engines, MakeEngines(options, &shared));

  RunReport report;
  report.device = engines[0].client->info().device;
  const Nanos start = Clock::Real().Now();
  const double cpu_start = CpuSeconds();
  RunEngines(plan, &shared, &engines);
  report.seconds = static_cast<double>(Clock::Real().Now() - start) / kSecond;
  report.cpu_seconds = CpuSeconds() - cpu_start;
  for (const Engine& engine : engines) {
    report.stats.Add(engine.walker->stats());
    report.sequences_opened += engine.walker->opened().size();
    ATTN_ASSIGN_OR_RETURN(const uint64_t left, CountLeft(*engine.client, engine.walker->opened()));
    report.sequences_left += left;
  }
  report.stats.max_active = shared.max_active.load();
  report.sends = ledger.sends();
  report.late_sends = ledger.late();
  report.late_share = ledger.late_share();
  report.on_time = ledger.is_valid();
  report.send_delay_p99_ms = ledger.delays_ms().Percentile(99);
  report.flipped = flipper.is_done();
  if (options.verify > 0) VerifyRows(&verifier, &report);
  return report;
}

Verdict Judge(const Options& options, const RunReport& report, std::string* why) {
  if (report.stats.requests_failed > 0) {
    *why = absl::StrCat(report.stats.requests_failed,
                        " requests failed, the first with: ", report.stats.first_failure);
    return Verdict::kFailed;
  }
  if (report.verify.mismatches > 0) {
    *why = absl::StrCat(report.verify.mismatches, " of ", report.verify.rows,
                        " verified rows are wrong, the first at ", report.verify.first_mismatch);
    return Verdict::kFailed;
  }
  if (options.verify > 0 && report.verify.rows == 0) {
    *why = "verification was asked for, and no row was sampled";
    return Verdict::kFailed;
  }
  if (options.inject_bitflip && !report.flipped) {
    *why = "a flipped bit was asked for, and no sampled row came by to get it";
    return Verdict::kFailed;
  }
  if (report.sequences_left > 0) {
    *why = absl::StrCat(report.sequences_left, " sequences are still open after the run");
    return Verdict::kFailed;
  }
  if (!report.on_time && !options.allow_late) {
    *why = absl::StrCat(report.late_sends, " of ", report.sends,
                        " sends left more than 1 ms late: this run measured the load generator");
    return Verdict::kInvalid;
  }
  return Verdict::kGood;
}

}  // namespace attn::loadgen
