// The screen of `attnctl top`.
#pragma once

#include <string>

#include "attn/v1/admin.pb.h"

namespace attn::ctl {

struct LiveView {
  std::string address;
  double seconds = 1;  // between the two answers, above 0
  size_t width = 100;  // of a line, in characters
};

// Rates are those between the answers. After a restart of the server between them it says so, and
// shows rates no earlier than with the next answer.
std::string LiveText(const LiveView& view, const v1::GetStatsResponse& before,
                     const v1::GetStatsResponse& now);

}  // namespace attn::ctl
