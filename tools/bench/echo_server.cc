#include "tools/bench/echo_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <iterator>

namespace attn::bench {
namespace {

class EchoReactor : public grpc::ServerGenericBidiReactor {
 public:
  explicit EchoReactor(const grpc::ByteBuffer* answer) : answer_(answer) { StartRead(&incoming_); }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      StartWrite(answer_);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnWriteDone(bool ok) override {
    if (ok) StartRead(&incoming_);
  }
  void OnDone() override { delete this; }

  const grpc::ByteBuffer* const answer_;
  grpc::ByteBuffer incoming_;
};

class EchoService : public grpc::CallbackGenericService {
 public:
  explicit EchoService(const grpc::ByteBuffer* answer) : answer_(answer) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new EchoReactor(answer_);
  }

 private:
  const grpc::ByteBuffer* const answer_;
};

}  // namespace

int RunEchoServer(const std::string& answer_file) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::ifstream in(answer_file);
  const grpc::Slice slice(
      std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>()));
  const grpc::ByteBuffer answer(&slice, 1);
  EchoService service(&answer);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::printf("listening port=%d\n", port);
  std::fflush(stdout);
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace attn::bench
