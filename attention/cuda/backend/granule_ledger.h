// Which granules of an address range have memory, and when a stretch of memory may go back. Pages
// that are not multiples of a granule share some, and memory comes in runs of granules that can
// only be given back whole, so both are counted. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace attn::cuda {

struct GranuleRun {
  int64_t first = 0;
  int64_t count = 0;
  friend bool operator==(const GranuleRun&, const GranuleRun&) = default;
};

class GranuleLedger {
 public:
  explicit GranuleLedger(int64_t num_granules) : users_(static_cast<size_t>(num_granules)) {}

  // One more user of each granule of the run. Returns the runs, as long as they can be, that have
  // no memory yet; they count as having it from now on.
  std::vector<GranuleRun> Use(const GranuleRun& run);
  // One user less of each. Returns the runs, as Use once returned them, that nobody uses any more;
  // they have no memory from now on. REQUIRES: each granule has a user.
  std::vector<GranuleRun> Drop(const GranuleRun& run);
  // All runs that have memory.
  std::vector<GranuleRun> BackedRuns() const;

 private:
  struct Backed {
    GranuleRun run;
    int64_t used = 0;  // granules with users
  };
  // Null if the granule has no memory.
  Backed* Find(int64_t granule);

  std::vector<int32_t> users_;        // [num_granules]
  std::map<int64_t, Backed> backed_;  // by first granule
};

}  // namespace attn::cuda
