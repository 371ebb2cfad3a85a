// Numbers and counts a hostile client would try: the largest value in every integer field of every
// request, and a million of whatever costs the sender two bytes. All is answered at once, and
// nothing of that size is made.
#include <gmock/gmock.h>
#include <google/protobuf/reflection.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/test_server.h"
#include "tests/support/process_memory.h"

namespace attn::test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using ::testing::AnyOf;
using ::testing::UnorderedElementsAreArray;
using Path = std::vector<const FieldDescriptor*>;

constexpr int64_t kMuch = 24 << 20;  // bytes

// ------------------------------------------------------------------------ the largest of a field

bool IsInteger(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return true;
    default:
      return false;
  }
}

// The first entry, which is made if there is none.
Message* MutableChild(Message* message, const FieldDescriptor* field) {
  const Reflection& reflection = *message->GetReflection();
  if (!field->is_repeated()) return reflection.MutableMessage(message, field);
  if (reflection.FieldSize(*message, field) == 0) return reflection.AddMessage(message, field);
  return reflection.MutableRepeatedMessage(message, field, 0);
}

// All integer fields that `message` can hold, through the messages that it does hold.
void FindIntegers(const Message& message, const Path& parent, std::vector<Path>* found) {
  const Reflection& reflection = *message.GetReflection();
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    Path path = parent;
    path.push_back(field);
    if (IsInteger(*field)) {
      found->push_back(path);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const bool present = field->is_repeated() ? reflection.FieldSize(message, field) > 0
                                                : reflection.HasField(message, field);
      if (!present) continue;
      FindIntegers(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, 0)
                                        : reflection.GetMessage(message, field),
                   path, found);
    }
  }
}

// In the first entry, which is added if there is none.
template <typename T>
void SetFirst(Message* message, const FieldDescriptor* field, T value) {
  auto entries = message->GetReflection()->GetMutableRepeatedFieldRef<T>(message, field);
  if (entries.size() == 0) {
    entries.Add(value);
  } else {
    entries.Set(0, value);
  }
}

void SetLargest(Message* message, const Path& path) {
  for (size_t i = 0; i + 1 < path.size(); ++i) message = MutableChild(message, path[i]);
  const FieldDescriptor* field = path.back();
  const Reflection& reflection = *message->GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? SetFirst(message, field, INT32_MAX)
                      : reflection.SetInt32(message, field, INT32_MAX);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? SetFirst(message, field, int64_t{INT64_MAX})
                      : reflection.SetInt64(message, field, INT64_MAX);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? SetFirst(message, field, UINT32_MAX)
                      : reflection.SetUInt32(message, field, UINT32_MAX);
    default:
      return repeated ? SetFirst(message, field, uint64_t{UINT64_MAX})
                      : reflection.SetUInt64(message, field, UINT64_MAX);
  }
}

std::string NameOf(const Path& path) {
  std::string name;
  for (const FieldDescriptor* field : path) name += (name.empty() ? "" : ".") + field->name();
  return name;
}

// ----------------------------------------------------------------------------- what is answered

// Of the first item that failed, or of the whole; OK if nothing did.
v1::Reason FirstReason(const Message& response) {
  const FieldDescriptor* errors = response.GetDescriptor()->FindFieldByName("errors");
  const Reflection& reflection = *response.GetReflection();
  if (errors == nullptr || reflection.FieldSize(response, errors) == 0) return v1::REASON_OK;
  return static_cast<const v1::ItemError&>(reflection.GetRepeatedMessage(response, errors, 0))
      .status()
      .reason();
}

class ExtremesTest : public ::testing::Test {
 protected:
  template <typename Request, typename Response, typename Stub>
  v1::Reason Send(Stub& stub,
                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    return status.ok() ? FirstReason(response) : DetailOf(status).reason();
  }

  v1::Reason SendInStream(const v1::AttendStreamRequest& request) {
    grpc::ClientContext context;
    const auto stream = server_.stubs().attention->AttendStream(&context);
    stream->Write(request);
    stream->WritesDone();
    v1::AttendStreamResponse answer;
    EXPECT_TRUE(stream->Read(&answer));
    EXPECT_TRUE(stream->Finish().ok());
    if (answer.has_status()) return answer.status().reason();
    const FieldDescriptor* kind = answer.GetReflection()->GetOneofFieldDescriptor(
        answer, answer.GetDescriptor()->FindOneofByName("response"));
    return kind == nullptr ? v1::REASON_UNSPECIFIED
                           : FirstReason(answer.GetReflection()->GetMessage(answer, kind));
  }

