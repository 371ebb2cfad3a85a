// Reserving, committing and releasing the address range of a KV store.
#include "attention/cpu/kv_store.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"

namespace attn::cpu {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int64_t kSystemPageBytes = 4096;

constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

absl::StatusOr<std::unique_ptr<CpuKvStore>> CpuKvStore::Create(const AttentionSpec& spec,
                                                               int32_t num_pages) {
  if (num_pages <= 0) {
    return MakeError(Reason::kInvalid, "num_pages",
                     absl::StrCat("got ", num_pages, ", want at least 1"));
  }
  // Kernels may read up to one vector beyond the last row of V.
  const int64_t bytes =
      RoundUp(num_pages * KvLayout::Of(spec).page_bytes() + kSystemPageBytes, kHugePageBytes);
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return MakeError(Reason::kNoPages, "num_pages",
                     absl::StrCat("reserving ", bytes, " bytes of address space for ", num_pages,
                                  " pages failed: ", std::strerror(errno)));
  }
  // Advice: without huge pages the store is slower, not wrong.
  (void)madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return absl::WrapUnique(new CpuKvStore(spec, num_pages, static_cast<uint8_t*>(base), bytes));
}

CpuKvStore::CpuKvStore(const AttentionSpec& spec, int32_t num_pages, uint8_t* base,
                       int64_t mapped_bytes)
    : spec_(spec),
      layout_(KvLayout::Of(spec)),
      num_pages_(num_pages),
      page_bytes_(layout_.page_bytes()),
      base_(base),
      mapped_bytes_(mapped_bytes) {}

CpuKvStore::~CpuKvStore() { munmap(base_, static_cast<size_t>(mapped_bytes_)); }

absl::Status CpuKvStore::CommitPages(PageId first, int32_t count) {
  if (first < 0 || count < 0 || first > num_pages_ - count) {
    return MakeError(Reason::kInternal, "pages",
                     absl::StrCat("got [", first, ", ", int64_t{first} + count,
                                  "), want within [0, ", num_pages_, ")"));
  }
  return absl::OkStatus();  // the kernel backs a page at its first touch
}

void CpuKvStore::ReleasePages(PageId first, int32_t count) {
  ATTN_CHECK(first >= 0 && count >= 0 && first <= num_pages_ - count, "first ", first, " count ",
             count, " num_pages ", num_pages_);
  // System pages shared with pages that stay are kept.
  const int64_t begin = RoundUp(first * page_bytes_, kSystemPageBytes);
  const int64_t end = (first + int64_t{count}) * page_bytes_ / kSystemPageBytes * kSystemPageBytes;
  if (begin < end) (void)madvise(base_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace attn::cpu
