"""One layer step: from arguments to bytes, and from an answer to results and exceptions."""

import random
import secrets

from attnserve import _frames, _wire, errors, tensors

NON_CAUSAL, APPEND_AFTER, REWIND, NO_SINKS = 1, 2, 4, 8


class AttendResult:
    """What a layer step gave.

    Attributes
    ----------
    out : numpy.ndarray or torch.Tensor
        [rows, num_q_heads, head_dim_v], of the family of q; numpy arrays are read-only.
    lse : the same, or None
        [rows, num_q_heads], float32, natural log; -inf for a row that sees nothing.
    replayed : list of bool
        Per item, whether its append had been done by an earlier attempt.
    queue_ns, compute_ns : int
        Of the server.
    launch_items : int
        Items of all clients in the launch.
    """

    __slots__ = ("out", "lse", "replayed", "queue_ns", "compute_ns", "launch_items")

    def __init__(self, out, lse, replayed, timing):
        self.out, self.lse, self.replayed = out, lse, replayed
        self.queue_ns, self.compute_ns = timing.queue_ns, timing.compute_ns
        self.launch_items = timing.launch_items


_random = random.Random(secrets.randbits(256))


def _new_token():
    """Names an append in its repeats. Never 0."""
    return _random.getrandbits(64) or 1


def _lens(name, given, rows, count):
    """Rows per item, adding up to `rows`."""
    if given is None:
        if count and rows % count == 0:
            return [rows // count] * count
        raise errors.InvalidRequestError(
            "%s: got none, want one number per sequence: %d rows do not divide among %d sequences"
            % (name, rows, count), field=name)
    given = [int(n) for n in given]
    if len(given) != count or min(given, default=0) < 0 or sum(given) != rows:
        raise errors.InvalidRequestError(
            "%s: got %s, want %d numbers that add up to the %d rows" % (name, given, count, rows),
            field=name)
    return given


class Step:
    """One request. Made once; its bytes serve for repeats, too."""

    def __init__(self, sequences, layer, q, k, v, *, q_lens=None, kv_lens=None, q_starts=None,
                 causal=True, rewind=False, append_after=False, sinks=True, return_lse=False,
                 out_dtype=None, expected_lens=None):
        if not sequences:
            raise errors.InvalidRequestError("sequences: got none, want at least one",
                                             field="sequences")
        self.sequences, self.layer, self.like = sequences, layer, q if q is not None else k
        info = sequences[0].model
        if any(s.model is not info for s in sequences):
            raise errors.InvalidRequestError("sequences: got several models, want one",
                                             field="sequences")
        if not 0 <= layer < info.spec.num_layers:
            raise errors.InvalidRequestError("layer: got %d, want 0 to %d"
                                             % (layer, info.spec.num_layers - 1), field="layer")
        if (k is None) != (v is None):
            raise errors.InvalidRequestError("v: got only one of k and v, want both or neither",
                                             field="v")
        if q is None and k is None:
            raise errors.InvalidRequestError("q: got neither q nor k and v", field="q")
        group, self._dtype = info.groups_by_layer[layer], info.spec.dtype
        self._heads, self._dim_v = group.num_q_heads, group.dim_v
        count = len(sequences)
        q_memory = k_memory = v_memory = b""
        q_rows = kv_rows = 0
        if q is not None:
            q_memory, q_rows = tensors.rows_of(q, "q", self._dtype, group.num_q_heads,
                                               group.head_dim)
        if k is not None:
            k_memory, kv_rows = tensors.rows_of(k, "k", self._dtype, group.num_kv_heads,
                                                group.head_dim)
            v_memory, v_rows = tensors.rows_of(v, "v", self._dtype, group.num_kv_heads,
                                               group.dim_v)
            if v_rows != kv_rows:
                raise errors.InvalidRequestError("v: got %d rows, want %d, as k has"
                                                 % (v_rows, kv_rows), field="v")
        self.q_lens = _lens("q_lens", q_lens, q_rows, count)
        if kv_lens is None and q_lens is not None and kv_rows == q_rows:
            kv_lens = q_lens
        kv_lens = _lens("kv_lens", kv_lens, kv_rows, count)
        if expected_lens is None:
            expected_lens = [s.lens[layer] for s in sequences]
        flags = ((0 if causal else NON_CAUSAL) | (APPEND_AFTER if append_after else 0) |
                 (REWIND if rewind else 0) | (0 if sinks else NO_SINKS))
        head = _wire.AttendRequest(
            server_epoch=sequences[0].epoch, sequence_ids=[s.id for s in sequences],
            layers=[layer], expected_lens=expected_lens, q_lens=self.q_lens,
            kv_new_lens=kv_lens, return_lse=return_lse)
        if flags:
            head.flags.append(flags)
        if kv_rows:
            head.append_tokens.extend(_new_token() for _ in sequences)
        if q_starts is not None:
            head.q_starts.extend(int(p) for p in q_starts)
        if out_dtype is not None:
            head.out_dtype = tensors.WIRE[out_dtype]
        self.message = _frames.join_attend(head.SerializeToString(), tensors.WIRE[self._dtype],
                                           q=q_memory, k=k_memory, v=v_memory)

    def failure_in(self, data):
        """Reads an answer. The first error if every item failed with one that a repeat may mend."""
        self._answer = _frames.split_attend(data)
        failed = [errors.from_status(e.status) for e in self._answer[0].errors]
        if len(failed) == len(self.sequences) and all(map(errors.can_retry, failed)):
            return failed[0]
        return None

    def finish(self):
        """The result of the answer read last; keeps the sequences' lengths. Raises the first failed
        item's exception, with `item`, its number, and `result`, the whole, whose failed rows are
        NaN."""
        response, out, lse = self._answer
        layer = self.layer
        for sequence, length in zip(self.sequences, response.new_lens):
            sequence.lens[layer] = length
        result = AttendResult(
            self._tensor(out, (self._heads, self._dim_v)), self._tensor(lse, (self._heads,)),
            list(response.item_replayed) or [False] * len(self.sequences), response.timing)
        if response.errors:
            raise self._error(response, result)
        return result

    def _tensor(self, part, tail):
        if part is None:
            return None
        dtype, shape, raw = part
        return tensors.from_bytes(raw, tensors.NAMES[dtype], shape or (sum(self.q_lens),) + tail,
                                  self.like)

    def _error(self, response, result):
        first = response.errors[0]
        error = errors.from_status(first.status)
        error.item, error.result = first.item, result
        error.failed_items = {e.item: errors.from_status(e.status) for e in response.errors}
        if isinstance(error, errors.LengthMismatchError):
            error.actual_len = response.new_lens[first.item]
        return error
