// A real server on a port of its own, the stubs for it, and short ways to make requests.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attn/v1/attention.grpc.pb.h"
#include "server/rpc/server.h"
#include "tests/e2e/plain_attention.h"

namespace attn::test {

// Options for tests: port 0, 64 MiB of cache, one thread, short leases allowed, no linger.
server::ServerOptions TestOptions();

struct Stubs {
  // Connected, if a server is there.
  explicit Stubs(const std::string& address, grpc::ChannelArguments arguments = {});
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Server::Stub> server;
  std::unique_ptr<v1::Models::Stub> models;
  std::unique_ptr<v1::Sequences::Stub> sequences;
  std::unique_ptr<v1::Attention::Stub> attention;
};

// The server has the model "tiny". Ends the test if it cannot be started.
class TestServer {
 public:
  explicit TestServer(const server::ServerOptions& options = TestOptions(),
                      std::unique_ptr<Backend> backend = nullptr, server::Log* log = nullptr);

  server::Server& server() { return *server_; }
  Stubs& stubs() { return *stubs_; }

  // Of "tiny", one owner.
  std::vector<uint64_t> Open(int count, const std::string& owner = "test");
  uint64_t OpenOne(const std::string& owner = "test") { return Open(1, owner)[0]; }
  v1::AttendResponse Attend(const v1::AttendRequest& request);
  // The status of a unary Attend, and the attn.v1.Status of its details.
  grpc::Status AttendStatus(const v1::AttendRequest& request, v1::Status* detail = nullptr);
  v1::SequenceInfo Describe(uint64_t id);
  void Close(const std::vector<uint64_t>& ids);
  // Live and reserved pages, as the engine published them last.
  int64_t PagesInUse();
  // True once no page is in use and no call in flight; false if that does not happen within
  // `patience`.
  bool PagesComeBackWithin(std::chrono::milliseconds patience);

 private:
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<Stubs> stubs_;
};

// One item of a request under construction.
struct Step {
  uint64_t sequence = 0;
  uint32_t layer = 0;
  uint32_t expected_len = 0;
  uint32_t flags = 0;
  uint64_t token = 1;
  Rows q = {};
  Rows k = {};
  Rows v = {};
};

v1::AttendRequest MakeRequest(const std::vector<Step>& steps, bool return_lse = false);
v1::Tensor MakeTensor(const Rows& values, uint32_t heads);
std::vector<float> Floats(const v1::Tensor& tensor);

// A step that appends `count` random tokens to `kv` and asks with as many query rows.
Step AppendStep(Random& random, uint64_t sequence, uint32_t layer, int64_t count, PlainLayer* kv);

v1::Status DetailOf(const grpc::Status& status);

// Compares with `tolerance`; NaN only matches NaN.
void ExpectNear(const std::vector<float>& got, const std::vector<float>& want,
                double tolerance = 2e-5);

}  // namespace attn::test
