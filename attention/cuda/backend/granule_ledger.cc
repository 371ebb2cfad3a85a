#include "attention/cuda/backend/granule_ledger.h"

#include <iterator>

#include "attn/base/check.h"

namespace attn::cuda {

GranuleLedger::Backed* GranuleLedger::Find(int64_t granule) {
  auto next = backed_.upper_bound(granule);
  if (next == backed_.begin()) return nullptr;
  Backed& backed = std::prev(next)->second;
  return granule < backed.run.first + backed.run.count ? &backed : nullptr;
}

std::vector<GranuleRun> GranuleLedger::Use(const GranuleRun& run) {
  std::vector<GranuleRun> fresh;
  for (int64_t granule = run.first; granule < run.first + run.count; ++granule) {
    if (users_[static_cast<size_t>(granule)]++ > 0) continue;
    if (Backed* backed = Find(granule)) {
      ++backed->used;
    } else if (!fresh.empty() && fresh.back().first + fresh.back().count == granule) {
      ++fresh.back().count;
    } else {
      fresh.push_back({granule, 1});
    }
  }
  for (const GranuleRun& added : fresh) backed_[added.first] = {added, added.count};
  return fresh;
}

std::vector<GranuleRun> GranuleLedger::Drop(const GranuleRun& run) {
  std::vector<GranuleRun> unused;
  for (int64_t granule = run.first; granule < run.first + run.count; ++granule) {
    int32_t& users = users_[static_cast<size_t>(granule)];
    ATTN_CHECK(users > 0, "granule ", granule, " has no user");
    if (--users > 0) continue;
    Backed* backed = Find(granule);
    if (--backed->used > 0) continue;
    unused.push_back(backed->run);
    backed_.erase(backed->run.first);
  }
  return unused;
}

std::vector<GranuleRun> GranuleLedger::BackedRuns() const {
  std::vector<GranuleRun> runs;
  for (const auto& [first, backed] : backed_) runs.push_back(backed.run);
  return runs;
}

}  // namespace attn::cuda
