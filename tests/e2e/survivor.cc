#include "tests/e2e/survivor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace attn::test {
namespace {

constexpr int kSequences = 3;
constexpr int64_t kLongest = 300;
constexpr size_t kRow = kQHeads * kHeadDim;

}  // namespace

int64_t Survivor::Sequence::CommittedLen() const {
  return std::min(layers[0].len(), layers[1].len());
}

Survivor::Survivor(const std::string& target, Kind kind, uint64_t seed)
    : random_(seed), stubs_(target), owner_("survivor " + std::to_string(seed)) {
  sequences_.resize(kSequences);
  for (Sequence& sequence : sequences_) Reopen(sequence);
  if (kind == Kind::kStream) stream_ = stubs_.attention->AttendStream(&context_);
}

void Survivor::Run(const std::atomic<bool>& stop) {
  while (!stop && !::testing::Test::HasFailure()) ActOnce();
}

void Survivor::ActOnce() {
  Sequence& one = sequences_[static_cast<size_t>(random_.Integer(0, kSequences - 1))];
  Sequence& other = sequences_[static_cast<size_t>(random_.Integer(0, kSequences - 1))];
  if (one.layers[0].len() > kLongest || one.layers[1].len() > kLongest) return Reopen(one);
  const int64_t die = random_.Integer(0, 99);
  if (die < 4) return Truncate(one);
  if (die < 8 && &one != &other) return Fork(one, other);
  if (die < 10) return Reopen(one);
  Attend();
}

// One item of each sequence: an append with rows, or rows alone.
void Survivor::Attend() {
  std::vector<Step> steps;
  std::vector<const PlainLayer*> layers;
  for (Sequence& sequence : sequences_) {
    const auto layer = static_cast<uint32_t>(random_.Integer(0, kLayers - 1));
    PlainLayer& kv = sequence.layers[layer];
    if (random_.Chance(0.7) || kv.len() == 0) {
      steps.push_back(AppendStep(random_, sequence.id, layer, random_.Integer(1, 12), &kv));
    } else {
      steps.push_back({.sequence = sequence.id,
                       .layer = layer,
                       .q = RandomRows(random_, random_.Integer(1, 3), kQHeads)});
    }
    layers.push_back(&kv);
  }
  const v1::AttendResponse response = Send(MakeRequest(steps));
  EXPECT_EQ(response.errors_size(), 0) << response.ShortDebugString();
  const std::vector<float> out = Floats(response.out());
  size_t begin = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t end = begin + steps[i].q.size();
    ASSERT_LE(end, out.size()) << owner_;
    Check(steps[i], *layers[i],
          {out.begin() + static_cast<int64_t>(begin), out.begin() + static_cast<int64_t>(end)});
    begin = end;
  }
  EXPECT_EQ(begin, out.size());
}

void Survivor::Check(const Step& step, const PlainLayer& kv, std::vector<float> out) {
  const auto rows = static_cast<int64_t>(step.q.size() / kRow);
  ExpectNear(out,
             PlainAttend(kv, step.q,
                         {.layer = step.layer, .q_start = kv.len() - rows, .kv_end = kv.len()}));
  num_rows_ += rows;
}

v1::AttendResponse Survivor::Send(const v1::AttendRequest& request) {
  if (stream_ == nullptr) {
    grpc::ClientContext context;
    v1::AttendResponse response;
    const grpc::Status status = stubs_.attention->Attend(&context, request, &response);
    EXPECT_TRUE(status.ok()) << owner_ << ": " << status.error_message();
    return response;
  }
  v1::AttendStreamRequest message;
  message.set_request_id(++last_request_);
  *message.mutable_attend() = request;
  v1::AttendStreamResponse response;
  EXPECT_TRUE(stream_->Write(message) && stream_->Read(&response)) << owner_ << " lost its stream";
  EXPECT_EQ(response.request_id(), last_request_);
  EXPECT_TRUE(response.has_attend()) << response.ShortDebugString();
  return response.attend();
}

