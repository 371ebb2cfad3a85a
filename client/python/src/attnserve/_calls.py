"""What calls do, whoever waits for them: each is a generator that yields a Call, is sent the answer's
bytes, and returns the result. `actions` makes attempts of them, to be carried out by client.py with
threads that wait and by aio.py with coroutines."""

import random
import secrets
import time
import uuid
from dataclasses import dataclass

import grpc

from attnserve import _wire, errors, models
from attnserve._attend import Step


@dataclass(frozen=True)
class RetryPolicy:
    """When a call is sent again: after failures that can pass (a lost connection, a server that
    drains or is busy). A repeat has the same append tokens and keys, so nothing is done twice.

    Attributes
    ----------
    max_attempts : int
        The first one counts; 1: never repeat.
    initial_backoff, max_backoff : float
        Seconds before the second attempt, and at most; doubled from attempt to attempt, with up to
        half as much again at random. A server that says when to come back is heeded.
    """

    max_attempts: int = 6
    initial_backoff: float = 0.02
    max_backoff: float = 2.0

    def backoff(self, attempts, error):
        """Seconds to wait after so many attempts; None: give up."""
        if attempts >= self.max_attempts or not errors.can_retry(error):
            return None
        wait = min(self.initial_backoff * 2 ** (attempts - 1), self.max_backoff)
        return max(wait, error.retry_after_ms / 1e3) * (1 + random.random() / 2)


def _no_failure(data):
    return None


class Call:
    """One request of a method: the bytes of its message, and what in an answer's bytes a repeat may
    mend, as an exception or None."""

    __slots__ = ("method", "message", "failure_in")

    def __init__(self, method, message, failure_in=_no_failure):
        self.method, self.message, self.failure_in = method, message, failure_in


def actions(steps, retry, timeout, target):
    """The attempts and waits of a call, `steps`, until it returns or raises.

    Yields ``(method, message, seconds)``, to be sent the answer's bytes or thrown the
    grpc.RpcError, and ``(None, None, seconds)`` to wait so long. Returns what the call does."""
    deadline = time.monotonic() + timeout
    try:
        call = next(steps)
        while True:
            call = steps.send((yield from _attempts(call, retry, deadline, target)))
    except StopIteration as done:
        return done.value


def _attempts(call, retry, deadline, target):
    attempts = 0
    while True:
        attempts += 1
        data = None
        try:
            data = yield call.method, call.message, max(0.001, deadline - time.monotonic())
            error = call.failure_in(data)
            if error is None:
                return data
        except grpc.RpcError as failure:
            error = errors.from_rpc_error(failure, target)
        wait = retry.backoff(attempts, error)
        if wait is None or time.monotonic() + wait > deadline:
            if data is not None:
                return data
            raise error
        yield None, None, wait


def _ask(name, request):
    """Yields the call; returns the parsed answer."""
    method, _, response = _wire.METHODS[name]
    data = yield Call(method, request.SerializeToString())
    return response.FromString(data)


def _raise_first(response):
    for item in response.errors:
        error = errors.from_status(item.status)
        error.item = item.item
        raise error


@dataclass(frozen=True)
class ServerInfo:
    """What a server says of itself. `limits`: attributes of attn.v1.Limits by name."""

    version: str
    epoch: int
    device: str
    features: tuple
    limits: dict


class SequenceState:
    """What a client knows of a sequence."""

    def __init__(self, client, sequence_id, model, epoch, lens):
        self._client, self.id, self.model, self.epoch, self.lens = (client, sequence_id, model,
                                                                    epoch, lens)

    @property
    def len(self):
        """Tokens that all layers have."""
        return min(self.lens)

    def __repr__(self):
        return "<%s.Sequence %d of %s, %d tokens>" % (
            type(self).__module__.replace(".client", ""), self.id, self.model.spec.name, self.len)