  // `make` makes a good request anew and `send` says how it fares. Expects that with one integer
  // field at its largest it is refused, unless the field is among `accepted`.
  template <typename Request, typename Make, typename SendIt>
  void ExpectRefusals(const Make& make, const SendIt& send, std::vector<std::string> accepted) {
    const Request good = make();
    EXPECT_EQ(send(good), v1::REASON_OK);
    std::vector<Path> paths;
    FindIntegers(good, {}, &paths);
    std::vector<std::string> taken;
    for (const Path& path : paths) {
      Request request = make();
      SetLargest(&request, path);
      const v1::Reason reason = send(request);
      if (reason == v1::REASON_OK) {
        taken.push_back(NameOf(path));
      } else {
        EXPECT_THAT(reason, AnyOf(v1::REASON_INVALID, v1::REASON_UNSUPPORTED, v1::REASON_TOO_LARGE,
                                  v1::REASON_UNKNOWN_SEQUENCE, v1::REASON_STALE_SEQUENCE))
            << NameOf(path);
      }
    }
    EXPECT_THAT(taken, UnorderedElementsAreArray(accepted)) << good.GetTypeName();
  }

  // The same for a message of a stream, whose own two fields may be of any value.
  void ExpectStreamRefusals(const std::function<void(v1::AttendStreamRequest*)>& fill,
                            std::vector<std::string> accepted) {
    accepted.insert(accepted.end(), {"request_id", "timeout_us"});
    const auto make = [&fill] {
      v1::AttendStreamRequest request;
      request.set_request_id(1);
      fill(&request);
      return request;
    };
    ExpectRefusals<v1::AttendStreamRequest>(
        make, [this](const v1::AttendStreamRequest& request) { return SendInStream(request); },
        std::move(accepted));
  }

  // Of two layers with five tokens each.
  uint64_t NewSequence() {
    const uint64_t id = server_.OpenOne();
    PlainLayer kv[kLayers];
    std::vector<Step> steps;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      steps.push_back(AppendStep(random_, id, layer, 5, &kv[layer]));
    }
    server_.Attend(MakeRequest(steps));
    return id;
  }

  v1::AttendRequest NewAttend() {
    PlainLayer kv;
    return MakeRequest({AppendStep(random_, server_.OpenOne(), 0, 2, &kv)});
  }

  TestServer server_;
  Random random_{85};
};

// Accepted: positions and windows as wide as the numbers go, keys and tokens, which are random, and
// the largest alias.
TEST_F(ExtremesTest, TheLargestNumberInAnyFieldOfAUnaryRequestIsRefusedOrHarmless) {
  Stubs& stubs = server_.stubs();
  const MemoryMark mark;
  int models = 0;
  ExpectRefusals<v1::DeclareModelRequest>(
      [&models] {
        v1::DeclareModelRequest request;
        *request.mutable_spec() = TinySpec("model" + std::to_string(++models));
        request.mutable_spec()->mutable_layer_groups()->SwapElements(0, 1);  // first: the windowed
        return request;
      },
      [&](const auto& request) {
        return Send(*stubs.models, &v1::Models::Stub::DeclareModel, request);
      },
      {"spec.layer_groups.window.left", "spec.layer_groups.window.right",
       "spec.layer_groups.window_slack"});
  ExpectRefusals<v1::ListModelsRequest>([] { return v1::ListModelsRequest(); },
                                        [&](const auto& request) {
                                          return Send(*stubs.models, &v1::Models::Stub::ListModels,
                                                      request);
                                        },
                                        {"max_models"});
  ExpectRefusals<v1::DescribeSequencesRequest>(
      [this] {
        v1::DescribeSequencesRequest request;
        request.add_sequence_ids(NewSequence());
        return request;
      },
      [&](const auto& request) {
        return Send(*stubs.sequences, &v1::Sequences::Stub::DescribeSequences, request);
      },
      {});
  ExpectRefusals<v1::AttendRequest>([this] { return NewAttend(); },
                                    [&](const auto& request) {
                                      return Send(*stubs.attention, &v1::Attention::Stub::Attend,
                                                  request);
                                    },
                                    {"append_tokens", "q_starts"});
  EXPECT_LT(mark.growth(), kMuch);
}

TEST_F(ExtremesTest, TheLargestNumberInAnyFieldOfAStreamsRequestIsRefusedOrHarmless) {
  using Request = v1::AttendStreamRequest;
  const MemoryMark mark;
  ExpectStreamRefusals([this](Request* r) { *r->mutable_attend() = NewAttend(); },
                       {"attend.append_tokens", "attend.q_starts"});
  ExpectStreamRefusals(
      [](Request* r) {
        r->mutable_open()->set_model("tiny");
        r->mutable_open()->set_owner("test");
        r->mutable_open()->add_items();
      },
      {"open.request_key", "open.items.alias"});
  ExpectStreamRefusals(
      [this](Request* r) {
        auto* item = r->mutable_fork()->add_items();
        item->set_parent_id(NewSequence());
        item->set_num_children(1);
      },
      {"fork.request_key", "fork.items.first_alias"});
  ExpectStreamRefusals(
      [this](Request* r) {
        r->mutable_reorder()->add_targets(NewSequence());
        r->mutable_reorder()->add_sources(NewSequence());
      },
      {"reorder.request_key"});
  ExpectStreamRefusals(
      [this](Request* r) { r->mutable_truncate()->add_items()->set_sequence_id(NewSequence()); },
      {"truncate.request_key"});
  ExpectStreamRefusals([this](Request* r) { r->mutable_close()->add_sequence_ids(NewSequence()); },
                       {});
  ExpectStreamRefusals([](Request* r) { r->mutable_renew()->set_owner("test"); }, {});
  ExpectStreamRefusals([](Request* r) { r->mutable_cancel()->add_request_ids(7); },
                       {"cancel.request_ids"});
  EXPECT_LT(mark.growth(), kMuch);
}

