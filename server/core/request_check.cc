#include "server/core/request_check.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/sequence_names.h"

namespace attn::server {
namespace {

constexpr size_t kQuotedBytes = 128;

// A byte of a character in UTF-8 that is not its first.
bool ContinuesCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string Quoted(absl::string_view name) {
  if (name.size() > kQuotedBytes) {
    size_t size = kQuotedBytes;
    while (size > 0 && ContinuesCharacter(name[size])) --size;
    name = name.substr(0, size);
  }
  return absl::StrCat("\"", name, "\"");
}

absl::Status CheckItemCount(uint64_t count, const WireLimits& limits, absl::string_view field) {
  if (count >= 1 && count <= limits.max_items_per_request) return absl::OkStatus();
  return MakeError(Reason::kInvalid, field,
                   absl::StrCat("got ", count, " entries, want 1 to ", limits.max_items_per_request,
                                " (max_items_per_request)"));
}

absl::Status UnknownModel(absl::string_view field, absl::string_view name) {
  return MakeError(Reason::kUnknownModel, field,
                   absl::StrCat("got ", Quoted(name), ", want the name of a declared model"));
}

absl::Status CheckOwner(absl::string_view owner, const WireLimits& limits) {
  if (!owner.empty() && owner.size() <= limits.max_owner_bytes) return absl::OkStatus();
  return MakeError(
      Reason::kInvalid, "owner",
      absl::StrCat("got ", owner.size(), " bytes, want 1 to ", limits.max_owner_bytes));
}

absl::Status CheckNumChildren(uint64_t total, const WireLimits& limits) {
  if (total <= limits.max_items_per_request) return absl::OkStatus();
  return MakeError(Reason::kInvalid, "items.num_children",
                   absl::StrCat("got a sum of ", total, ", want at most ",
                                limits.max_items_per_request, " (max_items_per_request)"));
}

absl::Status CheckForkItem(uint32_t num_children, int index) {
  if (num_children > 0) return absl::OkStatus();
  return MakeError(Reason::kInvalid, FieldAt{"items", index, "num_children"}.Path(),
                   "got 0, want at least 1");
}

absl::Status CheckReorderCounts(uint64_t num_targets, uint64_t num_sources,
                                const WireLimits& limits) {
  ATTN_RETURN_IF_ERROR(CheckItemCount(num_targets, limits, "targets"));
  if (num_sources == num_targets) return absl::OkStatus();
  return MakeError(
      Reason::kInvalid, "sources",
      absl::StrCat("got ", num_sources, " entries, want ", num_targets, " (one per target)"));
}

absl::Status CheckReorderPairs(const ReorderCall& call, std::span<const ModelSlot> target_slots,
                               std::span<const ModelSlot> source_slots) {
  absl::flat_hash_set<uint64_t> seen;
  for (size_t i = 0; i < call.targets.size(); ++i) {
    if (!seen.insert(call.targets[i].value).second) {
      return MakeError(
          Reason::kInvalid, absl::StrCat("targets[", i, "]"),
          absl::StrCat("got ", call.targets[i].value, " twice, want distinct targets"));
    }
    if (target_slots[i] != source_slots[i]) {
      return MakeError(Reason::kInvalid, absl::StrCat("sources[", i, "]"),
                       "got a sequence of another model, want one of the target's model");
    }
  }
  return absl::OkStatus();
}

}  // namespace attn::server
