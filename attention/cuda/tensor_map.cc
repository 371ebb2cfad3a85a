#include "attention/cuda/tensor_map.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "attention/cuda/driver.h"
#include "attention/cuda/tile/swizzle.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {
namespace {

using EncodeFunction = decltype(&cuTensorMapEncodeTiled);

absl::StatusOr<EncodeFunction> FindEncode() {
  EncodeFunction encode = nullptr;
  ATTN_RETURN_IF_ERROR(FindDriverFunction("cuTensorMapEncodeTiled", 12000, &encode));
  return encode;
}

// Promotion to 256 bytes of L2 costs decode 9 % (H200), so there is none.
absl::StatusOr<CUtensorMap> Encode(const void* base, int rank, const uint64_t* dims,
                                   const uint64_t* strides, const uint32_t* box) {
  static const absl::StatusOr<EncodeFunction> encode = FindEncode();
  ATTN_RETURN_IF_ERROR(encode.status());
  const uint32_t element_strides[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      (*encode)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<uint32_t>(rank),
                const_cast<void*>(base), dims, strides, box, element_strides,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  ATTN_RETURN_IF_ERROR(StatusOfDriver(result, "cuTensorMapEncodeTiled"));
  return map;
}

}  // namespace

absl::StatusOr<CUtensorMap> MakeKvMap(const KvPool& pool, int box_rows) {
  if (pool.num_blocks() > std::numeric_limits<int32_t>::max()) {
    return MakeError(Reason::kTooLarge, "num_pages",
                     absl::StrCat("got ", pool.num_blocks(), " blocks, want at most 2^31 - 1"));
  }
  const uint64_t dims[5] = {64, kRowGroup, 2, static_cast<uint64_t>(pool.page_size) / kRowGroup,
                            static_cast<uint64_t>(pool.num_blocks())};
  const uint64_t strides[4] = {kKvRowBytes, 128, kRowGroupBytes,
                               static_cast<uint64_t>(pool.block_bytes())};
  const uint32_t box[5] = {64, kRowGroup, 2, static_cast<uint32_t>(box_rows / kRowGroup), 1};
  return Encode(pool.base, 5, dims, strides, box);
}

absl::StatusOr<CUtensorMap> MakeQueryMap(const void* q, int64_t total_q, int num_q_heads, int heads,
                                         int queries) {
  const uint64_t row_bytes = static_cast<uint64_t>(num_q_heads) * kKvRowBytes;
  const uint64_t dims[3] = {kTileColumns, static_cast<uint64_t>(num_q_heads),
                            static_cast<uint64_t>(total_q)};
  const uint64_t strides[2] = {kKvRowBytes, row_bytes};
  const uint32_t box[3] = {64, static_cast<uint32_t>(heads), static_cast<uint32_t>(queries)};
  return Encode(q, 3, dims, strides, box);
}

}  // namespace attn::cuda
