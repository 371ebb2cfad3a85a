// attn-health: asks a server for its health once, for probes that run a command.
//
//   attn-health [ADDRESS [SERVICE]]
//
// ADDRESS as gRPC writes it, 127.0.0.1:50051 by default. SERVICE: "attn.v1.Attention", the data
// path, by default. Ends with 0 if it is serving, else with 1.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace {

constexpr const char* kUsage = "attn-health [ADDRESS [SERVICE, at most 127 bytes]]";
constexpr std::chrono::seconds kPatience{2};

// The messages of grpc.health.v1, whose proto file Debian does not ship: a request is field 1, the
// service; an answer is field 1, the state, of which 1 is SERVING.
constexpr size_t kLongestService = 127;  // its length is then one byte

std::string EncodeRequest(const std::string& service) {
  return std::string("\x0a") + static_cast<char>(service.size()) + service;
}

bool SaysServing(const grpc::ByteBuffer& answer) {
  grpc::Slice flat;
  if (!answer.DumpToSingleSlice(&flat).ok()) return false;
  return std::string(reinterpret_cast<const char*>(flat.begin()), flat.size()) == "\x08\x01";
}

grpc::Status Check(const std::string& address, const std::string& service,
                   grpc::ByteBuffer* answer) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::CompletionQueue queue;
  const grpc::Slice request(EncodeRequest(service));
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                          grpc::ByteBuffer(&request, 1), &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string address = argc > 1 ? argv[1] : "127.0.0.1:50051";
  const std::string service = argc > 2 ? argv[2] : "attn.v1.Attention";
  if (address == "--help") return std::puts(kUsage) < 0;
  if (argc > 3 || address.rfind('-', 0) == 0 || service.size() > kLongestService) {
    std::fprintf(stderr, "%s\n", kUsage);
    return 2;
  }
  grpc::ByteBuffer answer;
  const grpc::Status status = Check(address, service, &answer);
  if (!status.ok()) {
    std::fprintf(stderr, "attn-health: %s: %s\n", address.c_str(), status.error_message().c_str());
    return 1;
  }
  const bool serving = SaysServing(answer);
  std::printf("%s\n", serving ? "SERVING" : "NOT_SERVING");
  return serving ? 0 : 1;
}
