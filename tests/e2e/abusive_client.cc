#include "tests/e2e/abusive_client.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/test_server.h"

namespace attn::test {
namespace {

class AbusiveClient {
 public:
  AbusiveClient(std::string target, uint64_t seed)
      : target_(std::move(target)),
        random_(seed),
        stubs_(target_),
        owner_("abusive " + std::to_string(seed)) {}

  void ActOnce() {
    switch (random_.Integer(0, 6)) {
      case 0:
      case 1:
        return CallInAHurry();
      case 2:
      case 3:
        return StreamAndCancel();
      case 4:
        return LeaveUnread();
      case 5:
        return CutTheConnection();
      default:
        return ForkAndForget();
    }
  }

 private:
  std::vector<uint64_t> Open(int count) {
    v1::OpenSequencesRequest request;
    request.set_model("tiny");
    request.set_owner(owner_);
    request.set_lease_ms(200);
    for (int i = 0; i < count; ++i) request.add_items();
    grpc::ClientContext context;
    v1::OpenSequencesResponse response;
    stubs_.sequences->OpenSequences(&context, request, &response).IgnoreError();
    return {response.sequence_ids().begin(), response.sequence_ids().end()};
  }

  // Most calls are late, and some names, lengths and tensors are wrong.
  void CallInAHurry() {
    const std::vector<uint64_t> ids = Open(3);
    for (const uint64_t id : ids) {
      PlainLayer kv;
      for (int i = 0; i < 10; ++i) {
        Step step = AppendStep(random_, id, 0, random_.Integer(1, 40), &kv);
        if (random_.Chance(0.1)) step.sequence ^= uint64_t{1} << random_.Integer(0, 63);
        if (random_.Chance(0.1)) step.expected_len = static_cast<uint32_t>(random_.Next());
        v1::AttendRequest request = MakeRequest({step});
        if (random_.Chance(0.1)) request.mutable_k()->mutable_raw()->resize(7);
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::microseconds(random_.Integer(50, 3000)));
        v1::AttendResponse response;
        stubs_.attention->Attend(&context, request, &response).IgnoreError();
      }
    }
  }

  v1::AttendStreamRequest OpenWithAlias() {
    v1::AttendStreamRequest open;
    open.set_request_id(1);
    open.mutable_open()->set_model("tiny");
    open.mutable_open()->set_owner(owner_);
    open.mutable_open()->set_close_with_stream(random_.Chance(0.5));
    open.mutable_open()->set_lease_ms(200);
    open.mutable_open()->add_items()->set_alias(7);
    return open;
  }

  // Sends much, cancels some of it, reads some answers, and goes.
  void StreamAndCancel() {
    grpc::ClientContext context;
    const auto stream = stubs_.attention->AttendStream(&context);
    stream->Write(OpenWithAlias());
    PlainLayer kv;
    const int64_t count = random_.Integer(1, 60);
    for (int64_t id = 2; id < 2 + count; ++id) {
      v1::AttendStreamRequest message;
      message.set_request_id(static_cast<uint64_t>(id));
      if (random_.Chance(0.1)) {
        message.mutable_cancel()->add_request_ids(static_cast<uint64_t>(id) - 1);
      } else {
        *message.mutable_attend() =
            MakeRequest({AppendStep(random_, 7, 0, random_.Integer(1, 50), &kv)});
      }
      if (random_.Chance(0.2)) message.set_timeout_us(500);
      if (!stream->Write(message)) break;
    }
    v1::AttendStreamResponse response;
    for (int64_t reads = random_.Integer(0, count); reads > 0; --reads) {
      if (!stream->Read(&response)) break;
    }
    if (random_.Chance(0.3)) {
      stream->WritesDone();
      while (stream->Read(&response)) {
      }
    } else {
      context.TryCancel();
    }
    stream->Finish().IgnoreError();
  }

  // The stream lives on, unread, until this process is killed or the next one takes its place.
  void LeaveUnread() {
    if (unread_context_ != nullptr) unread_context_->TryCancel();
    unread_stream_.reset();
    unread_context_ = std::make_unique<grpc::ClientContext>();
    unread_context_->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    unread_stream_ = stubs_.attention->AttendStream(unread_context_.get());
    unread_stream_->Write(OpenWithAlias());
    const Rows q = RandomRows(random_, 100, kQHeads);
    for (uint64_t id = 2; id < 30; ++id) {
      v1::AttendStreamRequest message;
      message.set_request_id(id);
      *message.mutable_attend() = MakeRequest({{.sequence = 7, .q = q}});
      unread_stream_->Write(message);
    }
  }

  // Some of an HTTP/2 connection, or of anything, then a reset or an end.
  void CutTheConnection() {
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<uint16_t>(std::stoi(target_.substr(target_.rfind(':') + 1))));
    if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      std::string bytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
      for (int64_t i = random_.Integer(0, 100); i > 0; --i) {
        bytes.push_back(static_cast<char>(random_.Next()));
      }
      bytes.resize(static_cast<size_t>(random_.Integer(1, static_cast<int64_t>(bytes.size()))));
      send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      const linger reset = {.l_onoff = random_.Chance(0.5), .l_linger = 0};
      setsockopt(connection, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    close(connection);
  }

  void ForkAndForget() {
    const std::vector<uint64_t> ids = Open(2);
    if (ids.empty()) return;
    PlainLayer kv;
    grpc::ClientContext attend_context;
    v1::AttendResponse attended;
    stubs_.attention
        ->Attend(&attend_context, MakeRequest({AppendStep(random_, ids[0], 0, 30, &kv)}), &attended)
        .IgnoreError();
    v1::ForkSequencesRequest request;
    for (int i = 0; i < 3; ++i) {
      v1::ForkSequencesRequest::Item* const item = request.add_items();
      item->set_parent_id(ids[0]);
      item->set_num_children(static_cast<uint32_t>(random_.Integer(0, 4)));
      if (random_.Chance(0.5)) item->set_at_len(static_cast<uint32_t>(random_.Integer(0, 40)));
    }
    grpc::ClientContext context;
    v1::ForkSequencesResponse response;
    stubs_.sequences->ForkSequences(&context, request, &response).IgnoreError();
  }

  const std::string target_;
  Random random_;
  Stubs stubs_;
  const std::string owner_;
  std::unique_ptr<grpc::ClientContext> unread_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>>
      unread_stream_;
};

}  // namespace

void RunAbusiveClient(const std::string& target, uint64_t seed) {
  AbusiveClient client(target, seed);
  for (;;) client.ActOnce();
}

}  // namespace attn::test
