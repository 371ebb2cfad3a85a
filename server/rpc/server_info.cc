// What GetServerInfo tells: version, epoch, limits, and what the device really accepts.
#include <array>

#include "attn/base/status_macros.h"
#include "server/rpc/enum_codec.h"
#include "server/rpc/methods.h"
#include "server/rpc/unknown_fields.h"
#include "server/rpc/version.h"

namespace attn::server {
namespace {

void EncodeLimits(const WireLimits& limits, v1::Limits* out) {
  out->set_max_message_bytes(limits.max_message_bytes);
  out->set_max_items_per_request(limits.max_items_per_request);
  out->set_max_q_rows_per_request(limits.max_q_rows_per_request);
  out->set_max_sequence_len(limits.max_sequence_len);
  out->set_max_open_sequences(limits.max_open_sequences);
  out->set_max_in_flight_per_stream(limits.max_in_flight_per_stream);
  out->set_min_lease_ms(limits.min_lease_ms);
  out->set_max_lease_ms(limits.max_lease_ms);
  out->set_remembered_appends(limits.remembered_appends);
}

// Whether some head dimension is computed with what `change` does to a spec.
template <typename Change>
bool Accepts(const Engine& engine, const Change& change) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const uint32_t head_dim : {64, 128, 256}) {
      AttentionSpec spec;
      spec.head_dim_qk = spec.head_dim_v = head_dim;
      spec.activation_dtype = spec.kv_dtype = dtype;
      change(spec);
      if (engine.Supports(spec).ok()) return true;
    }
  }
  return false;
}

// Asked of the device, so that the answer cannot drift from what it accepts.
void EncodeAccepted(const Engine& engine, const WireLimits& limits,
                    v1::GetServerInfoResponse* out) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const bool accepts = Accepts(
        engine, [dtype](AttentionSpec& spec) { spec.activation_dtype = spec.kv_dtype = dtype; });
    if (!accepts) continue;
    out->add_activation_dtypes(EncodeDType(dtype));
    out->add_kv_dtypes(EncodeDType(dtype));
  }
  for (uint32_t page_size = 1; page_size <= limits.max_page_size; ++page_size) {
    if (Accepts(engine, [page_size](AttentionSpec& spec) { spec.page_size = page_size; })) {
      out->add_page_sizes(page_size);
    }
  }
}

}  // namespace

absl::Status GetServerInfoMethod::Answer(const Request& request, const RpcContext& context,
                                         Response* out) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, ""));
  out->set_version(ServerVersion());
  out->set_server_epoch(context.server_epoch);
  out->add_features(v1::FEATURE_ROW_INVARIANT);
  EncodeAccepted(*context.engine, context.limits, out);
  out->set_device(context.engine->device_name());
  EncodeLimits(context.limits, out->mutable_limits());
  return absl::OkStatus();
}

}  // namespace attn::server
