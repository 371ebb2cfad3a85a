// The same for tests that also see gRPC and the messages.
#pragma once

#include <grpcpp/grpcpp.h>

#include "attn/v1/attention.grpc.pb.h"
#include "tests/support/core_headers.h"
