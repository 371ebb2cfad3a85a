#include "tools/loadgen/options.h"

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::loadgen {
namespace {

struct Flag {
  const char* name;
  const char* help;
  // Stores the text; says what is allowed if it is not.
  std::function<const char*(const std::string&)> store;
  std::string shown_default;
};

Flag Text(const char* name, const char* help, std::string* value) {
  return {name, help,
          [value](const std::string& text) {
            *value = text;
            return nullptr;
          },
          *value};
}

template <typename Int>
Flag Count(const char* name, const char* help, Int* value, Int least) {
  return {name, help,
          [value, least](const std::string& text) -> const char* {
            Int parsed = 0;
            if (!absl::SimpleAtoi(text, &parsed) || parsed < least) {
              return least == 0 ? "want a whole number" : "want a whole number from 1";
            }
            *value = parsed;
            return nullptr;
          },
          absl::StrCat(*value)};
}

Flag Number(const char* name, const char* help, double* value, bool may_be_zero) {
  return {name, help,
          [value, may_be_zero](const std::string& text) -> const char* {
            double parsed = 0;
            if (!absl::SimpleAtod(text, &parsed) || !std::isfinite(parsed) || parsed < 0 ||
                (parsed == 0 && !may_be_zero)) {
              return may_be_zero ? "want a number from 0" : "want a number above 0";
            }
            *value = parsed;
            return nullptr;
          },
          absl::StrCat(*value)};
}

Flag Switch(const char* name, const char* help, bool* value) {
  return {name, help,
          [value](const std::string& text) -> const char* {
            if (!text.empty() && text != "true" && text != "false") return "want true or false";
            *value = text != "false";
            return nullptr;
          },
          "false"};
}

Flag Type(const char* name, const char* help, DType* value) {
  return {name, help,
          [value](const std::string& text) -> const char* {
            for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
              if (NameOf(dtype) == text) {
                *value = dtype;
                return nullptr;
              }
            }
            return "want float32, float16 or bfloat16";
          },
          std::string(NameOf(*value))};
}

std::vector<Flag> FlagsOf(Options* o) {
  return {
      Text("target", "server, host:port or unix:path", &o->target),
      Text("trace", "trace file: Azure .csv or Mooncake .jsonl; none: Poisson", &o->trace),
      Number("rate", "Poisson: requests per second", &o->rate, false),
      Count("context", "Poisson: mean prompt tokens", &o->context, 1u),
      Count("generated", "Poisson: mean generated tokens", &o->generated, 1u),
      Count("max-requests", "stop after so many; 0: whole trace", &o->max_requests, 0u),
      Number("time-scale", "factor on arrival times", &o->time_scale, true),
      Number("length-scale", "factor on context and generated lengths", &o->length_scale, false),
      Count("max-context", "longer prompts are cut to this; 0: never", &o->max_context, 0u),
      Count("seed", "of arrivals, tensors and sampling", &o->seed, uint64_t{0}),
      Count("layers", "layers of the model", &o->layers, 1u),
      Count("q-heads", "query heads", &o->q_heads, 1u),
      Count("kv-heads", "KV heads", &o->kv_heads, 1u),
      Count("head-dim", "dims per head", &o->head_dim, 1u),
      Type("dtype", "of q, k, v and the cache", &o->dtype),
      Count("page-size", "tokens per page; 0: the server's choice", &o->page_size, 0u),
      Count("windowed-layers", "last layers that have window and sinks", &o->windowed_layers, 0u),
      Count("window", "tokens a windowed row sees, its own counted", &o->window, 1u),
      Count("sinks", "sink logits per head of windowed layers", &o->sinks, 0u),
      Number("soft-cap", "logit soft cap of all layers; 0: none", &o->soft_cap, true),
      Count("clients", "engines, each with its own connection", &o->clients, 1u),
      Count("max-active", "sequences at once per engine", &o->max_active, 1u),
      Count("prefill-chunk", "prompt tokens per step and engine", &o->prefill_chunk, 1u),
      Number("verify", "share of rows to recompute in float64, 0..1", &o->verify, true),
      Switch("inject-bitflip", "corrupt one sent key; the run must fail", &o->inject_bitflip),
      Number("ttft-limit-ms", "goodput: longest time to first token", &o->ttft_limit_ms, false),
      Number("step-limit-ms", "goodput: longest mean time per token", &o->step_limit_ms, false),
      Switch("allow-late", "delayed sends do not fail the run", &o->allow_late),
      Text("json", "file for the report", &o->json),
  };
}

absl::Status CheckTogether(const Options& o) {
  if (o.verify > 1) {
    return MakeError(Reason::kInvalid, "--verify", absl::StrCat("got ", o.verify, ", want 0..1"));
  }
  if (o.q_heads % o.kv_heads != 0) {
    return MakeError(Reason::kInvalid, "--kv-heads",
                     absl::StrCat("got ", o.kv_heads, ", want a divisor of --q-heads=", o.q_heads));
  }
  if (o.head_dim % 8 != 0) {
    return MakeError(Reason::kInvalid, "--head-dim",
                     absl::StrCat("got ", o.head_dim, ", want a multiple of 8"));
  }
  if (o.windowed_layers > o.layers) {
    return MakeError(Reason::kInvalid, "--windowed-layers",
                     absl::StrCat("got ", o.windowed_layers, ", want at most --layers=", o.layers));
  }
  if (o.inject_bitflip && o.verify == 0) {
    return MakeError(Reason::kInvalid, "--inject-bitflip", "got no --verify, want one above 0");
  }
  if (o.trace.empty() && o.max_requests == 0) {
    return MakeError(Reason::kInvalid, "--max-requests", "got 0 without --trace, want at least 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(int num_flags, const char* const* flags) {
  Options options;
  const std::vector<Flag> known = FlagsOf(&options);
  for (int i = 0; i < num_flags; ++i) {
    absl::string_view text = flags[i];
    const bool is_flag = absl::ConsumePrefix(&text, "--");
    const size_t equals = text.find('=');
    const absl::string_view name = text.substr(0, equals);
    const std::string value(equals == text.npos ? "" : text.substr(equals + 1));
    const Flag* flag = nullptr;
    for (const Flag& candidate : known) {
      if (is_flag && name == candidate.name) flag = &candidate;
    }
    if (flag == nullptr) {
      return MakeError(Reason::kInvalid, flags[i], "no such flag; --help lists them");
    }
    if (const char* want = flag->store(value); want != nullptr) {
      return MakeError(Reason::kInvalid, absl::StrCat("--", name),
                       absl::StrCat("got \"", value, "\", ", want));
    }
  }
  ATTN_RETURN_IF_ERROR(CheckTogether(options));
  return options;
}

std::string Usage() {
  Options defaults;
  std::string text = "attn-loadgen: open-loop load on an attention server\n\n";
  for (const Flag& flag : FlagsOf(&defaults)) {
    absl::StrAppendFormat(&text, "  --%-22s %s%s%s\n", absl::StrCat(flag.name, "=…"), flag.help,
                          flag.shown_default.empty() ? "" : "; default ", flag.shown_default);
  }
  return text;
}

}  // namespace attn::loadgen
