#include "tools/loadgen/trace_reader.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::loadgen {
namespace {

constexpr absl::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

absl::Status BadLine(int line, absl::string_view what) {
  return MakeError(Reason::kInvalid, absl::StrCat("line ", line), what);
}

absl::StatusOr<uint32_t> ParseLength(int line, absl::string_view name, absl::string_view text) {
  uint32_t length = 0;
  if (!absl::SimpleAtoi(text, &length) || length == 0) {
    return BadLine(line, absl::StrCat(name, " \"", text, "\", want a whole number from 1"));
  }
  return length;
}

// Checks order of magnitude only: files are sorted afterwards, and start at 0.
void StartAtZero(std::vector<TraceRequest>* requests) {
  std::stable_sort(requests->begin(), requests->end(),
                   [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
  const Nanos first = requests->empty() ? 0 : requests->front().arrival;
  for (TraceRequest& request : *requests) request.arrival -= first;
}

absl::StatusOr<TraceRequest> ParseAzureLine(int line, absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, ',');
  if (fields.size() != 3) {
    return BadLine(line, absl::StrCat(fields.size(), " fields, want 3"));
  }
  absl::Time time;
  std::string error;
  if (!absl::ParseTime("%Y-%m-%d %H:%M:%E*S", fields[0], &time, &error)) {
    return BadLine(line, absl::StrCat("timestamp \"", fields[0], "\": ", error));
  }
  TraceRequest request;
  request.arrival = absl::ToUnixNanos(time);
  ATTN_ASSIGN_OR_RETURN(request.context_len, ParseLength(line, "ContextTokens", fields[1]));
  ATTN_ASSIGN_OR_RETURN(request.generated_len, ParseLength(line, "GeneratedTokens", fields[2]));
  return request;
}

// The number behind "name": in a flat JSON object, as text.
absl::StatusOr<absl::string_view> JsonNumber(int line, absl::string_view object,
                                             absl::string_view name) {
  const std::string key = absl::StrCat("\"", name, "\"");
  const size_t at = object.find(key);
  if (at == object.npos) return BadLine(line, absl::StrCat("no ", key));
  absl::string_view rest = absl::StripLeadingAsciiWhitespace(object.substr(at + key.size()));
  if (!absl::StartsWith(rest, ":")) return BadLine(line, absl::StrCat("no value of ", key));
  rest = absl::StripLeadingAsciiWhitespace(rest.substr(1));
  return absl::StripAsciiWhitespace(rest.substr(0, rest.find_first_of(",}")));
}

absl::StatusOr<TraceRequest> ParseMooncakeLine(int line, absl::string_view text) {
  if (!absl::StartsWith(text, "{") || !absl::EndsWith(text, "}")) {
    return BadLine(line, "no JSON object");
  }
  TraceRequest request;
  double milliseconds = 0;
  ATTN_ASSIGN_OR_RETURN(const auto timestamp, JsonNumber(line, text, "timestamp"));
  if (!absl::SimpleAtod(timestamp, &milliseconds) || !(milliseconds >= 0 && milliseconds < 1e12)) {
    return BadLine(line, absl::StrCat("timestamp \"", timestamp, "\", want milliseconds"));
  }
  request.arrival = static_cast<Nanos>(milliseconds * kMillisecond);
  ATTN_ASSIGN_OR_RETURN(const auto input, JsonNumber(line, text, "input_length"));
  ATTN_ASSIGN_OR_RETURN(request.context_len, ParseLength(line, "input_length", input));
  ATTN_ASSIGN_OR_RETURN(const auto output, JsonNumber(line, text, "output_length"));
  ATTN_ASSIGN_OR_RETURN(request.generated_len, ParseLength(line, "output_length", output));
  return request;
}

}  // namespace

absl::StatusOr<std::vector<TraceRequest>> ReadAzureTrace(std::istream& in) {
  std::vector<TraceRequest> requests;
  int line = 0;
  for (std::string text; std::getline(in, text);) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(text);
    if (++line == 1) {
      if (stripped != kAzureHeader) {
        return BadLine(line, absl::StrCat("\"", stripped, "\", want \"", kAzureHeader, "\""));
      }
      continue;
    }
    if (stripped.empty()) continue;
    ATTN_ASSIGN_OR_RETURN(const TraceRequest request, ParseAzureLine(line, stripped));
    requests.push_back(request);
  }
  if (requests.empty()) return BadLine(line, "the trace ends without a request");
  StartAtZero(&requests);
  return requests;
}

absl::StatusOr<std::vector<TraceRequest>> ReadMooncakeTrace(std::istream& in) {
  std::vector<TraceRequest> requests;
  int line = 0;
  for (std::string text; std::getline(in, text);) {
    ++line;
    const absl::string_view stripped = absl::StripAsciiWhitespace(text);
    if (stripped.empty()) continue;
    ATTN_ASSIGN_OR_RETURN(const TraceRequest request, ParseMooncakeLine(line, stripped));
    requests.push_back(request);
  }
  if (requests.empty()) return BadLine(line, "the trace ends without a request");
  StartAtZero(&requests);
  return requests;
}

absl::StatusOr<std::vector<TraceRequest>> ReadTraceFile(const std::string& path) {
  const bool is_azure = absl::EndsWith(path, ".csv");
  if (!is_azure && !absl::EndsWith(path, ".jsonl")) {
    return MakeError(Reason::kInvalid, path, "got another ending, want .csv or .jsonl");
  }
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  auto requests = is_azure ? ReadAzureTrace(in) : ReadMooncakeTrace(in);
  if (!requests.ok()) {
    return MakeError(Reason::kInvalid, path, requests.status().message());
  }
  return requests;
}

}  // namespace attn::loadgen
