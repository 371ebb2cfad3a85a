// Numbers and names for people, and tables of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attn::ctl {

// "0", "12", "4.5 KiB", "1.2 GiB".
std::string Bytes(double bytes);
// "0", "85 us", "1.2 ms", "3.4 s".
std::string Seconds(double seconds);
// At most four digits before the point and no more of them than tell something: "0", "0.25",
// "12.5", "1234", "56.8k", "3.2M".
std::string Number(double value);
// "1,234,567".
std::string Whole(double value);

// For a terminal: control bytes as escapes. UTF-8, as strings of messages are, stays.
std::string Printable(absl::string_view text);
// Cut to `width` code points, the last one then being "…".
std::string Fit(const std::string& text, size_t width);
// "[###...]" of `width` characters, `share` (0 to 1) of them filled.
std::string Bar(double share, size_t width);

// Columns as wide as their longest entry; words to the left, numbers to the right.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many as there are columns.
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // With its titles, a line a row.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace attn::ctl
