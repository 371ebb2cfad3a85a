#include "tests/support_doc/markdown.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "attn/base/error.h"

namespace attn::test {
namespace {

// One past the last of the values from `first` on that lie `step` apart.
size_t EndOfRun(const std::vector<uint32_t>& values, size_t first, uint32_t step) {
  size_t end = first + 1;
  while (end < values.size() && values[end] - values[end - 1] == step) ++end;
  return end;
}

}  // namespace

std::string Verdict(const absl::Status& answer) {
  return answer.ok() ? "computed" : absl::StrCat("refused: `", FieldOf(answer), "`");
}

std::string Runs(const std::vector<uint32_t>& values) {
  std::vector<std::string> runs;
  for (size_t at = 0; at < values.size();) {
    const uint32_t step = at + 1 < values.size() ? values[at + 1] - values[at] : 1;
    const size_t end = EndOfRun(values, at, step);
    if (end - at < 3) {
      runs.push_back(absl::StrCat(values[at]));
      ++at;
      continue;
    }
    const std::string range = absl::StrCat(values[at], " to ", values[end - 1]);
    runs.push_back(step == 1 ? range : absl::StrCat("multiples of ", step, " from ", range));
    at = end;
  }
  return runs.empty() ? "none" : absl::StrJoin(runs, ", ");
}

std::string TableRow(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    absl::StrAppend(&row, " ", absl::StrReplaceAll(cell, {{"|", "\\|"}}), " |");
  }
  return absl::StrCat(row, "\n");
}

std::string TableHead(const std::vector<std::string>& cells) {
  return TableRow(cells) + TableRow(std::vector<std::string>(cells.size(), "---"));
}

}  // namespace attn::test
