// Writing new keys and values into pages, rounded once to the dtype of the cache.
#pragma once

#include <cstdint>

#include "attention/cpu/kv_store.h"
#include "attn/attention/batch.h"

namespace attn::cpu {

// One KV head of an append.
void AppendHead(const CpuKvStore& store, const AppendEntry& entry, uint32_t kv_head);

// One page copy. Slots up to the next multiple of 16 may be copied along.
void CopyPage(const CpuKvStore& store, const PageCopy& copy);

}  // namespace attn::cpu
