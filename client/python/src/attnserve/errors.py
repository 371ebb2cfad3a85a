"""What goes wrong, as exceptions.

Every exception of this package is an AttnError. Those that a server's answer or the client's own
checks of arguments cause carry what the server says: reason, field, what came, what is allowed."""

import re

import grpc

from attnserve import _wire

__all__ = [
    "AttnError", "CancelledError", "DataLossError", "DeadlineError", "InternalError",
    "InvalidRequestError", "LengthMismatchError", "ModelExistsError", "ModelInUseError",
    "NoPagesError", "NotFoundError", "QueueFullError", "QuotaError", "RefusedError",
    "ResourceExhaustedError", "ServerUnavailableError", "SkippedError", "StaleSequenceError",
    "TooLargeError", "UnknownModelError", "UnknownSequenceError", "UnsupportedError",
]


class AttnError(Exception):
    """Base of all exceptions of this package.

    Attributes
    ----------
    reason : str
        A reason of ``attn.v1.Reason`` without its prefix, ``"NO_PAGES"`` say.
    field : str
        Path of the field at fault, ``"q_lens[3]"``; empty if there is none.
    got, want : str or None
        The value that came and what is allowed, where the message says so.
    retry_after_ms : int
        When a repeat can help, in ms; 0: do not repeat unchanged.
    """

    reason = "INTERNAL"

    def __init__(self, message, *, reason=None, field="", retry_after_ms=0):
        super().__init__(message)
        if reason is not None:
            self.reason = reason
        self.field = field
        self.retry_after_ms = retry_after_ms
        found = re.search(r"\bgot (.*), want (.*)", message, re.DOTALL)
        self.got, self.want = found.groups() if found else (None, None)


class InvalidRequestError(AttnError, ValueError):
    """The request, or an argument, is at fault: change it."""

    reason = "INVALID"


class UnsupportedError(AttnError, NotImplementedError):
    """This server does not have the feature."""

    reason = "UNSUPPORTED"


class NotFoundError(AttnError, LookupError):
    """What the request names is not there."""


class UnknownSequenceError(NotFoundError):
    """A sequence id that the server never gave out."""

    reason = "UNKNOWN_SEQUENCE"


class StaleSequenceError(NotFoundError):
    """The sequence was closed, has expired, or belongs to an earlier run of the server."""

    reason = "STALE_SEQUENCE"


class UnknownModelError(NotFoundError):
    """No model of that name is declared."""

    reason = "UNKNOWN_MODEL"


class LengthMismatchError(AttnError):
    """The layer has another length than the append expects.

    Attributes
    ----------
    actual_len : int or None
        The layer's length in tokens.
    """

    reason = "LENGTH_MISMATCH"
    actual_len = None


class ResourceExhaustedError(AttnError):
    """The server lacks room."""


class NoPagesError(ResourceExhaustedError):
    """The page pool is full now: close or truncate sequences, or wait."""

    reason = "NO_PAGES"


class TooLargeError(ResourceExhaustedError):
    """It can never fit: make it smaller."""

    reason = "TOO_LARGE"


class QuotaError(ResourceExhaustedError):
    """Too many sequences are open."""

    reason = "QUOTA"


class QueueFullError(ResourceExhaustedError):
    """The server is busy, or could not answer in time: wait `retry_after_ms`."""

    reason = "QUEUE_FULL"


class DeadlineError(AttnError, TimeoutError):
    """Not answered in time. An append may have been done or may still come: repeat it with its
    token (the client's own repeats do) before the sequence is appended to or rewound."""

    reason = "DEADLINE"


class CancelledError(AttnError):
    """Given up by this client. As to appends, see DeadlineError."""

    reason = "CANCELLED"


class SkippedError(AttnError):
    """The open or fork that was to make the sequence has failed."""

    reason = "SKIPPED"


class ModelExistsError(AttnError):
    """The name has another spec."""

    reason = "MODEL_EXISTS"


class ModelInUseError(AttnError):
    """Sequences of the model are open."""

    reason = "MODEL_IN_USE"


class RefusedError(AttnError, PermissionError):
    """The caller may not do this."""

    reason = "PERMISSION"


class DataLossError(AttnError):
    """What was stored is damaged."""

    reason = "DATA_LOSS"


class ServerUnavailableError(AttnError, ConnectionError):
    """No server answers, or it stops, or its device is lost. Sequences of a server that was started
    anew are gone: open new ones and send their tokens again."""

    reason = "UNAVAILABLE"


class InternalError(AttnError):
    """A fault of the server or of this package."""


_BY_REASON = {
    c.reason: c
    for c in (InvalidRequestError, UnsupportedError, UnknownSequenceError, StaleSequenceError,
              UnknownModelError, LengthMismatchError, NoPagesError, TooLargeError, QuotaError,
              QueueFullError, DeadlineError, CancelledError, SkippedError, ModelExistsError,
              ModelInUseError, RefusedError, DataLossError, InternalError)
}
_BY_REASON["NOT_RESIDENT"] = LengthMismatchError
_BY_REASON["DRAINING"] = _BY_REASON["DEVICE_LOST"] = ServerUnavailableError

# A repeat may succeed: what was not done is done, what was done is not done again.
_PASSING = {"DRAINING", "DEVICE_LOST", "QUEUE_FULL", "UNAVAILABLE"}


def can_retry(error):
    """Whether a repeat of the same request, tokens and keys included, can help."""
    return error.reason in _PASSING or error.retry_after_ms > 0


def from_status(status):
    """The exception for an attn.v1.Status."""
    reason = _wire.REASONS.get(status.reason, "INTERNAL")
    kind = _BY_REASON.get(reason, InternalError)
    return kind(status.message, reason=reason, field=status.field,
                retry_after_ms=status.retry_after_ms)


_BY_CODE = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooLargeError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.CANCELLED: CancelledError,
    grpc.StatusCode.UNAVAILABLE: ServerUnavailableError,
}


def from_rpc_error(error, target):
    """The exception for a grpc.RpcError of a call to `target`."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = _wire.Status()
            for detail in _wire.RpcStatus.FromString(value).details:
                if detail.Unpack(status):
                    return from_status(status)
    kind = _BY_CODE.get(error.code(), InternalError)
    if kind is ServerUnavailableError:
        return kind("%s: no server answers (%s); is it running, and is the address right?"
                    % (target, error.details()))
    return kind("%s: %s" % (target, error.details()))
