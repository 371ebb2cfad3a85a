// Questions about many sequences at once.
#include <algorithm>
#include <vector>

#include "kvcache/src/cache_state.h"

namespace attn::kvcache {
namespace {

bool IsWanted(const Sequence& sequence, const ListOptions& options) {
  if (sequence.id().value <= options.after.value) return false;
  if (options.model.value != 0 && SlotOf(sequence.id()) != options.model) return false;
  return options.owner.empty() || sequence.owner()->name == options.owner;
}

SequenceSummary SummaryOf(const Sequence& sequence, Nanos now) {
  SequenceSummary summary{.sequence = sequence.id(),
                          .owner = sequence.owner()->name,
                          .committed_len = sequence.CommittedLen(),
                          .longest_len = sequence.LongestLen()};
  for (uint32_t g = 0; g < sequence.model().num_groups(); ++g) {
    summary.num_pages += static_cast<uint64_t>(sequence.group(g).pages.num_pages());
  }
  summary.lease_remaining = sequence.owner()->Remaining(now);
  return summary;
}

}  // namespace

std::vector<SequenceSummary> KvCache::List(const ListOptions& options, Nanos now) const {
  const auto has_lower_id = [](const Sequence* a, const Sequence* b) {
    return a->id().value < b->id().value;
  };
  std::vector<const Sequence*> found;
  for (const auto& [id, sequence] : state_->sequences) {
    if (IsWanted(*sequence, options)) found.push_back(sequence.get());
  }
  const size_t count = std::min(options.max, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<int64_t>(count), found.end(),
                    has_lower_id);
  std::vector<SequenceSummary> list;
  for (size_t i = 0; i < count; ++i) list.push_back(SummaryOf(*found[i], now));
  return list;
}

}  // namespace attn::kvcache
