// Families of the metric table become those of prometheus-cpp, whose Exposer serves them.
#include "server/rpc/metrics_endpoint.h"

#include <netdb.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <future>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attn/base/error.h"
#include "server/core/metric_table.h"

namespace attn::server {
namespace {

// Scrapes come one at a time; the second thread is for whoever looks on meanwhile.
constexpr char kNumThreads[] = "2";
// A client that sends nothing keeps a thread no longer than this.
constexpr char kRequestTimeoutMs[] = "5000";
constexpr std::chrono::milliseconds kStopPoll(10);

// Connects and hangs up. `host` may stand in brackets.
void Knock(absl::string_view host, const std::string& service) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo wanted{};
  wanted.ai_flags = AI_NUMERICSERV;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(std::string(host).c_str(), service.c_str(), &wanted, &found) != 0) return;
  const int socket_fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_fd >= 0) {
    connect(socket_fd, found->ai_addr, found->ai_addrlen);
    close(socket_fd);
  }
  freeaddrinfo(found);
}

prometheus::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram HistogramOf(const MetricDistribution& distribution) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_count = distribution.cumulative_counts.back();
  histogram.sample_sum = distribution.sum;
  for (size_t i = 0; i < distribution.upper_bounds.size(); ++i) {
    histogram.bucket.push_back({distribution.cumulative_counts[i], distribution.upper_bounds[i]});
  }
  histogram.bucket.push_back({histogram.sample_count, std::numeric_limits<double>::infinity()});
  return histogram;
}

prometheus::MetricFamily FamilyOf(MetricFamily family) {
  prometheus::MetricFamily shown;
  shown.name = std::move(family.name);
  shown.help = std::move(family.help);
  shown.type = TypeOf(family.type);
  for (const MetricSample& sample : family.samples) {
    prometheus::ClientMetric& metric = shown.metric.emplace_back();
    for (size_t i = 0; i < family.label_names.size(); ++i) {
      metric.label.push_back({family.label_names[i], sample.label_values[i]});
    }
    metric.counter.value = metric.gauge.value = sample.value;
    if (family.type == MetricType::kHistogram) metric.histogram = HistogramOf(sample.distribution);
  }
  return shown;
}

class TableCollectable final : public prometheus::Collectable {
 public:
  explicit TableCollectable(const RpcContext* context) : context_(*context) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (MetricFamily& family : Snapshot(context_.Sources())) {
      families.push_back(FamilyOf(std::move(family)));
    }
    return families;
  }

 private:
  const RpcContext& context_;
};

}  // namespace

class MetricsEndpoint::Exposition {
 public:
  // Throws when it cannot listen: the only way in which prometheus-cpp says so.
  Exposition(const std::string& listen, const RpcContext* context)
      : table_(std::make_shared<TableCollectable>(context)),
        exposer_(std::make_unique<prometheus::Exposer>(
            std::vector<std::string>{"listening_ports", listen, "num_threads", kNumThreads,
                                     "request_timeout_ms", kRequestTimeoutMs})),
        host_(listen.substr(0, listen.rfind(':'))) {
    exposer_->RegisterCollectable(table_);
  }
  // The listening thread looks every two seconds whether it is to stop, and after every connection.
  ~Exposition() {
    const std::string service = absl::StrCat(port());
    auto stopped = std::async(std::launch::async, [this] { exposer_.reset(); });
    while (stopped.wait_for(kStopPoll) != std::future_status::ready) Knock(host_, service);
  }
  Exposition(const Exposition&) = delete;
  Exposition& operator=(const Exposition&) = delete;

  const std::string& host() const { return host_; }
  int port() const { return exposer_->GetListeningPorts().at(0); }

 private:
  const std::shared_ptr<TableCollectable> table_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  const std::string host_;  // as the option has it
};

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(const std::string& listen,
                                                                        const RpcContext* context) {
  std::unique_ptr<Exposition> exposition;
  try {
    exposition = std::make_unique<Exposition>(listen, context);
  } catch (const std::exception&) {  // says only that it failed
    return MakeError(Reason::kInvalid, "--metrics-listen",
                     absl::StrCat("got ", listen,
                                  ", which cannot be listened on, want a free HOST:PORT of this "
                                  "host"));
  }
  std::unique_ptr<MetricsEndpoint> endpoint(new MetricsEndpoint(std::move(exposition)));
  endpoint->port_ = endpoint->exposition_->port();
  endpoint->address_ = absl::StrCat(endpoint->exposition_->host(), ":", endpoint->port_);
  return endpoint;
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<Exposition> exposition)
    : exposition_(std::move(exposition)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

}  // namespace attn::server
