#include "server/rpc/model_fingerprint.h"

#include <openssl/evp.h>

#include <bit>
#include <cstdint>

#include "attn/base/check.h"

namespace attn::server {
namespace {

// Appends numbers little endian, whatever the machine.
class CanonicalWriter {
 public:
  void U32(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
  }
  void Float(float value) { U32(std::bit_cast<uint32_t>(value)); }
  void Text(const std::string& text) {
    U32(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  void Bound(bool present, uint32_t value) {
    U32(present ? 1 : 0);
    U32(present ? value : 0);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

void WriteGroup(const v1::LayerGroup& group, CanonicalWriter* out) {
  out->U32(static_cast<uint32_t>(group.layers_size()));
  for (const uint32_t layer : group.layers()) out->U32(layer);
  out->U32(group.num_q_heads());
  out->U32(group.num_kv_heads());
  out->U32(group.head_dim_qk());
  out->U32(group.head_dim_v());
  out->Float(group.softmax_scale());
  out->Float(group.logit_soft_cap());
  out->Bound(group.window().has_left(), group.window().left());
  out->Bound(group.window().has_right(), group.window().right());
  out->U32(group.sink_logits_per_head());
  out->U32(static_cast<uint32_t>(group.sink_logits_size()));
  for (const float logit : group.sink_logits()) out->Float(logit);
  out->U32(group.window_slack());
}

}  // namespace

std::string CanonicalForm(const v1::ModelSpec& spec) {
  CanonicalWriter out;
  out.Text("attn.v1.ModelSpec/1");
  out.Text(spec.name());
  out.U32(static_cast<uint32_t>(spec.activation_dtype()));
  out.U32(static_cast<uint32_t>(spec.kv_dtype()));
  out.U32(spec.num_layers());
  out.Text(spec.content_tag());
  out.U32(static_cast<uint32_t>(spec.layer_groups_size()));
  for (const v1::LayerGroup& group : spec.layer_groups()) WriteGroup(group, &out);
  return out.Take();
}

std::string FingerprintOf(const v1::ModelSpec& spec) {
  const std::string form = CanonicalForm(spec);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const int done = EVP_Digest(form.data(), form.size(), digest, &size, EVP_sha256(), nullptr);
  ATTN_CHECK(done == 1 && size == 32, "SHA-256 of libcrypto failed, size ", size);
  return std::string(reinterpret_cast<const char*>(digest), size);
}

}  // namespace attn::server
