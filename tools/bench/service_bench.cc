// What the service costs over a bare gRPC stream: attn-server beside an echo server that returns
// the same bytes, in turns, each a process of its own, with one client code path.
//
//   service_bench [--server=PATH] [--rounds=N] [--seconds=S]
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attn/base/check.h"
#include "attn/client/client.h"
#include "tools/bench/caller.h"
#include "tools/bench/child_process.h"
#include "tools/bench/echo_server.h"
#include "tools/bench/measurement.h"

namespace attn::bench {
namespace {

constexpr uint32_t kLayers = 4;
constexpr int kCallers = 64;
constexpr int kConnections = 4;
constexpr const char* kAttendMethod = "/attn.v1.Attention/AttendStream";

struct Flags {
  std::string server;
  int rounds = 5;
  double seconds = 1;       // of one measurement
  std::string echo_answer;  // not empty: be the echo server
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  const std::string self = argv[0];
  flags.server = absl::StrCat(self.substr(0, self.rfind('/') + 1), "attn-server");
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (absl::ConsumePrefix(&text, "--server=")) {
      flags.server = std::string(text);
    } else if (absl::ConsumePrefix(&text, "--rounds=")) {
      ATTN_CHECK(absl::SimpleAtoi(text, &flags.rounds) && flags.rounds > 0, "--rounds=", text);
    } else if (absl::ConsumePrefix(&text, "--seconds=")) {
      ATTN_CHECK(absl::SimpleAtod(text, &flags.seconds) && flags.seconds > 0, "--seconds=", text);
    } else if (absl::ConsumePrefix(&text, "--echo-server=")) {
      flags.echo_answer = std::string(text);
    } else {
      ATTN_CHECK(absl::ConsumePrefix(&text, "--commit="), "unknown flag ", argv[i]);
    }
  }
  return flags;
}

struct Load {
  std::vector<double> round_trips_us;
  double rate = 0;          // answers per second
  double cpu_us = 0;        // of the server, per answer
  double launch_items = 0;  // mean over answers
};

double Percentile(std::vector<double> values, double share) {
  ATTN_CHECK(!values.empty(), "nothing was measured");
  const size_t index = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}

// A server under test: its process and connections to it.
struct Rival {
  std::unique_ptr<ChildProcess> process;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  std::string target;
};

Rival StartRival(const std::vector<std::string>& arguments) {
  Rival rival;
  rival.process = std::make_unique<ChildProcess>(arguments);
  const int port = rival.process->WaitForPort();
  ATTN_CHECK(port != 0, arguments[0], " did not start");
  rival.target = absl::StrCat("127.0.0.1:", port);
  for (int i = 0; i < kConnections; ++i) {
    grpc::ChannelArguments channel;
    channel.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    rival.stubs.push_back(std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(rival.target, grpc::InsecureChannelCredentials(), channel)));
  }
  return rival;
}

// `sequences`: one per caller.
Load Measure(Rival& rival, const std::vector<uint64_t>& sequences, double seconds) {
  std::vector<std::unique_ptr<Caller>> callers;
  for (size_t i = 0; i < sequences.size(); ++i) {
    callers.push_back(
        std::make_unique<Caller>(rival.stubs[i % rival.stubs.size()].get(), kAttendMethod,
                                 MessageMaker(sequences[i], kLayers, static_cast<uint32_t>(i))));
  }
  const Nanos start = Clock::Real().Now();
  const double cpu = rival.process->CpuSeconds();
  for (const auto& caller : callers) caller->Start();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  for (const auto& caller : callers) caller->Stop();
  Load load;
  double items = 0;
  for (const auto& caller : callers) {
    const CallerResult result = caller->Wait();
    ATTN_CHECK(result.failures == 0, result.failures, " failures: ", result.first_failure);
    load.round_trips_us.insert(load.round_trips_us.end(), result.round_trips_us.begin(),
                               result.round_trips_us.end());
    items += static_cast<double>(result.launch_items);
  }
  const double answers = static_cast<double>(load.round_trips_us.size());
  load.rate = answers / (static_cast<double>(Clock::Real().Now() - start) / kSecond);
  load.cpu_us = (rival.process->CpuSeconds() - cpu) * 1e6 / answers;
  load.launch_items = items / answers;
  return load;
}

