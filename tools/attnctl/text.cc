#include "tools/attnctl/text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attn::ctl {
namespace {

// Bytes of UTF-8 that begin a code point.
bool Begins(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

size_t WidthOf(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), Begins));
}

// Three digits that tell something.
std::string ThreeDigits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::string text = absl::StrFormat("%.*f", decimals, value);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

template <size_t kCount>
std::string WithUnit(double value, double step, const std::array<const char*, kCount>& units) {
  size_t unit = 0;
  while (unit + 1 < units.size() && value >= step * 0.9995) {
    value /= step;
    ++unit;
  }
  return absl::StrCat(ThreeDigits(value), units[unit]);
}

}  // namespace

std::string Bytes(double bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return WithUnit(bytes, 1024, kUnits);
}

std::string Seconds(double seconds) {
  static constexpr std::array<const char*, 4> kUnits = {" ns", " us", " ms", " s"};
  return seconds == 0 ? "0" : WithUnit(seconds * 1e9, 1000, kUnits);
}

std::string Number(double value) {
  static constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  if (value < 9999.5) return ThreeDigits(value);
  return WithUnit(value, 1000, kUnits);
}

std::string Whole(double value) {
  std::string text = absl::StrFormat("%.0f", value);
  for (size_t at = text.size(); at > 3 && text[at - 4] != '-';) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string Printable(absl::string_view text) { return absl::Utf8SafeCEscape(text); }

std::string Fit(const std::string& text, size_t width) {
  if (WidthOf(text) <= width) return text;
  if (width == 0) return "";
  size_t end = 0;
  for (size_t points = 0; end < text.size(); ++end) {
    if (Begins(text[end]) && ++points == width) break;
  }
  return text.substr(0, end) + "…";
}

std::string Bar(double share, size_t width) {
  const size_t inner = std::max<size_t>(width, 2) - 2;
  const double bounded = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0;
  const auto filled = static_cast<size_t>(std::lround(bounded * static_cast<double>(inner)));
  return absl::StrCat("[", std::string(filled, '#'), std::string(inner - filled, '.'), "]");
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(WidthOf(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], WidthOf(row[i]));
  }
  std::string text;
  const auto add_row = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string space(widths[i] - WidthOf(cell), ' ');
      const bool is_left = columns_[i].align == Align::kLeft;
      absl::StrAppend(&line, i > 0 ? "  " : "", is_left ? cell : space, is_left ? space : cell);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  };
  add_row([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) {
    add_row([&](size_t i) -> const std::string& { return row[i]; });
  }
  return text;
}

}  // namespace attn::ctl
