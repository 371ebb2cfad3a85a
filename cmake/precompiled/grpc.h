// The same for libraries that know gRPC and the messages.
#pragma once

#include <grpcpp/grpcpp.h>

#include "attn/v1/attention.grpc.pb.h"
#include "cmake/precompiled/core.h"
