"""The server under test: a channel that notes which methods are called, stubs, and the
attn.v1.Status of a failed call. run.py sets `current` before any test runs."""

import importlib
import random
import time

import grpc

from attn.v1 import admin_pb2_grpc
from attn.v1 import attention_pb2 as pb
from attn.v1 import attention_pb2_grpc as rpc
from attn.v1 import rpc_status_pb2
from standard import health_pb2_grpc, reflection_pb2_grpc

STATUS_DETAILS = "grpc-status-details-bin"
CALL_SECONDS = 60  # of any call that has no deadline of its own: a lost answer ends there

current = None


class _Notes(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor,
             grpc.StreamStreamClientInterceptor):
    """Notes the methods called, and gives every call a deadline: a lost answer fails the test."""

    def __init__(self, called):
        self._called = called

    def _start(self, continuation, details, request):
        self._called.add(details.method)
        if details.timeout is None:
            details = details._replace(timeout=CALL_SECONDS)
        return continuation(details, request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_stream = _start


class Service:
    """Stubs, and the methods called through them. `modules`: all generated ones."""

    def __init__(self, address, seed, modules):
        self.methods = methods_of(modules)
        self.called = set()
        self.random = random.Random(seed)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._raw = grpc.insecure_channel(address, options)
        self.channel = grpc.intercept_channel(self._raw, _Notes(self.called))
        self.server = rpc.ServerStub(self.channel)
        self.models = rpc.ModelsStub(self.channel)
        self.sequences = rpc.SequencesStub(self.channel)
        self.attention = rpc.AttentionStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)
        self.reflection = reflection_pb2_grpc.ServerReflectionStub(self.channel)

    def close(self):
        self._raw.close()

    def uncalled(self):
        """Methods that no test has called."""
        return sorted(self.methods - self.called)


def methods_of(modules):
    """"/package.Service/Method" of every service in the generated `modules`."""
    return {
        "/%s/%s" % (service.full_name, method.name)
        for module in modules
        for service in importlib.import_module(module).DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def detail_of(error):
    """The attn.v1.Status among the details of a grpc.RpcError."""
    for key, value in error.trailing_metadata():
        if key != STATUS_DETAILS:
            continue
        wrapper = rpc_status_pb2.RpcStatus.FromString(value)
        detail = pb.Status()
        assert len(wrapper.details) == 1 and wrapper.details[0].Unpack(detail), wrapper
        assert wrapper.code == detail.code == error.code().value[0], wrapper
        assert wrapper.message == detail.message == error.details(), wrapper
        return detail
    raise AssertionError("no %s with: %s" % (STATUS_DETAILS, error))


def wait_until(condition, what):
    """For what another thread of the server does in its own time."""
    deadline = time.monotonic() + CALL_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "never: " + what
        time.sleep(0.002)
