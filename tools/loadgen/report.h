// A run's results as a text table and as JSON.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/loadgen/load_run.h"

namespace attn::loadgen {

std::string TextReport(const Options& options, const RunReport& report);
// One object. `verdict` and `why` as Judge gave them.
std::string JsonReport(const Options& options, const RunReport& report, Verdict verdict,
                       const std::string& why);
absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace attn::loadgen
