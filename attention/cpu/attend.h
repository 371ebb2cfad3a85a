// The attention kernels of the CPU, dispatched to the best instruction set at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/cpu/head_work.h"
#include "attention/cpu/scratch.h"

namespace attn::cpu {

// Packed rows [row_begin, row_end) of an entry, online over key tiles in order. Writes out and lse.
// REQUIRES: at most kMaxRows rows, class prefill.
void AttendPrefill(const HeadWork& work, int32_t row_begin, int32_t row_end, Scratch& scratch);

// A part of a decode result: [rows] maxima, [rows] sums, [rows][out_stride] outputs, unnormalised
// and relative to the maximum, so that merging needs one fused operation per element and no
// logarithm; normalising waits for the end.
struct PartialShape {
  size_t rows = 0;
  size_t out_stride = 0;

  static PartialShape Of(const HeadWork& work);
  size_t floats() const { return rows * (2 + out_stride); }
};

// All rows of a decode entry over leaves [leaf_begin, leaf_end), an aligned run: begin and end are
// multiples of the same power of two no smaller than their distance, or the limits of the visible
// leaves. With a `partial` ([PartialShape::floats()]) the result goes there, else the run is the
// whole and out and lse are written. REQUIRES: class decode.
void AttendDecode(const HeadWork& work, int64_t leaf_begin, int64_t leaf_end, Scratch& scratch,
                  float* partial);

// Merges the partials of consecutive runs of `run_leaves` leaves (a power of two), the first at run
// index `first_run`, and writes out and lse.
void MergeRuns(const HeadWork& work, const float* partials, int64_t first_run, int64_t num_runs,
               Scratch& scratch);

// "AVX3" and the like: what runs on this machine.
const char* TargetName();

}  // namespace attn::cpu