class Calls:
    """State of one client beside its connection."""

    def __init__(self, owner, lease_ms, make_sequence):
        self.owner = owner or "python-" + uuid.uuid4().hex
        self.lease_ms = lease_ms
        self._make_sequence = make_sequence
        self._models = {}
        self.open_sequences = {}
        self.granted_lease = 6.0  # seconds

    def info(self):
        response = yield from _ask("GetServerInfo", _wire.request("GetServerInfo"))
        limits = {f.name: getattr(response.limits, f.name)
                  for f in response.limits.DESCRIPTOR.fields}
        return ServerInfo(response.version, response.server_epoch, response.device,
                          tuple(_wire.FEATURES.get(f, str(f)) for f in response.features), limits)

    # ---- models

    def declare_model(self, spec):
        request = _wire.request("DeclareModel", spec=models.encode_spec(spec))
        response = yield from _ask("DeclareModel", request)
        return self._keep(response.model)

    def get_model(self, name):
        response = yield from _ask("GetModel", _wire.request("GetModel", name=name))
        return self._keep(response.model)

    def list_models(self):
        request, found = _wire.request("ListModels"), []
        while True:
            response = yield from _ask("ListModels", request)
            found += [models.decode_info(model) for model in response.models]
            request.page_token = response.next_page_token
            if not request.page_token:
                return found

    def remove_model(self, name):
        yield from _ask("RemoveModel", _wire.request("RemoveModel", name=name))
        self._models.pop(name, None)

    def _keep(self, model):
        """One object per model, so that sequences of the same one are told by identity."""
        info = models.decode_info(model)
        kept = self._models.get(info.spec.name)
        if kept is None or kept.fingerprint != info.fingerprint:
            kept = self._models[info.spec.name] = info
        return kept

    # ---- sequences

    def open(self, model, count):
        if isinstance(model, str):
            model = self._models.get(model) or (yield from self.get_model(model))
        request = _wire.request("OpenSequences",
            model=model.spec.name, model_fingerprint=model.fingerprint, owner=self.owner,
            lease_ms=self.lease_ms, request_key=secrets.randbits(64) or 1)
        for _ in range(count):
            request.items.add()
        response = yield from _ask("OpenSequences", request)
        self.granted_lease = response.lease_ms / 1e3
        opened = [self._new(i, model, response.server_epoch, [0] * model.spec.num_layers)
                  for i in response.sequence_ids if i]
        if response.errors:
            yield from self.close(opened)
            _raise_first(response)
        return opened

    def _new(self, sequence_id, model, epoch, lens):
        sequence = self._make_sequence(sequence_id, model, epoch, lens)
        self.open_sequences[sequence_id] = sequence
        return sequence

    def fork(self, parents, counts, at_lens):
        request = _wire.request("ForkSequences", server_epoch=parents[0].epoch,
                                             request_key=secrets.randbits(64) or 1)
        for parent, count, at_len in zip(parents, counts, at_lens):
            item = request.items.add(parent_id=parent.id, num_children=count)
            if at_len is not None:
                item.at_len = at_len
        response = yield from _ask("ForkSequences", request)
        children, ids = [], iter(response.child_ids)
        for parent, count, at_len in zip(parents, counts, at_lens):
            length = parent.len if at_len is None else at_len
            for _ in range(count):
                child = next(ids)
                if child:
                    children.append(self._new(child, parent.model, parent.epoch,
                                              [length] * parent.model.spec.num_layers))
        if response.errors:
            yield from self.close(children)
            _raise_first(response)
        return children

    def reorder(self, targets, sources):
        request = _wire.request("ReorderSequences",
            server_epoch=targets[0].epoch, request_key=secrets.randbits(64) or 1,
            targets=[s.id for s in targets], sources=[s.id for s in sources])
        yield from _ask("ReorderSequences", request)
        lens = [list(s.lens) for s in sources]
        for target, its in zip(targets, lens):
            target.lens[:] = its

    def truncate(self, sequences, lengths):
        request = _wire.request("TruncateSequences", server_epoch=sequences[0].epoch,
                                                 request_key=secrets.randbits(64) or 1)
        for sequence, length in zip(sequences, lengths):
            request.items.add(sequence_id=sequence.id, len=length)
        response = yield from _ask("TruncateSequences", request)
        failed = {e.item for e in response.errors}
        for i, (sequence, length) in enumerate(zip(sequences, lengths)):
            if i not in failed:
                sequence.lens[:] = [min(n, length) for n in sequence.lens]
        _raise_first(response)

    def close(self, sequences):
        """Closing what is closed, or was of an earlier run of the server, is no error."""
        closing = [s for s in sequences if self.open_sequences.pop(s.id, None) is not None]
        if not closing:
            return
        yield from _ask("CloseSequences", _wire.request("CloseSequences",
            sequence_ids=[s.id for s in closing]))

    def describe(self, sequence):
        response = yield from _ask("DescribeSequences", _wire.request("DescribeSequences",
            server_epoch=sequence.epoch, sequence_ids=[sequence.id]))
        _raise_first(response)
        return response.sequences[0]

    def renew(self):
        response = yield from _ask("RenewLease", _wire.request("RenewLease",
            owner=self.owner, lease_ms=self.lease_ms))
        self.granted_lease = response.lease_ms / 1e3

    # ---- attend

    def attend(self, sequences, layer, q, k, v, options):
        step = Step(sequences, layer, q, k, v, **options)
        yield Call(_wire.ATTEND, step.message, step.failure_in)
        return step.finish()