void Survivor::Truncate(Sequence& sequence) {
  const int64_t len = random_.Integer(0, sequence.CommittedLen());
  v1::TruncateSequencesRequest request;
  v1::TruncateSequencesRequest::Item* const item = request.add_items();
  item->set_sequence_id(sequence.id);
  item->set_len(static_cast<uint32_t>(len));
  grpc::ClientContext context;
  v1::TruncateSequencesResponse response;
  const grpc::Status status = stubs_.sequences->TruncateSequences(&context, request, &response);
  EXPECT_TRUE(status.ok() && response.errors().empty()) << owner_ << ": " << status.error_message();
  for (PlainLayer& layer : sequence.layers) layer.Truncate(std::min(layer.len(), len));
}

// The child takes the place of `replaced`.
void Survivor::Fork(Sequence& parent, Sequence& replaced) {
  const int64_t len = random_.Integer(0, parent.CommittedLen());
  v1::ForkSequencesRequest request;
  v1::ForkSequencesRequest::Item* const item = request.add_items();
  item->set_parent_id(parent.id);
  item->set_at_len(static_cast<uint32_t>(len));
  item->set_num_children(1);
  grpc::ClientContext context;
  v1::ForkSequencesResponse response;
  const grpc::Status status = stubs_.sequences->ForkSequences(&context, request, &response);
  ASSERT_TRUE(status.ok()) << owner_ << ": " << status.error_message();
  ASSERT_EQ(response.child_ids_size(), 1) << response.ShortDebugString();
  Close(replaced.id);
  replaced.id = response.child_ids(0);
  replaced.layers = parent.layers;
  for (PlainLayer& layer : replaced.layers) layer.Truncate(len);
}

void Survivor::Reopen(Sequence& sequence) {
  if (sequence.id != 0) Close(sequence.id);
  v1::OpenSequencesRequest request;
  request.set_model("tiny");
  request.set_owner(owner_);
  request.add_items();
  grpc::ClientContext context;
  v1::OpenSequencesResponse response;
  const grpc::Status status = stubs_.sequences->OpenSequences(&context, request, &response);
  ASSERT_TRUE(status.ok()) << owner_ << ": " << status.error_message();
  ASSERT_EQ(response.sequence_ids_size(), 1) << response.ShortDebugString();
  sequence = Sequence{.id = response.sequence_ids(0), .layers = {}};
}

void Survivor::Close(uint64_t id) {
  v1::CloseSequencesRequest request;
  request.add_sequence_ids(id);
  grpc::ClientContext context;
  v1::CloseSequencesResponse response;
  const grpc::Status status = stubs_.sequences->CloseSequences(&context, request, &response);
  EXPECT_TRUE(status.ok() && response.errors().empty()) << owner_ << ": " << status.error_message();
}

void Survivor::Finish() {
  v1::DescribeSequencesRequest request;
  for (const Sequence& sequence : sequences_) request.add_sequence_ids(sequence.id);
  grpc::ClientContext context;
  v1::DescribeSequencesResponse response;
  ASSERT_TRUE(stubs_.sequences->DescribeSequences(&context, request, &response).ok());
  ASSERT_EQ(response.sequences_size(), kSequences) << response.ShortDebugString();
  for (int i = 0; i < kSequences; ++i) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ(response.sequences(i).layer_lens(static_cast<int>(layer)),
                sequences_[static_cast<size_t>(i)].layers[layer].len());
    }
    Close(sequences_[static_cast<size_t>(i)].id);
  }
  if (stream_ == nullptr) return;
  stream_->WritesDone();
  v1::AttendStreamResponse left;
  EXPECT_FALSE(stream_->Read(&left)) << "an answer too many";
  EXPECT_TRUE(stream_->Finish().ok());
}

}  // namespace attn::test