// Sequences of the tiny model, fresh for each measurement.
class Sequences {
 public:
  explicit Sequences(const std::string& target) {
    auto client = client::Client::Connect(target);
    ATTN_CHECK(client.ok(), client.status().ToString());
    client_ = *std::move(client);
    client::ModelSpec spec;
    spec.name = "tiny";
    spec.num_layers = kLayers;
    client::LayerGroup group;
    for (uint32_t layer = 0; layer < kLayers; ++layer) group.layers.push_back(layer);
    group.num_q_heads = 2;
    group.num_kv_heads = 1;
    group.head_dim_qk = 16;
    spec.layer_groups = {group};
    const auto info = client_->DeclareModel(spec);
    ATTN_CHECK(info.ok(), info.status().ToString());
  }

  std::vector<uint64_t> Fresh(int count) {
    if (!open_.empty()) ATTN_CHECK(client_->Close(open_).ok(), "sequences do not close");
    client::OpenRequest request;
    request.model = "tiny";
    request.owner = "service_bench";
    request.num_sequences = static_cast<uint32_t>(count);
    const auto result = client_->OpenSequences(request);
    ATTN_CHECK(result.ok(), result.status().ToString());
    open_.clear();
    std::vector<uint64_t> ids;
    for (const auto& sequence : result->sequences) {
      ATTN_CHECK(sequence.ok(), sequence.status().ToString());
      open_.push_back(*sequence);
      ids.push_back(sequence->value);
    }
    return ids;
  }

 private:
  std::unique_ptr<client::Client> client_;
  std::vector<SequenceId> open_;
};

