#include "server/rpc/decode.h"

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

namespace attn::server {

absl::Status CheckEpoch(uint64_t epoch, uint64_t server_epoch) {
  if (epoch == 0 || epoch == server_epoch) return absl::OkStatus();
  return MakeError(Reason::kStaleSequence, "server_epoch",
                   absl::StrCat("got ", epoch, ", want ", server_epoch,
                                " or 0: sequences of another epoch are gone"));
}

}  // namespace attn::server
