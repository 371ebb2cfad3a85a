#include "server/options.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::server {
namespace {

// A flag with a whole number. `unit` scales it to what the option holds.
struct NumberFlag {
  const char* name;
  const char* help;
  int64_t min;
  int64_t max;
  bool bytes;  // takes the suffixes K, M, G, T (powers of 1024)
  int64_t (*get)(const ServerOptions&);
  void (*set)(ServerOptions*, int64_t);
};

struct TextFlag {
  const char* name;
  const char* help;
  std::string ServerOptions::*member;
};

constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

#define ATTN_FLAG(flag, text, low, high, is_bytes, member, unit)                           \
  NumberFlag {                                                                             \
    flag, text, low, high, is_bytes,                                                       \
        [](const ServerOptions& options) {                                                 \
          return static_cast<int64_t>(options.member) / int64_t{unit};                     \
        },                                                                                 \
        [](ServerOptions* options, int64_t value) {                                        \
          options->member = static_cast<decltype(options->member)>(value * int64_t{unit}); \
        }                                                                                  \
  }

const std::vector<TextFlag>& TextFlags() {
  static const auto* const flags = new std::vector<TextFlag>{
      {"listen", "HOST:PORT (port 0: any free one) or unix:PATH", &ServerOptions::listen},
      {"backend", "cpu, cuda, or auto: cuda where there is a usable GPU, else cpu",
       &ServerOptions::backend},
      {"metrics-listen", "HOST:PORT of metrics over HTTP (port 0: any free one); empty: none",
       &ServerOptions::metrics_listen},
      {"admin", "attn.v1.Admin, for attnctl: on, off, or auto: if --listen is of this host only",
       &ServerOptions::admin},
      {"log-level", "error, warning or info: the least serious lines to log",
       &ServerOptions::log_level},
      {"models", "file of attn.v1.ModelsConfig in text format, declared at start",
       &ServerOptions::models_file},
  };
  return *flags;
}

const std::vector<NumberFlag>& NumberFlags() {
  static const auto* const flags = new std::vector<NumberFlag>{
      ATTN_FLAG("device", "GPU of the cuda backend, as CUDA numbers them", 0, 1023, false, device,
                1),
      ATTN_FLAG("threads", "computing threads of the cpu backend; 0: all cores but one", 0, 1024,
                false, num_threads, 1),
      ATTN_FLAG("kv-bytes", "byte budget of all pages of all models", 1 << 20, int64_t{1} << 50,
                true, engine.kv_bytes, 1),
      ATTN_FLAG("max-sequences", "open sequences", 1, 1 << 24, false, engine.max_sequences, 1),
      ATTN_FLAG("max-sequence-len", "tokens of one sequence", 1, 1 << 30, false,
                engine.max_sequence_len, 1),
      ATTN_FLAG("remembered-appends", "appends per sequence and layer that can be repeated", 1,
                1024, false, engine.remembered_appends, 1),
      ATTN_FLAG("chunk-us", "prefill is cut so that a step stays near this", 100, 10'000'000, false,
                engine.chunk_time, kMicrosecond),
      ATTN_FLAG("max-batch-wait-us", "longest wait for more calls before a launch; 0: never", 0,
                1'000'000, false, engine.max_batch_wait, kMicrosecond),
      ATTN_FLAG("max-launch-items", "items in one launch", 1, 1 << 20, false,
                engine.max_launch_items, 1),
      ATTN_FLAG("max-queue-items", "items accepted and not answered", 1, 1 << 30, false,
                engine.queue.max_items, 1),
      ATTN_FLAG("max-queue-bytes", "tensor bytes accepted and not answered", 1 << 20,
                int64_t{1} << 50, true, engine.queue.max_bytes, 1),
      ATTN_FLAG("max-queue-ms", "calls that would wait longer are refused; 0: none is", 0,
                3'600'000, false, engine.queue.max_wait, kMillisecond),
      ATTN_FLAG("max-message-bytes", "size of a request, and of an answer", 1 << 10,
                int64_t{1} << 30, true, limits.max_message_bytes, 1),
      ATTN_FLAG("max-items", "items of one request", 1, 1 << 20, false,
                limits.max_items_per_request, 1),
      ATTN_FLAG("max-q-rows", "query rows of one request, and new keys", 1, kMaxUint32, false,
                limits.max_q_rows_per_request, 1),
      ATTN_FLAG("max-in-flight", "requests in flight on one stream", 1, 65536, false,
                limits.max_in_flight_per_stream, 1),
      ATTN_FLAG("min-lease-ms", "shortest lease", 1, kMaxUint32, false, limits.min_lease_ms, 1),
      ATTN_FLAG("max-lease-ms", "longest lease", 1, kMaxUint32, false, limits.max_lease_ms, 1),
      ATTN_FLAG("default-lease-ms", "lease of those who ask for none", 1, kMaxUint32, false,
                limits.default_lease_ms, 1),
      ATTN_FLAG("grace-ms", "longest drain after SIGTERM", 0, 3'600'000, false, grace,
                kMillisecond),
      ATTN_FLAG("linger-ms", "a drain refuses new calls this long before it closes connections", 0,
                60'000, false, linger, kMillisecond),
      ATTN_FLAG("unread-ms", "a drain cancels streams whose client takes no answer for this long",
                1, 3'600'000, false, unread_time, kMillisecond),
      ATTN_FLAG("stall-ms", "work without a step for this long is reported as NOT_SERVING", 100,
                3'600'000, false, stall_time, kMillisecond),
  };
  return *flags;
}

#undef ATTN_FLAG

std::optional<int64_t> ParseNumber(absl::string_view text, bool bytes) {
  int shift = 0;
  if (bytes && !text.empty()) {
    const size_t unit = absl::string_view("KMGT").find(text.back());
    if (unit != absl::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) return std::nullopt;
  if (value > (std::numeric_limits<int64_t>::max() >> shift)) return std::nullopt;
  return value << shift;
}

absl::Status SetNumber(const NumberFlag& flag, absl::string_view text, ServerOptions* options) {
  const std::optional<int64_t> value = ParseNumber(text, flag.bytes);
  if (value.has_value() && *value >= flag.min && *value <= flag.max) {
    flag.set(options, *value);
    return absl::OkStatus();
  }
  return MakeError(Reason::kInvalid, absl::StrCat("--", flag.name),
                   absl::StrCat("got \"", text, "\", want ", flag.min, " to ", flag.max,
                                flag.bytes ? ", with K, M, G or T if you like" : ""));
}

absl::Status SetFlag(absl::string_view name, absl::string_view value, ServerOptions* options) {
  for (const TextFlag& flag : TextFlags()) {
    if (name != flag.name) continue;
    options->*flag.member = std::string(value);
    return absl::OkStatus();
  }
  for (const NumberFlag& flag : NumberFlags()) {
    if (name == flag.name) return SetNumber(flag, value, options);
  }
  return MakeError(Reason::kInvalid, absl::StrCat("--", name),
                   "unknown flag, want one of those that --help lists");
}

absl::Status CheckMetricsListen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  const bool is_address = colon != std::string::npos && colon > 0 &&
                          absl::SimpleAtoi(listen.substr(colon + 1), &port) && port >= 0 &&
                          port <= 65535;
  if (listen.empty() || is_address) return absl::OkStatus();
  return MakeError(Reason::kInvalid, "--metrics-listen",
                   absl::StrCat("got \"", listen, "\", want HOST:PORT, or nothing for none"));
}

absl::Status CheckTogether(const ServerOptions& options) {
  if (options.backend != "cpu" && options.backend != "cuda" && options.backend != "auto") {
    return MakeError(Reason::kInvalid, "--backend",
                     absl::StrCat("got \"", options.backend, "\", want cpu, cuda or auto"));
  }
  if (options.admin != "auto" && options.admin != "on" && options.admin != "off") {
    return MakeError(Reason::kInvalid, "--admin",
                     absl::StrCat("got \"", options.admin, "\", want auto, on or off"));
  }
  if (!ParseLogLevel(options.log_level).has_value()) {
    return MakeError(Reason::kInvalid, "--log-level",
                     absl::StrCat("got \"", options.log_level, "\", want error, warning or info"));
  }
  ATTN_RETURN_IF_ERROR(CheckMetricsListen(options.metrics_listen));
  const WireLimits& limits = options.limits;
  if (limits.min_lease_ms > limits.default_lease_ms ||
      limits.default_lease_ms > limits.max_lease_ms) {
    return MakeError(Reason::kInvalid, "--default-lease-ms",
                     absl::StrCat("got ", limits.default_lease_ms, ", want ", limits.min_lease_ms,
                                  " to ", limits.max_lease_ms));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServerOptions> ParseServerOptions(const std::vector<std::string>& arguments) {
  ServerOptions options;
  for (const std::string& argument : arguments) {
    absl::string_view text = argument;
    const bool is_flag = absl::ConsumePrefix(&text, "--");
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (!is_flag || !absl::StrContains(text, "=")) {
      return MakeError(Reason::kInvalid, argument, "want flags of the form --name=value");
    }
    ATTN_RETURN_IF_ERROR(SetFlag(parts.first, parts.second, &options));
  }
  ATTN_RETURN_IF_ERROR(CheckTogether(options));
  return options;
}

bool ServerOptions::OffersAdmin() const {
  if (admin != "auto") return admin == "on";
  if (absl::StartsWith(listen, "unix:")) return true;
  const std::string host = listen.substr(0, listen.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

std::vector<LogField> ServerOptions::Fields() const {
  std::vector<LogField> fields;
  for (const TextFlag& flag : TextFlags()) fields.push_back({flag.name, this->*flag.member});
  for (const NumberFlag& flag : NumberFlags()) {
    fields.push_back({flag.name, absl::StrCat(flag.get(*this))});
  }
  return fields;
}

std::string ServerOptions::ToString() const {
  const auto append = [](std::string* line, const LogField& field) {
    absl::StrAppend(line, field.key, "=", field.value);
  };
  return absl::StrJoin(Fields(), " ", append);
}

std::string ServerHelp() {
  const ServerOptions defaults;
  std::string text = "attn-server [--flag=value ...]\n";
  for (const TextFlag& flag : TextFlags()) {
    absl::StrAppendFormat(&text, "  --%-20s %s (default \"%s\")\n", flag.name, flag.help,
                          defaults.*flag.member);
  }
  for (const NumberFlag& flag : NumberFlags()) {
    absl::StrAppendFormat(&text, "  --%-20s %s; %d to %d (default %d)\n", flag.name, flag.help,
                          flag.min, flag.max, flag.get(defaults));
  }
  return text;
}

}  // namespace attn::server
