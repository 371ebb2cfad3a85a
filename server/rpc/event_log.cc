#include "server/rpc/event_log.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attn/base/error.h"

namespace attn::server {
namespace {

// Whose doing a refusal is: the server's, its load's, or the client's.
LogLevel LevelOf(Reason reason) {
  switch (reason) {
    case Reason::kInternal:
    case Reason::kDeviceLost:
    case Reason::kDataLoss:
      return LogLevel::kError;
    case Reason::kNoPages:
    case Reason::kQueueFull:
    case Reason::kQuota:
      return LogLevel::kWarning;
    default:
      return LogLevel::kInfo;
  }
}

LogField Number(const char* key, uint64_t value) { return {key, absl::StrCat(value)}; }

LogField SecondsField(Nanos time) {
  return {"seconds", absl::StrFormat("%.3f", static_cast<double>(time) / kSecond)};
}

}  // namespace

void EventLog::Write(LogLevel level, absl::string_view event, const std::vector<LogField>& fields) {
  if (log_ != nullptr) log_->Write(level, event, fields);
}

void EventLog::WriteFew(LineLimit* limit, LogLevel level, absl::string_view event,
                        std::vector<LogField> fields) {
  const std::optional<uint64_t> held_back = limit->Admit(clock_.Now());
  if (!held_back.has_value()) return;
  if (*held_back > 0) fields.push_back(Number("held_back", *held_back));
  Write(level, event, fields);
}

void EventLog::Options(const std::vector<LogField>& options) {
  Write(LogLevel::kInfo, "options", options);
}

void EventLog::Started(absl::string_view version, absl::string_view device,
                       absl::string_view address) {
  Write(LogLevel::kInfo, "start",
        {{"version", std::string(version)},
         {"device", std::string(device)},
         {"address", std::string(address)}});
}

void EventLog::ModelDeclared(const std::string& name) {
  Write(LogLevel::kInfo, "model_declared", {{"model", name}});
}

void EventLog::ModelRemoved(const std::string& name) {
  Write(LogLevel::kInfo, "model_removed", {{"model", name}});
}

void EventLog::CallRefused(absl::string_view request, uint64_t request_id,
                           const absl::Status& status) {
  if (log_ == nullptr) return;
  const Reason reason = ReasonOf(status);
  std::vector<LogField> fields = {{"reason", std::string(attn::NameOf(reason))},
                                  {"request", std::string(request)}};
  if (request_id != 0) fields.push_back(Number("request_id", request_id));
  fields.push_back({"message", std::string(status.message())});
  WriteFew(&refusals_[reason], LevelOf(reason), "call_refused", std::move(fields));
}

void EventLog::Stalled(Nanos stands_still) {
  Write(LogLevel::kError, "stall", {SecondsField(stands_still)});
}

void EventLog::Recovered() { Write(LogLevel::kInfo, "recovery", {}); }

void EventLog::DrainBegan(size_t calls_in_flight, size_t open_streams) {
  Write(LogLevel::kInfo, "drain_begins",
        {Number("calls", calls_in_flight), Number("streams", open_streams)});
}

void EventLog::DrainEnded(Nanos took, size_t calls_unanswered, size_t streams_open) {
  ReportHeldBackBy(kNever);
  const bool is_clean = calls_unanswered == 0 && streams_open == 0;
  Write(is_clean ? LogLevel::kInfo : LogLevel::kWarning, "drain_ends",
        {SecondsField(took), Number("calls", calls_unanswered), Number("streams", streams_open)});
}

void EventLog::DeviceLost(const absl::Status& status) {
  Write(LogLevel::kError, "device_lost", {{"message", std::string(status.message())}});
}

void EventLog::OwnerExpired(const std::string& owner, size_t num_sequences) {
  WriteFew(&expirations_, LogLevel::kInfo, "owner_expired",
           {{"owner", owner}, Number("sequences", num_sequences)});
}

void EventLog::ReportHeldBack() { ReportHeldBackBy(clock_.Now()); }

void EventLog::ReportHeldBackBy(Nanos now) {
  for (size_t i = 0; i < kNumReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    if (const uint64_t count = refusals_[reason].TakeHeldBack(now); count > 0) {
      Write(LevelOf(reason), "call_refused",
            {{"reason", std::string(attn::NameOf(reason))}, Number("held_back", count)});
    }
  }
  if (const uint64_t count = expirations_.TakeHeldBack(now); count > 0) {
    Write(LogLevel::kInfo, "owner_expired", {Number("held_back", count)});
  }
}

}  // namespace attn::server
