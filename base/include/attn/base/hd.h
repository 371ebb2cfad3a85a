// Marks a function for host and device. Empty in plain C++, so that headers which carry the
// arithmetic of a variant need no CUDA header.
#pragma once

#if defined(__CUDACC__)
#define ATTN_HD __host__ __device__
#else
#define ATTN_HD
#endif
