// How requests name sequences: which model an id or a stream's alias belongs to, as far as that can
// be told without the engine. The engine alone knows whether the sequence is open.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attn/base/ids.h"
#include "server/core/call.h"
#include "server/core/model_registry.h"

namespace attn::server {

// Aliases first, first + 1, ... first + count - 1.
struct AliasRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

// What a stream noted of its aliases when the Open or Fork that defines them passed: the model's
// slot, or that the definition was refused. The latest definition counts. Belongs to the one
// reaction that reads the stream.
class AliasNotes {
 public:
  static constexpr ModelSlot kFailed{0};

  void Define(AliasRange range, ModelSlot slot);
  void MarkFailed(AliasRange range) { Define(range, kFailed); }
  // Null if no such alias was noted.
  const ModelSlot* Find(uint32_t alias) const;
  size_t size() const { return slots_.size(); }

 private:
  absl::flat_hash_map<uint32_t, ModelSlot> slots_;
};

// A field that is an array, and an index into it; the text is made only when there is an error.
struct FieldAt {
  absl::string_view array;
  int index = 0;
  absl::string_view member = {};

  std::string Path() const;
};

// The model of the sequence that `value` names. `aliases` is null outside streams.
// INVALID for 0 and for an alias outside a stream, SKIPPED for an alias whose definition was
// refused, UNKNOWN_SEQUENCE for what names no declared model.
absl::StatusOr<ModelPtr> ResolveModel(uint64_t value, const ModelRegistry& registry,
                                      const AliasNotes* aliases, const FieldAt& field);

// Collects the aliases that one request defines, so that none is defined twice.
class AliasClaims {
 public:
  // OK if `range` may be defined: inside a stream, within 1..2^32-1, and free in this request.
  // Claims it then. A range that starts at 0 claims nothing.
  absl::Status Claim(AliasRange range, const AliasNotes* aliases, size_t max_aliases,
                     const FieldAt& field);

 private:
  absl::flat_hash_set<uint32_t> claimed_;
};

}  // namespace attn::server
