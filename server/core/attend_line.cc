// The life of an Attend call inside the engine.
#include "server/core/attend_line.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/stream_scope.h"

namespace attn::server {
namespace {

constexpr char kSequenceField[] = "sequence_ids";

// What a request can say of positions and lengths are 32-bit numbers, in whatever sum.
static_assert(std::is_same_v<decltype(AttendItem::q_start), std::optional<uint32_t>> &&
              std::is_same_v<decltype(AttendItem::q_len), uint32_t>);
static_assert(int64_t{2} * std::numeric_limits<uint32_t>::max() < kPositionLimit);

void FillWithNan(DType dtype, char* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    StoreFromFloat(dtype, data, i, std::numeric_limits<float>::quiet_NaN());
  }
}

// Rows of a failed item are NaN, so that nobody goes on with them unnoticed.
void PoisonRows(PendingCall& call, const AttendItem& item) {
  const AttendCall& request = *call.request;
  const int64_t row = int64_t{request.num_q_heads} * request.head_dim_v;
  const auto size = static_cast<int64_t>(SizeOf(request.out_dtype));
  FillWithNan(request.out_dtype, call.out + item.q_row * row * size, item.q_len * row);
  if (!request.return_lse) return;
  const int64_t heads = request.num_q_heads;
  std::fill_n(call.lse + item.q_row * heads, item.q_len * heads,
              std::numeric_limits<float>::quiet_NaN());
}

std::string FieldOfItem(const AttendWork& work) {
  return absl::StrCat(kSequenceField, "[", work.index, "]");
}

}  // namespace

absl::Status LateError(const Call& call, Nanos now) {
  if (call.cancelled->load(std::memory_order_relaxed)) {
    return MakeError(Reason::kCancelled, "", "the call was cancelled");
  }
  return MakeError(
      Reason::kDeadline, "",
      absl::StrCat("the deadline passed ", (now - call.deadline) / kMicrosecond, " us ago"));
}

void AttendLine::Add(std::unique_ptr<Call> call) {
  auto pending = std::make_unique<PendingCall>();
  pending->request = &std::get<AttendCall>(call->request);
  pending->result = &call->result.emplace<AttendResult>();
  pending->call = std::move(call);
  const std::vector<AttendItem>& items = pending->request->items;
  pending->result->items.resize(items.size());
  pending->works.resize(items.size());
  pending->num_unsettled = items.size();
  pending->index = calls_.size();
  PendingCall& entered = *pending;
  calls_.push_back(std::move(pending));
  for (uint32_t i = 0; i < items.size(); ++i) {
    AttendWork& work = entered.works[i];
    work.call = &entered;
    work.item = &items[i];
    work.index = i;
    Enter(work);
  }
  if (items.empty()) AnswerIfDone(entered);
}

void AttendLine::Enter(AttendWork& work) {
  const Call& call = *work.call->call;
  const auto sequence = Resolve(call.stream.get(), work.item->sequence, kSequenceField, work.index);
  if (sequence.ok()) work.sequence = *sequence;
  if (!work.item->refused.ok()) return Fail(work, work.item->refused);
  if (!sequence.ok()) return Fail(work, sequence.status());
  if (absl::Status once = CheckOccursOnce(work); !once.ok()) return Fail(work, std::move(once));
  work.priority = parts_.traits->PriorityOf(work.call->request->priority, work.sequence);
  if (parts_.cache->CheckOpen(work.sequence).ok()) Hold(work);
  work.place = parts_.order->Add(work.sequence, work.item->layer, &work);
}

// A pair that is appended to occurs once in a request, under whatever names. The item before this
// one in line is the only one to look at: an earlier append of the request would have refused it.
absl::Status AttendLine::CheckOccursOnce(const AttendWork& work) const {
  if (work.call->works.size() == 1) return absl::OkStatus();
  const AttendItem& item = *work.item;
  const AttendWork* const other = parts_.order->LastWork(work.sequence, item.layer);
  if (other == nullptr || other->call != work.call) return absl::OkStatus();
  if (item.kv_new_len == 0 && other->item->kv_new_len == 0) return absl::OkStatus();
  return MakeError(
      Reason::kInvalid, FieldOfItem(work),
      absl::StrCat("got ", item.sequence.value, " with layer ", item.layer, ", the pair of item ",
                   other->index, ", want a pair that is appended to once in a request"));
}

void AttendLine::Hold(AttendWork& work) {
  if (work.in_use) return;
  parts_.cache->AddUse(work.sequence);
  parts_.cache->Touch(work.sequence, parts_.clock->Now());
  work.in_use = true;
}

void AttendLine::Begin(AttendWork& work) {
  if (absl::Status fixed = FixShape(work); !fixed.ok()) return Fail(work, std::move(fixed));
  parts_.batcher->Add(work, parts_.clock->Now());
}

