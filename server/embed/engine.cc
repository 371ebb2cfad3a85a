// The embedder's engine: checks at the border, the core's engine behind it, a driver between.
#include "attn/engine/engine.h"

#include <atomic>
#include <random>
#include <utility>
#include <variant>

#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/engine.h"
#include "server/core/model_registry.h"
#include "server/core/request_check.h"
#include "server/embed/convert.h"
#include "server/embed/driver.h"
#include "server/embed/options.h"

namespace attn::engine {
namespace {

using server::Call;

std::unique_ptr<Call> NewCall(server::Request request) {
  auto call = std::make_unique<Call>();
  call->request = std::move(request);
  call->arrival = Clock::Real().Now();
  return call;
}

template <typename Result>
absl::StatusOr<Result> TakeResult(absl::StatusOr<std::unique_ptr<Call>> call) {
  if (!call.ok()) return std::move(call).status();
  if (!(*call)->status.ok()) return std::move((*call)->status);
  return std::get<Result>(std::move((*call)->result));
}

// Takes one answer to the callback that waits for it. Owned by its call.
class CallbackSink : public server::CallSink {
 public:
  CallbackSink(const Driver* driver, Engine::AttendCallback done)
      : driver_(driver), done_(std::move(done)) {}

  void Complete(std::unique_ptr<Call> call) override {
    const Driver::CallbackScope scope(driver_);
    if (!call->status.ok()) return done_(std::move(call->status));
    done_(ResultOf(std::get<server::AttendResult>(std::move(call->result))));
  }

 private:
  const Driver* const driver_;
  const Engine::AttendCallback done_;
};

// So that tokens of appends that are never repeated meet none that the embedder makes.
uint64_t FirstToken() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

// Puts the outcomes of the sequences that got into the call where they belong among all.
template <typename Outcome>
std::vector<Outcome> Merge(std::vector<absl::Status> checked, std::vector<Outcome> outcomes) {
  std::vector<Outcome> all;
  auto next = outcomes.begin();
  for (absl::Status& status : checked) {
    if (status.ok()) {
      all.push_back(std::move(*next++));
    } else {
      all.push_back(std::move(status));
    }
  }
  return all;
}

// The sequences that passed.
std::vector<server::SequenceRef> RefsOf(absl::Span<const SequenceId> sequences,
                                        const std::vector<absl::Status>& checked) {
  std::vector<server::SequenceRef> refs;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (checked[i].ok()) refs.push_back({sequences[i].value});
  }
  return refs;
}

}  // namespace

struct Engine::Core {
  Core(const EngineOptions& options, std::unique_ptr<Backend> backend)
      : limits(LimitsOf(options)),
        last_token(FirstToken()),
        engine(CoreOptionsOf(options), std::move(backend), &registry),
        driver(&engine, options.drive == Drive::kOwnThread) {}

  Border border() { return {limits, registry, last_token}; }
  // The request's own kind of result, or why the call failed as a whole.
  template <typename Result>
  absl::StatusOr<Result> Run(server::Request request) {
    return TakeResult<Result>(driver.Run(NewCall(std::move(request))));
  }
  absl::StatusOr<std::unique_ptr<Call>> MakeAttendCall(const AttendRequest& request);

  const server::WireLimits limits;
  server::ModelRegistry registry;
  std::atomic<uint64_t> last_token;
  server::Engine engine;
  Driver driver;
};

absl::StatusOr<std::unique_ptr<Call>> Engine::Core::MakeAttendCall(const AttendRequest& request) {
  ATTN_ASSIGN_OR_RETURN(server::AttendCall attend, MakeAttend(request, border()));
  std::unique_ptr<Call> call = NewCall(std::move(attend));
  call->deadline = request.deadline;
  if (request.cancelled != nullptr) call->cancelled = request.cancelled;
  return call;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options,
                                                       std::unique_ptr<Backend> backend) {
  if (backend == nullptr) return MakeError(Reason::kInvalid, "backend", "got null, want a backend");
  ATTN_RETURN_IF_ERROR(CheckOptions(options, *backend));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Core>(options, std::move(backend))));
}

Engine::Engine(std::unique_ptr<Core> core) : core_(std::move(core)) {}

Engine::~Engine() { Stop(); }

// ---------------------------------------------------------------------------------------- models

absl::StatusOr<ModelInfo> Engine::DeclareModel(const ModelSpec& spec) {
  const auto supports = [this](const AttentionSpec& group) {
    return core_->engine.Supports(group);
  };
  ATTN_ASSIGN_OR_RETURN(server::DeclareModelCall call,
                        MakeDeclare(spec, core_->border(), supports));
  ATTN_ASSIGN_OR_RETURN(const server::DeclareModelResult result,
                        core_->Run<server::DeclareModelResult>(std::move(call)));
  return InfoOf(result);
}

absl::Status Engine::RemoveModel(const std::string& name) {
  if (core_->registry.FindByName(name) == nullptr) return server::UnknownModel("name", name);
  return core_->Run<server::RemoveModelResult>(server::RemoveModelCall{name}).status();
}

// ------------------------------------------------------------------------------------- sequences

