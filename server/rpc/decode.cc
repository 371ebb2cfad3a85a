#include "server/rpc/decode.h"

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

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

absl::Status CheckEpoch(uint64_t epoch, uint64_t server_epoch) {
  if (epoch == 0 || epoch == server_epoch) return absl::OkStatus();
  return MakeError(Reason::kStaleSequence, "server_epoch",
                   absl::StrCat("got ", epoch, ", want ", server_epoch,
                                " or 0: sequences of another epoch are gone"));
}

}  // namespace attn::server
