// Refuses request fields that this server does not know. Protobuf keeps them aside when it parses;
// numbers below 1000 change what a request means, numbers from 1000 on are hints.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attn::server {

inline constexpr int kFirstHintField = 1000;

// UNSUPPORTED naming "<path>.<number>" (or "<number>" with an empty path) for the first field of
// `fields` that is no hint.
absl::Status RefuseUnknown(const google::protobuf::UnknownFieldSet& fields, absl::string_view path);

inline const google::protobuf::UnknownFieldSet& UnknownFieldsOf(
    const google::protobuf::Message& message) {
  return message.GetReflection()->GetUnknownFields(message);
}

// One message, not what is inside it: no walk over descriptors, so a few nanoseconds when there is
// nothing unknown.
inline absl::Status CheckKnown(const google::protobuf::Message& message, absl::string_view path) {
  const google::protobuf::UnknownFieldSet& fields = UnknownFieldsOf(message);
  if (__builtin_expect(fields.empty(), 1)) return absl::OkStatus();
  return RefuseUnknown(fields, path);
}

// Every element of a repeated message field.
template <typename Repeated>
absl::Status CheckAllKnown(const Repeated& messages, absl::string_view path) {
  for (int i = 0; i < messages.size(); ++i) {
    const google::protobuf::UnknownFieldSet& fields = UnknownFieldsOf(messages.Get(i));
    if (__builtin_expect(fields.empty(), 1)) continue;
    absl::Status known = RefuseUnknown(fields, absl::StrCat(path, "[", i, "]"));
    if (!known.ok()) return known;
  }
  return absl::OkStatus();
}

}  // namespace attn::server