// The bytes of an answer to a tiny item, as large as those of the server under test.
void WriteAnswer(const std::string& path) {
  v1::AttendStreamResponse answer;
  answer.set_request_id(1000);
  v1::AttendResponse* attend = answer.mutable_attend();
  attend->add_new_lens(100);
  v1::Timing* timing = attend->mutable_timing();
  timing->set_queue_ns(20'000);
  timing->set_input_ns(2'000);
  timing->set_compute_ns(20'000);
  timing->set_output_ns(2'000);
  timing->set_launch_items(1);
  timing->set_launch_q_rows(1);
  attend->mutable_out()->set_dtype(v1::DATA_TYPE_FLOAT32);
  for (const int64_t extent : {1, 2, 16}) attend->mutable_out()->add_shape(extent);
  attend->mutable_out()->set_raw(std::string(2 * 16 * sizeof(float), '\0'));
  std::ofstream(path) << answer.SerializeAsString();
}

// One kind of load: rounds of echo and server in turns, all round trips kept.
struct Comparison {
  std::vector<Load> echo;
  std::vector<Load> ours;
};

Comparison Compare(const Flags& flags, Rival& echo, Rival& ours, Sequences& sequences,
                   int num_callers) {
  Comparison comparison;
  // The first round warms up.
  for (int round = 0; round <= flags.rounds; ++round) {
    const std::vector<uint64_t> ids = sequences.Fresh(num_callers);
    Load of_echo = Measure(echo, ids, flags.seconds);
    Load of_ours = Measure(ours, ids, flags.seconds);
    if (round == 0) continue;
    comparison.echo.push_back(std::move(of_echo));
    comparison.ours.push_back(std::move(of_ours));
  }
  return comparison;
}

template <typename Get>
double Median(const std::vector<Load>& loads, Get get) {
  std::vector<double> values;
  for (const Load& load : loads) values.push_back(get(load));
  return Percentile(std::move(values), 0.5);
}

template <typename Get>
void ReportAgainstEcho(const Comparison& comparison, const std::string& shape,
                       const std::string& metric, const std::string& unit, Get get) {
  Measurement m;
  m.bench = "service";
  m.shape = shape;
  m.metric = metric;
  m.unit = unit;
  m.value = Median(comparison.ours, get);
  m.rival = "bare gRPC stream echo of the same bytes";
  m.rival_value = Median(comparison.echo, get);
  // Median of the rounds' ratios: what disturbs the machine disturbs both of a round.
  std::vector<double> ratios;
  for (size_t i = 0; i < comparison.ours.size(); ++i) {
    ratios.push_back(get(comparison.ours[i]) / get(comparison.echo[i]));
  }
  m.ratio = Percentile(ratios, 0.5);
  Report(m);
}

void ReportAlone(const std::string& shape, const std::string& metric, const std::string& unit,
                 double value) {
  Measurement m;
  m.bench = "service";
  m.shape = shape;
  m.metric = metric;
  m.unit = unit;
  m.value = value;
  Report(m);
}

void ReportIdle(const Rival& ours) {
  const double cpu = ours.process->CpuSeconds();
  const Nanos start = Clock::Real().Now();
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const double seconds = static_cast<double>(Clock::Real().Now() - start) / kSecond;
  ReportAlone("idle server, 64 open sequences", "cpu", "% of a core",
              100 * (ours.process->CpuSeconds() - cpu) / seconds);
}

// "name=12" of the server's last lines; -1 if it does not say.
double NumberIn(const std::string& text, const std::string& name) {
  const size_t at = text.find(name + "=");
  return at == text.npos ? -1 : std::atof(text.c_str() + at + name.size() + 1);
}

void RunAll(const Flags& flags, const std::string& self) {
  const std::string answer = absl::StrCat("/tmp/service_bench_answer_", getpid());
  WriteAnswer(answer);
  Rival echo = StartRival({self, absl::StrCat("--echo-server=", answer)});
  Rival ours = StartRival({flags.server, "--listen=127.0.0.1:0"});
  std::remove(answer.c_str());
  Sequences sequences(ours.target);

  const Comparison alone = Compare(flags, echo, ours, sequences, 1);
  ReportAgainstEcho(alone, "AttendStream, one tiny item at a time", "round trip p50", "us",
                    [](const Load& load) { return Percentile(load.round_trips_us, 0.5); });
  const Comparison crowd = Compare(flags, echo, ours, sequences, kCallers);
  const std::string shape = absl::StrCat("AttendStream, ", kCallers, " one-token callers");
  ReportAgainstEcho(crowd, shape, "rate", "messages/s", [](const Load& load) { return load.rate; });
  const auto cpu = [](const Load& load) { return load.cpu_us; };
  ReportAgainstEcho(crowd, shape, "server cpu per message", "us", cpu);
  ReportAlone(shape, "server cpu per message over the echo's", "us",
              Median(crowd.ours, cpu) - Median(crowd.echo, cpu));
  ReportAlone(shape, "items per launch, mean over messages", "items",
              Median(crowd.ours, [](const Load& load) { return load.launch_items; }));
  ReportIdle(ours);
  const std::string last_words = ours.process->Stop();
  const double mixed = NumberIn(last_words, "multi_client_multi_layer_launches");
  const double launches = NumberIn(last_words, "launches");
  if (mixed >= 0 && launches > 0) {
    ReportAlone(shape, "launches of at least 2 layers and 2 clients",
                "share of all launches of the run, those of lone callers included",
                mixed / launches);
  }
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  const attn::bench::Flags flags = attn::bench::ParseFlags(argc, argv);
  if (!flags.echo_answer.empty()) return attn::bench::RunEchoServer(flags.echo_answer);
  attn::bench::StartMeasurements(argc, argv);
  attn::bench::RunAll(flags, argv[0]);
  return 0;
}
