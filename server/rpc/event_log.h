// Every event that a server logs, one function each: its name, its level and its fields. What
// clients can cause at will is written a few times a second at most (server/log.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attn/base/clock.h"
#include "server/core/engine_observer.h"
#include "server/core/stats.h"
#include "server/log.h"

namespace attn::server {

// Any thread.
class EventLog final : public EngineObserver {
 public:
  // `log` (null: nothing is written) and `clock` outlive this.
  explicit EventLog(Log* log, const Clock* clock = &Clock::Real()) : log_(log), clock_(*clock) {}

  void Options(const std::vector<LogField>& options);
  void Started(absl::string_view version, absl::string_view device, absl::string_view address);
  // A call was answered with an error as a whole. `request_id` is the client's; 0: it has none.
  void CallRefused(absl::string_view request, uint64_t request_id, const absl::Status& status);
  void Stalled(Nanos stands_still);
  void Recovered();
  void DrainBegan(size_t calls_in_flight, size_t open_streams);
  // Tells of all lines held back, too: none will follow.
  void DrainEnded(Nanos took, size_t calls_unanswered, size_t streams_open);

  void DeviceLost(const absl::Status& status) override;
  void ModelDeclared(const std::string& name) override;
  void ModelRemoved(const std::string& name) override;
  void OwnerExpired(const std::string& owner, size_t num_sequences) override;

  // Tells of lines that were held back and that no later line has told of. To be called about once
  // a second.
  void ReportHeldBack();

 private:
  void Write(LogLevel level, absl::string_view event, const std::vector<LogField>& fields);
  // As Write, within `limit`.
  void WriteFew(LineLimit* limit, LogLevel level, absl::string_view event,
                std::vector<LogField> fields);
  // As ReportHeldBack, as if it were `now`.
  void ReportHeldBackBy(Nanos now);

  Log* const log_;
  const Clock& clock_;
  ByReason<LineLimit> refusals_;
  LineLimit expirations_;
};

}  // namespace attn::server
