// One measurement as one JSON line, with the fields that docs/benchmarks uses everywhere.
#pragma once

#include <string>

namespace attn::bench {

struct Measurement {
  std::string bench;  // cpu_prefill, cpu_decode, service, cache, engine, …
  std::string shape;  // field "case": the shape in words
  std::string metric;
  double value = 0;
  std::string unit;
  std::string rival;  // what it is compared with in the same run; empty: nothing
  double rival_value = 0;
  // Ours over the rival's where more is better, time over time where less is better.
  double ratio = 0;
};

// Remembers the command line and finds out device and commit (--commit=… on the command line, else
// `git describe` in the working directory, else "unknown").
void StartMeasurements(int argc, char** argv);
// Prints the line to standard output.
void Report(const Measurement& measurement);
// The processor's name and the number of cores this process may use.
std::string DeviceName();

}  // namespace attn::bench
