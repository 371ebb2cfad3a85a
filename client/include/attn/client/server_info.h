// What a server is and allows, as told by GetServerInfo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/base/dtype.h"

namespace attn::client {

struct Limits {
  uint64_t max_message_bytes = 0;
  uint32_t max_items_per_request = 0;
  uint64_t max_q_rows_per_request = 0;
  uint32_t max_sequence_len = 0;
  uint32_t max_open_sequences = 0;
  uint32_t max_in_flight_per_stream = 0;
  uint32_t min_lease_ms = 0;
  uint32_t max_lease_ms = 0;
  // Appends per (sequence, layer) that can be repeated; pipeline no deeper.
  uint32_t remembered_appends = 0;
};

struct ServerInfo {
  std::string version;
  // New at every start of the server. Ids of another epoch are stale.
  uint64_t server_epoch = 0;
  std::string device;
  std::vector<DType> activation_dtypes;  // those this library knows
  std::vector<DType> kv_dtypes;
  std::vector<uint32_t> page_sizes;  // all that a model may ask for
  Limits limits;
};

}  // namespace attn::client
