// Hashes of the fields that decide what a lifecycle call does.
#include "server/core/request_content.h"

#include <vector>

#include "absl/hash/hash.h"
#include "server/core/stream_scope.h"

namespace attn::server {
namespace {

class Fingerprinter {
 public:
  explicit Fingerprinter(const StreamScope* stream) : stream_(stream) {}

  uint64_t operator()(const OpenCall& call) {
    Add(call.model->definition.name, call.owner, call.lease, call.close_with_stream);
    for (const OpenCall::Item& item : call.items) Add(item.priority);
    return hash_;
  }
  uint64_t operator()(const ForkCall& call) {
    for (const ForkCall::Item& item : call.items) {
      Add(IdOf(item.parent), item.at_len, item.num_children, item.refused.ok());
    }
    return hash_;
  }
  uint64_t operator()(const ReorderCall& call) {
    for (const SequenceRef target : call.targets) Add(IdOf(target));
    for (const SequenceRef source : call.sources) Add(IdOf(source));
    return hash_;
  }
  uint64_t operator()(const TruncateCall& call) {
    for (const TruncateCall::Item& item : call.items) {
      Add(IdOf(item.sequence), item.len, item.refused.ok());
    }
    return hash_;
  }
  template <typename WithoutKey>
  uint64_t operator()(const WithoutKey&) {
    return 0;
  }

 private:
  template <typename... Values>
  void Add(const Values&... values) {
    hash_ = absl::HashOf(hash_, values...);
  }
  // An alias that names nothing stands for itself.
  uint64_t IdOf(SequenceRef ref) const {
    return Resolve(stream_, ref, "", 0).value_or(SequenceId(ref.value)).value;
  }

  const StreamScope* stream_;
  uint64_t hash_ = 0;
};

}  // namespace

uint64_t FingerprintOf(const Call& call) {
  return std::visit(Fingerprinter(call.stream.get()), call.request);
}

}  // namespace attn::server
