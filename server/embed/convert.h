// Requests of the embedder to calls of the core, and results back. The one place where what an
// embedder asks for is checked, by the rules of the wire (server/core/*_check.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attn/engine/engine.h"
#include "server/core/call.h"
#include "server/core/model_check.h"
#include "server/core/model_registry.h"
#include "server/core/wire_limits.h"

namespace attn::engine {

// What checks need. The tokens are for appends that have none.
struct Border {
  const server::WireLimits& limits;
  const server::ModelRegistry& registry;
  std::atomic<uint64_t>& last_token;
};

// UNSUPPORTED for what is none of the enum's.
absl::StatusOr<server::Priority> PriorityOf(Priority priority);

absl::StatusOr<server::DeclareModelCall> MakeDeclare(const ModelSpec& spec, const Border& border,
                                                     const server::SupportsSpec& supports);
absl::StatusOr<server::OpenCall> MakeOpen(const OpenRequest& request, const Border& border);
absl::StatusOr<server::ForkCall> MakeFork(absl::Span<const ForkItem> items, const Border& border);
absl::StatusOr<server::ReorderCall> MakeReorder(absl::Span<const SequenceId> targets,
                                                absl::Span<const SequenceId> sources,
                                                const Border& border);
absl::StatusOr<server::TruncateCall> MakeTruncate(absl::Span<const TruncateItem> items,
                                                  const Border& border);
absl::StatusOr<server::RenewCall> MakeRenew(const std::string& owner, Nanos lease,
                                            const Border& border);
// The tensors of the call are the request's.
absl::StatusOr<server::AttendCall> MakeAttend(const AttendRequest& request, const Border& border);

// Per sequence OK, or why it can name none. INVALID unless there are 1 to the limit of them.
absl::StatusOr<std::vector<absl::Status>> CheckSequences(absl::Span<const SequenceId> sequences,
                                                         const Border& border);

ModelInfo InfoOf(const server::DeclareModelResult& result);
std::vector<absl::StatusOr<std::vector<SequenceId>>> ChildrenOf(absl::Span<const ForkItem> items,
                                                                const server::ForkResult& result);
AttendResult ResultOf(server::AttendResult result);

}  // namespace attn::engine
