#include "tools/bench/caller.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <utility>

namespace attn::bench {
namespace {

constexpr uint32_t kLongest = 64;  // tokens of a sequence

}  // namespace

// Two query heads, one KV head, 16 dims, float32: as small as an item gets in practice.
MessageMaker::MessageMaker(uint64_t sequence, uint32_t num_layers, uint32_t first_layer)
    : lens_(num_layers), layer_(first_layer % num_layers) {
  v1::AttendRequest* attend = message_.mutable_attend();
  attend->add_sequence_ids(sequence);
  attend->add_layers(0);
  attend->add_expected_lens(0);
  attend->add_q_lens(1);
  attend->add_kv_new_lens(1);
  attend->add_flags(0);
  attend->add_append_tokens(0);
  attend->mutable_q()->set_raw(std::string(2 * 16 * sizeof(float), '\0'));
  attend->mutable_k()->set_raw(std::string(16 * sizeof(float), '\0'));
  attend->mutable_v()->set_raw(std::string(16 * sizeof(float), '\0'));
  for (v1::Tensor* tensor : {attend->mutable_q(), attend->mutable_k(), attend->mutable_v()}) {
    tensor->set_dtype(v1::DATA_TYPE_FLOAT32);
  }
}

grpc::ByteBuffer MessageMaker::Next() {
  message_.set_request_id(++count_);
  v1::AttendRequest* attend = message_.mutable_attend();
  attend->set_layers(0, layer_);
  // Short again and again, so that what is measured is the service and not the attention.
  const bool rewind = lens_[layer_] == kLongest;
  if (rewind) lens_[layer_] = 0;
  attend->set_flags(0, rewind ? v1::ITEM_FLAG_REWIND : 0);
  attend->set_expected_lens(0, lens_[layer_]++);
  attend->set_append_tokens(0, count_);
  layer_ = (layer_ + 1) % static_cast<uint32_t>(lens_.size());
  const grpc::Slice slice(message_.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

Caller::Caller(grpc::GenericStub* stub, const std::string& method, MessageMaker maker)
    : maker_(std::move(maker)) {
  stub->PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
  StartCall();
}

void Caller::Send() {
  outgoing_ = maker_.Next();
  outstanding_.store(2);
  sent_ = Clock::Real().Now();
  StartRead(&incoming_);
  StartWrite(&outgoing_);
}

void Caller::OnReadDone(bool ok) {
  if (!ok) return;
  result_.round_trips_us.push_back(static_cast<double>(Clock::Real().Now() - sent_) / kMicrosecond);
  NoteAnswer();
  FinishOne();
}

void Caller::OnWriteDone(bool ok) {
  if (ok) FinishOne();
}

void Caller::FinishOne() {
  if (outstanding_.fetch_sub(1) != 1) return;
  if (stopping_.load()) {
    context_.TryCancel();
  } else {
    Send();
  }
}

void Caller::NoteAnswer() {
  v1::AttendStreamResponse answer;
  grpc::ProtoBufferReader reader(&incoming_);
  const bool is_good = answer.ParseFromZeroCopyStream(&reader) && answer.has_attend() &&
                       answer.attend().errors_size() == 0;
  if (!is_good && ++result_.failures == 1) result_.first_failure = answer.ShortDebugString();
  result_.launch_items += answer.attend().timing().launch_items();
}

void Caller::OnDone(const grpc::Status& status) {
  if (!stopping_.load()) {
    ++result_.failures;
    result_.first_failure = status.error_message();
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
  done_changed_.notify_one();
}

CallerResult Caller::Wait() {
  std::unique_lock lock(mutex_);
  done_changed_.wait(lock, [this] { return done_; });
  return std::move(result_);
}

}  // namespace attn::bench
