#include "tools/loadgen/engine_walker.h"

#include <algorithm>
#include <utility>

namespace attn::loadgen {
namespace {

double Milliseconds(Nanos time) { return static_cast<double>(time) / kMillisecond; }

}  // namespace

EngineWalker::EngineWalker(client::Client* client, std::string owner, RunShared* shared)
    : client_(client),
      owner_(std::move(owner)),
      shared_(shared),
      stream_(client_->OpenStream()),
      layer_request_(shared->model, shared->source) {}

void EngineWalker::Submit(uint64_t number, const TraceRequest& request, Nanos arrival) {
  auto sequence = std::make_unique<ActiveSequence>();
  sequence->number = number;
  sequence->plan = request;
  sequence->arrival = arrival;
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(sequence));
  arrived_changed_.notify_one();
}

void EngineWalker::Finish() {
  const std::lock_guard lock(mutex_);
  no_more_ = true;
  arrived_changed_.notify_one();
}

void EngineWalker::Run() {
  while (Admit()) {
    WalkStep();
    Retire();
  }
  for (auto& close : closes_) {
    const auto statuses = close.get();
    absl::Status failure = statuses.status();
    for (size_t i = 0; failure.ok() && i < statuses->size(); ++i) failure = (*statuses)[i];
    if (!failure.ok() && stats_.first_failure.empty()) {
      stats_.first_failure = std::string(failure.message());
      ++stats_.requests_failed;
    }
  }
}

bool EngineWalker::Admit() {
  std::vector<std::unique_ptr<ActiveSequence>> arrived;
  {
    std::unique_lock lock(mutex_);
    if (active_.empty()) {
      arrived_changed_.wait(lock, [this] { return no_more_ || !arrived_.empty(); });
      ready_ = Clock::Real().Now();
    }
    while (!arrived_.empty() && active_.size() + arrived.size() < shared_->options->max_active) {
      arrived.push_back(std::move(arrived_.front()));
      arrived_.pop_front();
    }
    if (arrived.empty()) return !active_.empty();
  }
  Open(std::move(arrived));
  return true;
}

void EngineWalker::Open(std::vector<std::unique_ptr<ActiveSequence>> arrived) {
  client::OpenRequest request;
  request.model = shared_->model->spec.name;
  request.owner = owner_;
  request.num_sequences = static_cast<uint32_t>(arrived.size());
  const absl::StatusOr<client::OpenResult> result = stream_->Open(request).get();
  ready_ = Clock::Real().Now();
  for (size_t i = 0; i < arrived.size(); ++i) {
    const absl::StatusOr<SequenceId> id =
        result.ok() ? result->sequences[i] : absl::StatusOr<SequenceId>(result.status());
    if (!id.ok()) {
      Fail(*arrived[i], id.status());
      shared_->finished.fetch_add(1);
      continue;
    }
    arrived[i]->id = *id;
    opened_.push_back(*id);
    active_.push_back(std::move(arrived[i]));
    const uint32_t now = shared_->active.fetch_add(1) + 1;
    uint32_t most = shared_->max_active.load();
    while (now > most && !shared_->max_active.compare_exchange_weak(most, now)) {
    }
  }
}

std::future<EngineWalker::Answer> EngineWalker::Send(const client::AttendRequest& request) {
  auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> future = promise->get_future();
  shared_->ledger->Note(ready_, Clock::Real().Now());
  stream_->Attend(request, [promise](absl::StatusOr<client::AttendResult> result) {
    promise->set_value({Clock::Real().Now(), std::move(result)});
  });
  ++stats_.layer_requests;
  return future;
}

void EngineWalker::WalkStep() {
  std::vector<ActiveSequence*> active;
  for (const auto& sequence : active_) active.push_back(sequence.get());
  const std::vector<StepItem> items = ComposeStep(active, shared_->options->prefill_chunk);
  if (items.empty()) return;
  const double share = shared_->options->verify;
  const auto build = [&](uint32_t layer) -> const client::AttendRequest& {
    return layer_request_.Build(items, layer, shared_->flipper, share);
  };
  Answer answer{0, absl::UnknownError("")};
  const client::AttendRequest* request = &build(0);
  for (uint32_t layer = 0; layer < shared_->options->layers; ++layer) {
    std::future<Answer> next = Send(*request);
    if (layer > 0) Absorb(items, layer - 1, answer);
    if (layer + 1 < shared_->options->layers) request = &build(layer + 1);
    answer = next.get();
    ready_ = answer.arrived;
    if (!answer.result.ok()) {
      for (const StepItem& item : items) Fail(*item.sequence, answer.result.status());
      return;
    }
  }
  Absorb(items, shared_->options->layers - 1, answer);
  Settle(items, answer.arrived);
}

