// Knobs of the client library, with their defaults. Durations are in milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace attn::client {

// When a call is sent again. Retried are failures that can pass: a lost connection, DRAINING,
// DEVICE_LOST, QUEUE_FULL, and whatever the server answers with a retry_after_ms. A repeat carries
// the same append tokens and request keys, so nothing is done twice. Never retried: INVALID,
// UNSUPPORTED, LENGTH_MISMATCH, STALE_SEQUENCE and every other reason.
struct RetryPolicy {
  uint32_t max_attempts = 6;  // the first one counts; 1: never retry
  // Wait before attempt n+1: max(retry_after_ms, min(initial * 2^(n-1), max)), times a random
  // factor in [1, 1.5).
  uint32_t initial_backoff_ms = 20;
  uint32_t max_backoff_ms = 2000;
};

struct ClientOptions {
  RetryPolicy retry;
  // Longest time for one blocking call, retries included.
  uint32_t call_timeout_ms = 60'000;
  // Connect gives up after this.
  uint32_t connect_timeout_ms = 10'000;
};

struct StreamOptions {
  RetryPolicy retry;
  // Requests on the wire at once; what is submitted beyond waits in the client. The server's flow
  // advice lowers it further.
  uint32_t max_in_flight = 256;
  // A request with a timeout whose answer is this much overdue is given up locally.
  uint32_t timeout_grace_ms = 1000;
};

// Of one request in a stream.
struct CallOptions {
  // From submission, waiting in the client included; 0: none. The server does not run what is
  // late; the answer is then DEADLINE.
  uint32_t timeout_ms = 0;
};

}  // namespace attn::client
