// From the names that a client uses to sequence ids.
#include "server/core/stream_scope.h"

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

namespace attn::server {

absl::Status SkippedError(absl::string_view field, size_t index) {
  return MakeError(Reason::kSkipped, absl::StrCat(field, "[", index, "]"),
                   "the open or fork that was to define this sequence failed");
}

absl::StatusOr<SequenceId> Resolve(const StreamScope* stream, SequenceRef ref,
                                   absl::string_view field, size_t index) {
  if (!ref.is_alias()) return SequenceId(ref.value);
  if (stream != nullptr) {
    const auto alias = stream->aliases.find(static_cast<uint32_t>(ref.value));
    if (alias != stream->aliases.end()) {
      if (alias->second.failed) return SkippedError(field, index);
      return alias->second.sequence;
    }
  }
  return MakeError(Reason::kUnknownSequence, absl::StrCat(field, "[", index, "]"),
                   absl::StrCat("got ", ref.value,
                                ", want a sequence id, or an alias that this stream has defined"));
}

}  // namespace attn::server
