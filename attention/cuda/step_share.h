// How prefill and decode of one step share a device. Decode waits for memory and prefill for the
// tensor cores, so side by side they take less than one after the other, if prefill, whose CTAs
// fill an SM each and stay, leaves enough SMs to decode. No bit of a result depends on the share.
//
// The model and its constants were fitted on an H200 (tools/bench/gpu/mixed_bench.cc): 32 decodes
// at 8K beside a chunk of 2K rows take 0.85 of the sum.
#pragma once

#include <algorithm>
#include <cstdint>

namespace attn::cuda {

struct StepWork {
  double decode_bytes = 0;   // of keys and values
  double forward_flops = 0;  // of visible (row, key) pairs
};

namespace step_share {

inline constexpr double kDeviceBytesPerUs = 4.4e6;
inline constexpr double kDeviceFlopsPerUs = 5.6e8;
inline constexpr double kDecodeStartUs = 6;
inline constexpr double kForwardStartUs = 5;
// Decode reaches its full rate on this part of the SMs, and beside prefill never more than the
// second part of it.
inline constexpr double kDecodeSmFraction = 0.55;
inline constexpr double kDecodeRateBesideForward = 0.9;

// Until both are done; the SMs of prefill go over to decode, never the other way round.
constexpr double StepUs(double decode_us, double forward_us, int forward_ctas, int num_sms) {
  const double forward_until = forward_us * num_sms / forward_ctas;
  const double rate =
      std::min(kDecodeRateBesideForward, (num_sms - forward_ctas) / (kDecodeSmFraction * num_sms));
  return forward_until + std::max(0.0, decode_us - rate * forward_until);
}

}  // namespace step_share

// CTAs that the forward kernel should get while a decode kernel is queued behind it on another
// stream. All SMs where there is only one of both.
constexpr int ForwardCtasBesideDecode(const StepWork& work, int num_sms) {
  if (work.decode_bytes <= 0 || work.forward_flops <= 0) return num_sms;
  const double decode_us =
      work.decode_bytes / step_share::kDeviceBytesPerUs + step_share::kDecodeStartUs;
  const double forward_us =
      work.forward_flops / step_share::kDeviceFlopsPerUs + step_share::kForwardStartUs;
  int best = num_sms;
  double best_us = step_share::StepUs(decode_us, forward_us, best, num_sms);
  for (int ctas = num_sms - 4; ctas >= 8; ctas -= 4) {
    const double us = step_share::StepUs(decode_us, forward_us, ctas, num_sms);
    if (us < best_us) {
      best = ctas;
      best_us = us;
    }
  }
  return best;
}

}  // namespace attn::cuda