absl::StatusOr<std::vector<absl::StatusOr<SequenceId>>> Engine::OpenSequences(
    const OpenRequest& request) {
  ATTN_ASSIGN_OR_RETURN(server::OpenCall call, MakeOpen(request, core_->border()));
  ATTN_ASSIGN_OR_RETURN(server::OpenResult result, core_->Run<server::OpenResult>(std::move(call)));
  return std::move(result.items);
}

absl::StatusOr<SequenceId> Engine::Open(const std::string& model, const std::string& owner) {
  ATTN_ASSIGN_OR_RETURN(const std::vector<absl::StatusOr<SequenceId>> opened,
                        OpenSequences({.model = model, .owner = owner}));
  return opened.front();
}

absl::StatusOr<std::vector<absl::StatusOr<std::vector<SequenceId>>>> Engine::Fork(
    absl::Span<const ForkItem> items) {
  ATTN_ASSIGN_OR_RETURN(server::ForkCall call, MakeFork(items, core_->border()));
  ATTN_ASSIGN_OR_RETURN(const server::ForkResult result,
                        core_->Run<server::ForkResult>(std::move(call)));
  return ChildrenOf(items, result);
}

absl::Status Engine::Reorder(absl::Span<const SequenceId> targets,
                             absl::Span<const SequenceId> sources) {
  ATTN_ASSIGN_OR_RETURN(server::ReorderCall call, MakeReorder(targets, sources, core_->border()));
  return core_->Run<server::ReorderResult>(std::move(call)).status();
}

absl::StatusOr<std::vector<absl::StatusOr<uint32_t>>> Engine::Truncate(
    absl::Span<const TruncateItem> items) {
  ATTN_ASSIGN_OR_RETURN(server::TruncateCall call, MakeTruncate(items, core_->border()));
  ATTN_ASSIGN_OR_RETURN(server::TruncateResult result,
                        core_->Run<server::TruncateResult>(std::move(call)));
  return std::move(result.items);
}

absl::StatusOr<std::vector<absl::Status>> Engine::Close(absl::Span<const SequenceId> sequences) {
  ATTN_ASSIGN_OR_RETURN(std::vector<absl::Status> checked,
                        CheckSequences(sequences, core_->border()));
  ATTN_ASSIGN_OR_RETURN(
      server::CloseResult result,
      core_->Run<server::CloseResult>(server::CloseCall{RefsOf(sequences, checked)}));
  return Merge(std::move(checked), std::move(result.items));
}

absl::StatusOr<std::vector<absl::StatusOr<kvcache::SequenceDescription>>> Engine::Describe(
    absl::Span<const SequenceId> sequences) {
  ATTN_ASSIGN_OR_RETURN(std::vector<absl::Status> checked,
                        CheckSequences(sequences, core_->border()));
  ATTN_ASSIGN_OR_RETURN(
      server::DescribeResult result,
      core_->Run<server::DescribeResult>(server::DescribeCall{RefsOf(sequences, checked)}));
  return Merge(std::move(checked), std::move(result.items));
}

absl::StatusOr<uint32_t> Engine::RenewLease(const std::string& owner, Nanos lease) {
  ATTN_ASSIGN_OR_RETURN(server::RenewCall call, MakeRenew(owner, lease, core_->border()));
  ATTN_ASSIGN_OR_RETURN(const server::RenewResult result,
                        core_->Run<server::RenewResult>(std::move(call)));
  return result.renewal.num_sequences;
}

// ------------------------------------------------------------------------------------- attention

absl::StatusOr<AttendResult> Engine::Attend(const AttendRequest& request) {
  ATTN_ASSIGN_OR_RETURN(std::unique_ptr<Call> call, core_->MakeAttendCall(request));
  ATTN_ASSIGN_OR_RETURN(server::AttendResult result,
                        TakeResult<server::AttendResult>(core_->driver.Run(std::move(call))));
  return ResultOf(std::move(result));
}

absl::Status Engine::Submit(const AttendRequest& request, AttendCallback done) {
  if (done == nullptr) return MakeError(Reason::kInvalid, "done", "got none, want a callback");
  ATTN_ASSIGN_OR_RETURN(std::unique_ptr<Call> call, core_->MakeAttendCall(request));
  const auto sink = std::make_shared<CallbackSink>(&core_->driver, std::move(done));
  call->sink = sink.get();
  call->origin = sink;
  return core_->engine.Submit(std::move(call));
}

// ------------------------------------------------------------------------------------ the engine

bool Engine::Poll() { return core_->driver.Poll(); }
void Engine::Stop() { core_->driver.Stop(); }

EngineStats Engine::stats() const {
  const server::EngineStats& core = core_->engine.stats();
  return {.steps = core.steps.value(),
          .launches = core.launches.value(),
          .failed_launches = core.failed_launches.value(),
          .calls_completed = core.calls_completed.value(),
          .items_completed = core.items_completed.value(),
          .items_failed = core.items_failed.value(),
          .appended_tokens = core.appended_tokens.value(),
          .replayed_items = core.replayed_items.value(),
          .opened_sequences = core.opened_sequences.value(),
          .forked_sequences = core.forked_sequences.value(),
          .expired_sequences = core.expired_sequences.value(),
          .cache = core_->engine.cache_stats()};
}

std::string Engine::device_name() const { return core_->engine.device_name(); }
absl::Status Engine::device_error() const { return core_->engine.device_error(); }

}  // namespace attn::engine