void EngineWalker::Absorb(const std::vector<StepItem>& items, uint32_t layer,
                          const Answer& answer) {
  const client::AttendResult& result = *answer.result;
  stats_.launch_items.Add(result.timing.launch_items);
  stats_.launch_q_rows.Add(result.timing.launch_q_rows);
  stats_.queue_ms.Add(static_cast<double>(result.timing.queue_ns) / kMillisecond);
  stats_.compute_ms.Add(static_cast<double>(result.timing.compute_ns) / kMillisecond);
  size_t row = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!result.items[i].status.ok()) {
      Fail(*items[i].sequence, result.items[i].status);
    } else if (shared_->options->verify > 0) {
      KeepSamples(items[i], layer, row, result);
    }
    row += items[i].rows;
  }
}

void EngineWalker::KeepSamples(const StepItem& item, uint32_t layer, size_t first_row,
                               const client::AttendResult& result) {
  const size_t out_bytes = shared_->model->q_elements() * SizeOf(shared_->model->dtype);
  const size_t heads = shared_->model->num_q_heads;
  RowId row{item.sequence->number, layer, item.sequence->len};
  for (size_t at = first_row; at < first_row + item.rows; ++at, ++row.position) {
    if (!shared_->source->IsSampled(row, shared_->options->verify)) continue;
    SampledRow sample;
    sample.row = row;
    // A row that is missing from the answer stays empty, which is a mismatch.
    if ((at + 1) * out_bytes <= result.out.size()) {
      sample.out = result.out.substr(at * out_bytes, out_bytes);
    }
    if ((at + 1) * heads <= result.lse.size()) {
      const auto begin = result.lse.begin() + static_cast<ptrdiff_t>(at * heads);
      sample.lse.assign(begin, begin + static_cast<ptrdiff_t>(heads));
    }
    shared_->verifier->Keep(std::move(sample));
  }
}

void EngineWalker::Settle(const std::vector<StepItem>& items, Nanos now) {
  ++stats_.steps;
  for (const StepItem& item : items) {
    ActiveSequence& sequence = *item.sequence;
    if (sequence.failed) continue;
    if (sequence.is_prefilling()) stats_.prompt_tokens += item.rows;
    sequence.len += item.rows;
    if (!sequence.is_prefilling()) Emit(sequence, now);
  }
}

void EngineWalker::Emit(ActiveSequence& sequence, Nanos now) {
  ++stats_.generated_tokens;
  if (sequence.tokens_out++ == 0) {
    sequence.first_token = now;
    stats_.first_token_ms.Add(Milliseconds(now - sequence.arrival));
  } else {
    stats_.step_ms.Add(Milliseconds(now - sequence.last_token));
  }
  sequence.last_token = now;
}

void EngineWalker::Fail(ActiveSequence& sequence, const absl::Status& why) {
  if (sequence.failed) return;
  sequence.failed = true;
  ++stats_.requests_failed;
  if (stats_.first_failure.empty()) stats_.first_failure = why.ToString();
}

void EngineWalker::Retire() {
  const auto is_over = [](const std::unique_ptr<ActiveSequence>& sequence) {
    return sequence->failed || sequence->tokens_out >= sequence->plan.generated_len;
  };
  std::vector<SequenceId> over;
  for (const auto& sequence : active_) {
    if (!is_over(sequence)) continue;
    over.push_back(sequence->id);
    if (sequence->failed) continue;
    ++stats_.requests_done;
    const uint32_t steps = std::max(1u, sequence->tokens_out - 1);
    const bool is_good = Milliseconds(sequence->first_token - sequence->arrival) <=
                             shared_->options->ttft_limit_ms &&
                         Milliseconds(sequence->last_token - sequence->first_token) / steps <=
                             shared_->options->step_limit_ms;
    stats_.requests_good += is_good ? 1 : 0;
  }
  if (over.empty()) return;
  closes_.push_back(stream_->Close(over));
  shared_->active.fetch_sub(static_cast<uint32_t>(over.size()));
  shared_->finished.fetch_add(over.size());
  std::erase_if(active_, is_over);
}

}  // namespace attn::loadgen
