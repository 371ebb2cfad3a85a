// The limits that Server.GetServerInfo announces and the codec enforces.
#pragma once

#include <cstdint>

namespace attn::server {

struct WireLimits {
  uint64_t max_message_bytes = uint64_t{64} << 20;  // of a request and of its answer
  uint32_t max_items_per_request = 4096;
  uint64_t max_q_rows_per_request = uint64_t{1} << 20;  // and of new keys
  uint32_t max_sequence_len = 1u << 20;
  uint32_t max_open_sequences = 65536;
  uint32_t max_in_flight_per_stream = 256;
  uint32_t min_lease_ms = 1'000;
  uint32_t max_lease_ms = 3'600'000;
  uint32_t default_lease_ms = 30'000;
  uint32_t remembered_appends = 8;
  // Not announced: no client meets them in earnest.
  uint32_t max_layers = 4096;
  uint32_t max_heads = 65536;
  uint32_t max_head_dim = 4096;
  uint32_t max_page_size = 512;  // GetServerInfo.page_sizes: those up to here that the device takes
  uint32_t max_sink_logits_per_head = 1024;
  uint32_t max_owner_bytes = 256;
  uint32_t max_content_tag_bytes = 4096;
  uint32_t max_aliases_per_stream = 262'144;
  uint32_t max_models_per_page = 1000;
  uint32_t max_sequences_per_page = 1000;
};

}  // namespace attn::server