absl::Status AttendLine::FixShape(AttendWork& work) {
  const AttendItem& item = *work.item;
  ATTN_RETURN_IF_ERROR(device_error_);
  if (parts_.order->IsFailed(work.sequence)) return SkippedError(kSequenceField, work.index);
  if (!parts_.cache->CheckOpen(work.sequence).ok()) {
    return parts_.cache->CheckOpen(work.sequence, FieldOfItem(work));
  }
  const Model* model = parts_.models->Find(SlotOf(work.sequence));
  if (model != item.model.get()) {
    return MakeError(Reason::kInvalid, FieldOfItem(work),
                     absl::StrCat("got a sequence of model ", model->definition.name,
                                  ", want one of the model that the item was checked against"));
  }
  Hold(work);
  work.store = &parts_.models->StoreOf(*model, model->group_of_layer[item.layer]);
  work.layer = model->index_in_group[item.layer];
  // An append that this cuts short is beyond the longest sequence, and refused as that.
  const int64_t keys = item.kv_new_len == 0
                           ? parts_.cache->LengthOf(work.sequence, item.layer)
                           : std::min<int64_t>(int64_t{item.expected_len} + item.kv_new_len,
                                               std::numeric_limits<int32_t>::max());
  const bool append_after = (item.flags & kItemAppendAfter) != 0;
  work.kv_end = append_after ? item.expected_len : static_cast<uint32_t>(keys);
  work.q_start = item.q_start.has_value() ? int64_t{*item.q_start} : keys - item.q_len;
  return absl::OkStatus();
}

void AttendLine::PrepareOutputs(PendingCall& call) {
  if (call.has_outputs) return;
  call.has_outputs = true;
  const AttendCall& request = *call.request;
  if (request.borrowed) {
    call.out = request.borrowed->out;
    call.lse = request.borrowed->lse;
    return;
  }
  const size_t rows = static_cast<size_t>(request.total_q) * request.num_q_heads;
  call.result->out.resize(rows * request.head_dim_v * SizeOf(request.out_dtype));
  if (request.return_lse) call.result->lse.resize(rows * sizeof(float));
  call.out = call.result->out.data();
  call.lse = reinterpret_cast<float*>(call.result->lse.data());
}

uint32_t AttendLine::LengthOf(const AttendWork& work) const {
  if (!parts_.cache->CheckOpen(work.sequence).ok()) return 0;
  const Model* model = parts_.models->Find(SlotOf(work.sequence));
  if (model == nullptr || work.item->layer >= model->definition.num_layers) return 0;
  return parts_.cache->LengthOf(work.sequence, work.item->layer);
}

void AttendLine::Fail(AttendWork& work, absl::Status status) {
  PrepareOutputs(*work.call);
  PoisonRows(*work.call, *work.item);
  parts_.stats->items_failed.Add(1);
  parts_.answers->CountRefusedItem(status);
  work.call->result->items[work.index].status = std::move(status);
  Settle(work);
}

void AttendLine::Done(AttendWork& work) { Settle(work); }

void AttendLine::Settle(AttendWork& work) {
  work.settled = true;
  parts_.stats->items_completed.Add(1);
  work.reservation = kvcache::Reservation();
  work.call->result->items[work.index].new_len = LengthOf(work);
  parts_.batcher->Remove(work);
  if (work.in_use) {
    parts_.cache->DropUse(work.sequence);
    parts_.cache->Touch(work.sequence, parts_.clock->Now());
  }
  if (work.place != nullptr) parts_.order->Abandon(work.place);
  --work.call->num_unsettled;
  AnswerIfDone(*work.call);
}

void AttendLine::AnswerIfDone(PendingCall& call) {
  if (call.num_unsettled > 0) return;
  PrepareOutputs(call);
  const size_t index = call.index;
  answered_.push_back(std::move(calls_[index]));
  calls_[index] = std::move(calls_.back());
  calls_.pop_back();
  if (index < calls_.size()) calls_[index]->index = index;
  parts_.answers->Add(std::move(answered_.back()->call));
}

void AttendLine::FailItems(PendingCall& call, const absl::Status& status) {
  for (AttendWork& work : call.works) {
    if (!work.settled) Fail(work, status);
  }
}

void AttendLine::DropLate(Nanos now) {
  // From the back, because an answered call is replaced by the last one.
  for (size_t i = calls_.size(); i-- > 0;) {
    if (calls_[i]->IsLate(now)) FailItems(*calls_[i], LateError(*calls_[i]->call, now));
  }
}

void AttendLine::FailAll(const absl::Status& status) {
  while (!calls_.empty()) FailItems(*calls_.back(), status);
}

}  // namespace attn::server
