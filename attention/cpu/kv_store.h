// The bytes of one layer group's pages: an address range reserved at full size, whose memory comes
// with the first touch and goes back page by page.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "attention/cpu/kv_layout.h"
#include "attn/attention/backend.h"

namespace attn::cpu {

class CpuKvStore : public KvStore {
 public:
  // REQUIRES: the CPU backend supports the spec.
  static absl::StatusOr<std::unique_ptr<CpuKvStore>> Create(const AttentionSpec& spec,
                                                            int32_t num_pages);
  ~CpuKvStore() override;
  CpuKvStore(const CpuKvStore&) = delete;
  CpuKvStore& operator=(const CpuKvStore&) = delete;

  const AttentionSpec& spec() const override { return spec_; }
  int32_t num_pages() const override { return num_pages_; }
  int64_t page_bytes() const override { return page_bytes_; }
  absl::Status CommitPages(PageId first, int32_t count) override;
  void ReleasePages(PageId first, int32_t count) override;

  const KvLayout& layout() const { return layout_; }
  uint8_t* base() const { return base_; }
  uint8_t* PageAt(PageId page) const { return base_ + page * page_bytes_; }

 private:
  CpuKvStore(const AttentionSpec& spec, int32_t num_pages, uint8_t* base, int64_t mapped_bytes);

  const AttentionSpec spec_;
  const KvLayout layout_;
  const int32_t num_pages_;
  const int64_t page_bytes_;
  uint8_t* const base_;
  const int64_t mapped_bytes_;
};

}  // namespace attn::cpu
