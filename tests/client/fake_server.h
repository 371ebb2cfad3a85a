// A server that speaks just enough of attn.v1 to test a client: it keeps lengths and append tokens,
// computes nothing (out is q cut to shape, so that each row can be recognised), and misbehaves on
// command.
#pragma once

#include <grpcpp/server.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/v1/attention.grpc.pb.h"

namespace attn::client {

v1::Status WireError(Reason reason, const std::string& field, const std::string& message,
                     uint32_t retry_after_ms = 0);
// As a unary call ends with it.
grpc::Status GrpcError(const v1::Status& status);

class FakeServer {
 public:
  FakeServer();
  ~FakeServer();

  // Listens on a free port, or on the one it had before Stop.
  void Start();
  void Stop();
  std::string target() const;

  // What the server does with requests; set before they come.
  struct Faults {
    // Called per unary or stream Attend, counted from 0. A status that is not OK refuses the
    // request as a whole.
    std::function<v1::Status(int nth)> refuse;
    // As `refuse`, for each single item.
    std::function<v1::Status(int nth, int item)> refuse_item;
    // The request is carried out, and then the connection is cut (streams) or the call ends
    // UNAVAILABLE (unary) in place of the answer.
    std::function<bool(int nth)> drop_answer;
    // Neither carried out nor answered until the stream ends.
    std::function<bool(int nth)> hold;
    // Streams: flow advice in front of every answer.
    std::function<void(v1::Flow*)> flow;
  };
  void SetFaults(Faults faults);
  void SetLimits(const v1::Limits& limits);
  void SetEpoch(uint64_t epoch);

  // What has come in so far.
  std::vector<v1::AttendRequest> attends() const;
  std::vector<v1::AttendStreamRequest> stream_messages() const;
  int num_streams() const;
  int num_renewals() const;
  std::vector<uint64_t> request_keys() const;  // of OpenSequences
  size_t max_message_bytes_seen() const;
  uint32_t LengthOf(uint64_t sequence, uint32_t layer) const;

 private:
  class AttentionService;
  class SequencesService;
  class ModelsService;
  class ServerService;
  struct Layer {
    uint32_t len = 0;
    std::map<uint64_t, uint32_t> tokens;  // append token -> expected_len
  };

  // Carries out one request; all state is under mutex_.
  v1::AttendResponse AttendLocked(const v1::AttendRequest& request, int nth);
  v1::OpenSequencesResponse OpenLocked(const v1::OpenSequencesRequest& request);
  int NoteAttendLocked(const v1::AttendRequest& request);

  std::unique_ptr<AttentionService> attention_;
  std::unique_ptr<SequencesService> sequences_;
  std::unique_ptr<ModelsService> models_;
  std::unique_ptr<ServerService> info_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;

  mutable std::mutex mutex_;
  Faults faults_;
  v1::Limits limits_;
  uint64_t epoch_ = 77;
  uint64_t next_sequence_ = (uint64_t{1} << 48) + 1;
  std::map<std::pair<uint64_t, uint32_t>, Layer> layers_;
  std::map<uint64_t, v1::OpenSequencesResponse> opened_;  // by request_key
  std::vector<v1::AttendRequest> attends_;
  std::vector<v1::AttendStreamRequest> stream_messages_;
  std::vector<uint64_t> request_keys_;
  int num_streams_ = 0;
  int num_renewals_ = 0;
  size_t max_message_bytes_seen_ = 0;
};

}  // namespace attn::client
