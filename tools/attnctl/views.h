// What attnctl prints, one function a command. Names in it are printable whatever clients chose.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "attn/v1/admin.pb.h"
#include "attn/v1/attention.pb.h"

namespace attn::ctl {

std::string ModelsText(const v1::ListModelsResponse& models);
std::string SequencesText(const v1::ListSequencesResponse& sequences);
// Labelled samples and counts of 0 are left out unless `all`.
std::string StatsText(const v1::GetStatsResponse& stats, bool all);
// Any message, in protobuf's text format.
std::string MessageText(const google::protobuf::Message& message);
// In protobuf's JSON, on lines of its own, with fields that have their default.
absl::StatusOr<std::string> MessageJson(const google::protobuf::Message& message);

}  // namespace attn::ctl
