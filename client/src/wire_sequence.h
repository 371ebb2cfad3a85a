// Lifecycle calls between the public structs and the wire. Requests get a fresh request_key, so
// that repeats of the same message act once.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "attn/client/sequence.h"
#include "attn/v1/attention.pb.h"

namespace attn::client {

v1::OpenSequencesRequest ToWire(const OpenRequest& request);
v1::ForkSequencesRequest ToWire(const std::vector<ForkItem>& items, uint64_t epoch);
v1::ReorderSequencesRequest ToWire(const ReorderRequest& request, uint64_t epoch);
v1::TruncateSequencesRequest ToWire(const std::vector<TruncateItem>& items, uint64_t epoch);
v1::CloseSequencesRequest CloseToWire(const std::vector<SequenceId>& sequences, uint64_t epoch);

absl::StatusOr<OpenResult> FromWire(const v1::OpenSequencesResponse& wire, size_t num_sequences);
absl::StatusOr<ForkResult> FromWire(const v1::ForkSequencesResponse& wire,
                                    const std::vector<ForkItem>& items);
absl::StatusOr<TruncateResult> FromWire(const v1::TruncateSequencesResponse& wire,
                                        size_t num_items);
absl::StatusOr<std::vector<absl::Status>> FromWire(const v1::CloseSequencesResponse& wire,
                                                   size_t num_items);
absl::StatusOr<std::vector<absl::StatusOr<SequenceInfo>>> FromWire(
    const v1::DescribeSequencesResponse& wire, size_t num_items);
Renewal FromWire(const v1::RenewLeaseResponse& wire);

}  // namespace attn::client
