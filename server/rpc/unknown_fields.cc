#include "server/rpc/unknown_fields.h"

#include "attn/base/error.h"

namespace attn::server {

absl::Status RefuseUnknown(const google::protobuf::UnknownFieldSet& fields,
                           absl::string_view path) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const int number = fields.field(i).number();
    if (number >= kFirstHintField) continue;
    return MakeError(Reason::kUnsupported, absl::StrCat(path, path.empty() ? "" : ".", number),
                     absl::StrCat("got field number ", number,
                                  ", which this server does not know; want known fields, or hints "
                                  "numbered ",
                                  kFirstHintField, " and above"));
  }
  return absl::OkStatus();
}

}  // namespace attn::server
