#include "tools/bench/overload_load.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"

namespace attn::bench {
namespace {

constexpr int kConnections = 4;
constexpr int kStreams = 16;
constexpr size_t kSequences = 512;
constexpr uint32_t kQHeads = 8;
constexpr uint32_t kKvHeads = 2;
constexpr uint32_t kHeadDim = 64;
constexpr size_t kBytesPerRow = kQHeads * kHeadDim * 2;  // bf16
constexpr size_t kBytesPerKey = kKvHeads * kHeadDim * 2;
constexpr uint32_t kShortestPrompt = 64;
constexpr uint32_t kLongestPrompt = 128;
constexpr uint32_t kLongestSequence = 2048;
constexpr double kDecodeRate = 50;  // per second
constexpr Nanos kLate = kMillisecond;

client::ModelSpec Spec() {
  client::LayerGroup group;
  group.layers = {0};
  group.num_q_heads = kQHeads;
  group.num_kv_heads = kKvHeads;
  group.head_dim_qk = kHeadDim;
  client::ModelSpec spec;
  spec.name = "overload";
  spec.activation_dtype = DType::kBFloat16;
  spec.num_layers = 1;
  spec.layer_groups = {group};
  return spec;
}

double MillisSince(Nanos then) {
  return static_cast<double>(Clock::Real().Now() - then) / kMillisecond;
}

}  // namespace

OverloadLoad::OverloadLoad(const std::string& target) : zeros_(kLongestSequence * kBytesPerRow) {
  for (int i = 0; i < kConnections; ++i) {
    auto client = client::Client::Connect(target);
    ATTN_CHECK(client.ok(), client.status().ToString());
    clients_.push_back(*std::move(client));
  }
  client::StreamOptions stream;
  stream.retry.max_attempts = 1;
  stream.max_in_flight = 65536;
  for (int i = 0; i < kStreams; ++i) {
    streams_.push_back(clients_[static_cast<size_t>(i) % kConnections]->OpenStream(stream));
  }
  WriteSequences();
}

OverloadLoad::~OverloadLoad() = default;

void OverloadLoad::WriteSequences() {
  client::Client& client = *clients_[0];
  const auto model = client.DeclareModel(Spec());
  ATTN_CHECK(model.ok(), model.status().ToString());
  client::OpenRequest open;
  open.model = "overload";
  open.owner = "overload_bench";
  open.num_sequences = kSequences;
  open.lease_ms = 3'600'000;
  const auto opened = client.OpenSequences(open);
  ATTN_CHECK(opened.ok(), opened.status().ToString());
  std::uniform_int_distribution<uint32_t> len(256, kLongestSequence - kLongestPrompt);
  for (size_t i = 0; i < kSequences; ++i) {
    ATTN_CHECK(opened->sequences[i].ok(), opened->sequences[i].status().ToString());
    sequences_.push_back({*opened->sequences[i], len(random_), streams_[i % kStreams].get()});
    client::AttendRequest request;
    request.dtype = DType::kBFloat16;
    request.items = {{.sequence = sequences_[i].id, .kv_new_len = sequences_[i].len}};
    request.k = {zeros_.data(), sequences_[i].len * kBytesPerKey};
    request.v = request.k;
    const auto written = client.Attend(request);
    ATTN_CHECK(written.ok() && written->FirstError().ok(), "a sequence cannot be written");
    free_.push_back(i);
  }
}

Answers OverloadLoad::Run(const PhaseOptions& options) {
  options_ = options;
  const Nanos began = Clock::Real().Now();
  const Nanos end = began + static_cast<Nanos>(options.seconds * kSecond);
  std::thread decode([&] { SendAtRate(Kind::kDecode, kDecodeRate, end); });
  if (options.rate == 0) {
    RunClosed();
  } else {
    SendAtRate(Kind::kPrompt, options.rate, end);
  }
  decode.join();
  std::unique_lock lock(mutex_);
  answers_.seconds = static_cast<double>(Clock::Real().Now() - began) / kSecond;
  answered_.wait(lock, [this] { return in_flight_ == 0; });
  return std::exchange(answers_, {});
}

void OverloadLoad::RunClosed() {
  {
    const std::lock_guard lock(mutex_);
    closed_loop_ = true;
  }
  for (int i = 0; i < options_.callers; ++i) Send(Kind::kPrompt, Clock::Real().Now());
  std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
  const std::lock_guard lock(mutex_);
  closed_loop_ = false;
}

void OverloadLoad::SendAtRate(Kind kind, double rate, Nanos end) {
  std::mt19937_64 random(static_cast<uint64_t>(rate));
  std::exponential_distribution<double> gap(rate);
  for (Nanos next = Clock::Real().Now(); next < end;
       next += static_cast<Nanos>(gap(random) * kSecond)) {
    if (const Nanos wait = next - Clock::Real().Now(); wait > 0) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
    }
    Send(kind, next);
  }
}

void OverloadLoad::Send(Kind kind, Nanos intended) {
  Sent sent{.kind = kind, .rows = 1, .intended = intended};
  {
    const std::lock_guard lock(mutex_);
    ++answers_.kinds[static_cast<size_t>(kind)].sent;
    if (Clock::Real().Now() - intended > kLate) ++answers_.sent_late;
    if (free_.empty()) {
      ++answers_.no_sequence;
      return;
    }
    if (kind == Kind::kPrompt) {
      sent.rows = std::uniform_int_distribution<uint32_t>(kShortestPrompt, kLongestPrompt)(random_);
    }
    const size_t at = std::uniform_int_distribution<size_t>(0, free_.size() - 1)(random_);
    std::swap(free_[at], free_.back());
    sent.sequence = free_.back();
    free_.pop_back();
    ++in_flight_;
  }
  const Sequence& sequence = sequences_[sent.sequence];
  client::AttendRequest request;
  request.dtype = DType::kBFloat16;
  request.items = {{.sequence = sequence.id,
                    .expected_len = sequence.len,
                    .q_len = sent.rows,
                    .kv_new_len = sent.rows,
                    .flags = client::kRewind}};
  request.q = {zeros_.data(), sent.rows * kBytesPerRow};
  request.k = {zeros_.data(), sent.rows * kBytesPerKey};
  request.v = request.k;
  sequence.stream->Attend(
      request,
      [this, sent](const absl::StatusOr<client::AttendResult>& result) { Note(sent, result); },
      {.timeout_ms = options_.timeout_ms});
}

void OverloadLoad::Note(const Sent& sent, const absl::StatusOr<client::AttendResult>& result) {
  const absl::Status status = result.ok() ? result->FirstError() : result.status();
  bool send_next = false;
  {
    const std::lock_guard lock(mutex_);
    Answers::OfKind& kind = answers_.kinds[static_cast<size_t>(sent.kind)];
    if (status.ok()) {
      kind.good_ms.push_back(MillisSince(sent.intended));
    } else if (ReasonOf(status) == Reason::kQueueFull) {
      kind.refused_ms.push_back(MillisSince(sent.intended));
    } else if (ReasonOf(status) == Reason::kDeadline) {
      ++kind.late;
    } else if (++answers_.failed == 1) {
      answers_.first_failure = status.ToString();
    }
    free_.push_back(sent.sequence);
    --in_flight_;
    send_next = closed_loop_ && sent.kind == Kind::kPrompt;
    if (in_flight_ == 0) answered_.notify_one();
  }
  if (send_next) Send(Kind::kPrompt, Clock::Real().Now());
}

}  // namespace attn::bench
