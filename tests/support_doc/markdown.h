// How the answers of the support table are written down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace attn::test {

// "computed", or "refused: `field`".
std::string Verdict(const absl::Status& answer);

// Rising values as runs: {1, 2, 3, 8, 16, 24} is "1 to 3, multiples of 8 from 8 to 24".
std::string Runs(const std::vector<uint32_t>& values);

// "| a | b |" and a line break; a bar in a cell is escaped.
std::string TableRow(const std::vector<std::string>& cells);
// TableRow and the line below a heading.
std::string TableHead(const std::vector<std::string>& cells);

}  // namespace attn::test