// ----------------------------------------------------------------- a million of two bytes each

void AppendVarint(size_t value, std::string* out) {
  for (; value > 0x7f; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// A field that holds these bytes.
std::string Field(uint32_t number, const std::string& bytes) {
  std::string out;
  AppendVarint(number << 3 | 2, &out);
  AppendVarint(bytes.size(), &out);
  return out + bytes;
}

constexpr int kMillion = 1'000'000;

std::string MillionEmpty(uint32_t number) {
  std::string out;
  for (int i = 0; i < kMillion; ++i) out += Field(number, "");
  return out;
}

grpc::Status CallWithBytes(Stubs& stubs, const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(stubs.channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  grpc::ByteBuffer response;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  const auto call =
      stub.PrepareUnaryCall(&context, "/attn.v1." + method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok) && ok);
  return status;
}

// How a stream ends whose only message these bytes are.
grpc::Status StreamBytes(Stubs& stubs, const std::string& bytes) {
  grpc::GenericStub stub(stubs.channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  const auto next = [&] { return queue.Next(&tag, &ok) && ok; };
  const auto stream = stub.PrepareCall(&context, "/attn.v1.Attention/AttendStream", &queue);
  stream->StartCall(nullptr);
  EXPECT_TRUE(next());
  stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  EXPECT_TRUE(next());
  stream->Finish(&status, nullptr);
  EXPECT_TRUE(next());
  return status;
}

TEST_F(ExtremesTest, AMillionOfAnythingIsRefusedBeforeItIsMade) {
  // Field numbers of attention.proto.
  const std::string open_items = MillionEmpty(7);
  const std::string shape = Field(28, Field(2, std::string(8 * kMillion, '\0')));
  const std::string unknown_numbers(2 * kMillion, '\x78');
  std::string unknown_groups;
  for (int i = 0; i < kMillion; ++i) unknown_groups += "\x7b\x7c";
  const struct {
    const char* method;
    const std::string& bytes;
    const char* field;
  } cases[] = {
      {"Sequences/OpenSequences", open_items, "items"},
      {"Sequences/ForkSequences", MillionEmpty(3), "items"},
      {"Sequences/TruncateSequences", MillionEmpty(3), "items"},
      {"Models/DeclareModel", Field(1, MillionEmpty(6)), "spec.layer_groups"},
      {"Attention/Attend", shape, "q.shape"},
      {"Attention/Attend", MillionEmpty(15), "unknown"},
      {"Models/GetModel", unknown_numbers, "unknown"},
      {"Sequences/RenewLease", unknown_groups, "unknown"},
      {nullptr, Field(10, open_items), "open.items"},
      {nullptr, Field(8, shape), "attend.q.shape"},
  };
  for (const auto& [method, bytes, field] : cases) {
    SCOPED_TRACE(method == nullptr ? "stream" : method);
    const MemoryMark mark;
    const grpc::Status status = method == nullptr ? StreamBytes(server_.stubs(), bytes)
                                                  : CallWithBytes(server_.stubs(), method, bytes);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(DetailOf(status).field(), field);
    EXPECT_LT(mark.growth(), kMuch + 4 * static_cast<int64_t>(bytes.size()));
  }
  EXPECT_GT(NewSequence(), 0u);  // and it still serves
}

TEST_F(ExtremesTest, AsManyItemsAsAnnouncedAreNotTooMany) {
  const int count = static_cast<int>(TestOptions().limits.max_items_per_request);
  const std::vector<uint64_t> ids = server_.Open(count);
  std::vector<Step> steps;
  PlainLayer kv;
  for (const uint64_t id : ids) {
    kv = {};
    steps.push_back(AppendStep(random_, id, 0, 1, &kv));
  }
  const v1::AttendRequest attend = MakeRequest(steps);
  EXPECT_EQ(Send(*server_.stubs().attention, &v1::Attention::Stub::Attend, attend), v1::REASON_OK);
  v1::TruncateSequencesRequest truncate;
  for (const uint64_t id : ids) truncate.add_items()->set_sequence_id(id);
  EXPECT_EQ(Send(*server_.stubs().sequences, &v1::Sequences::Stub::TruncateSequences, truncate),
            v1::REASON_OK);
}

}  // namespace
}  // namespace attn::test
