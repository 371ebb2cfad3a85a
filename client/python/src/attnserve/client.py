"""The client for programs that wait: ``attnserve.Client``. ``attnserve.aio`` has the same for asyncio."""

import threading
import time

import grpc

from attnserve import errors
from attnserve._calls import Calls, RetryPolicy, SequenceState, actions

__all__ = ["Client", "Sequence"]

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
    # A server that is started anew is found soon.
    ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000))


class Sequence(SequenceState):
    """Tokens whose K and V the server keeps. Made by :meth:`Client.open` and :meth:`fork`.

    A context manager that closes it. Not for several threads at once.

    Attributes
    ----------
    id : int
    model : attnserve.ModelInfo
    lens : list of int
        Tokens of each layer, as this client knows them.
    """

    def attend(self, layer, q, k=None, v=None, **options):
        """One layer step of this sequence alone, see :meth:`Client.attend`."""
        return self._client.attend([self], layer, q, k, v, **options)

    def fork(self, count=1, at_len=None):
        """Children that share its first `at_len` tokens (default: :attr:`len`). No bytes move.

        Returns
        -------
        list of Sequence
        """
        return self._client.fork([self], [count], [at_len])

    def truncate(self, length):
        """Cuts layers that are longer to `length` tokens."""
        self._client.truncate([self], [length])

    def describe(self):
        """What the server says of it: attributes of attn.v1.SequenceInfo."""
        return self._client.describe(self)

    def close(self):
        """Gives its pages back. Again: does nothing."""
        self._client.close_sequences([self])

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


class Client:
    """A connection to an attention server.

    Parameters
    ----------
    target : str
        "host:port" or "unix:path".
    owner : str, optional
        Who the sequences belong to; random by default. When nothing is heard of an owner for
        `lease` its sequences are closed.
    timeout : float
        Seconds of one call, repeats included.
    lease : float, optional
        Seconds; the server's default (30) by default. Renewed in the background while sequences
        are open.
    retry : RetryPolicy

    A context manager that closes every sequence still open. Any thread.

    Examples
    --------
    >>> with attnserve.Client("127.0.0.1:50051") as client:
    ...     model = client.declare_model(spec)
    ...     with client.open(model) as sequence:
    ...         out = sequence.attend(0, q, k, v).out
    """

    def __init__(self, target="127.0.0.1:50051", *, owner=None, timeout=60.0, lease=None,
                 retry=RetryPolicy()):
        self.target, self.timeout, self.retry = target, timeout, retry
        self._channel = grpc.insecure_channel(target, CHANNEL_OPTIONS)
        self._methods = {}
        self._calls = Calls(owner, int((lease or 0) * 1000),
                            lambda *parts: Sequence(self, *parts))
        self._stopped = threading.Event()
        self._keeper = None

    @property
    def owner(self):
        """Whose lease covers the sequences."""
        return self._calls.owner

    # ---- calls

    def info(self):
        """What the server says of itself.

        Returns
        -------
        ServerInfo
        """
        return self._run(self._calls.info())

    def declare_model(self, spec):
        """Makes a model known to the server; again, with an equal spec, does nothing.

        Parameters
        ----------
        spec : ModelSpec

        Returns
        -------
        ModelInfo

        Raises
        ------
        ModelExistsError
            The name has another spec; `field` names the first difference.
        """
        return self._run(self._calls.declare_model(spec))

    def get_model(self, name):
        """A declared model, or UnknownModelError."""
        return self._run(self._calls.get_model(name))

    def list_models(self):
        """All of them, by name."""
        return self._run(self._calls.list_models())

    def remove_model(self, name):
        """ModelInUseError while sequences of it are open."""
        self._run(self._calls.remove_model(name))

    def open(self, model):
        """An empty sequence.

        Parameters
        ----------
        model : ModelInfo or str

        Returns
        -------
        Sequence
        """
        return self.open_many(model, 1)[0]

    def open_many(self, model, count):
        """`count` empty sequences in one call: all or none."""
        opened = self._run(self._calls.open(model, count))
        self._keep_lease()
        return opened

    def fork(self, parents, counts, at_lens=None):
        """Children of several sequences in one call: of the first parent, then of the next.

        Parameters
        ----------
        parents : list of Sequence
        counts : list of int
            Children of each.
        at_lens : list of int or None, optional
            Tokens that they share; None: all that every layer has.
        """
        return self._run(self._calls.fork(parents, counts, at_lens or [None] * len(parents)))

    def reorder(self, targets, sources):
        """``targets[i]`` becomes a copy of ``sources[i]`` as it was before. All or nothing."""
        self._run(self._calls.reorder(targets, sources))

    def truncate(self, sequences, lengths):
        """Cuts layers of ``sequences[i]`` that are longer to ``lengths[i]`` tokens."""
        self._run(self._calls.truncate(sequences, lengths))

    def describe(self, sequence):
        """What the server says of a sequence: attributes of attn.v1.SequenceInfo."""
        return self._run(self._calls.describe(sequence))

    def close_sequences(self, sequences):
        """Gives their pages back."""
        self._run(self._calls.close(sequences))

    def attend(self, sequences, layer, q, k=None, v=None, **options):
        """One layer step of many sequences: appends k and v, then attends.

        Parameters
        ----------
        sequences : list of Sequence
            Of one model.
        layer : int
        q : array or None
            [rows, num_q_heads, head_dim], the sequences' rows one behind another. numpy or torch,
            the model's dtype, contiguous, on the CPU. None: append only.
        k, v : array, optional
            [new, num_kv_heads, head_dim], [new, num_kv_heads, head_dim_v]. None: read only.
        q_lens, kv_lens : list of int, optional
            Rows of each sequence; equal shares by default.
        q_starts : list of int, optional
            Position of each sequence's first row. By default its rows end where its keys end.
        causal : bool
            False: rows see every key, later ones too.
        rewind : bool
            Cuts a longer layer to the length known here first: a rejected draft costs no call.
        append_after : bool
            Attends over the keys before the append.
        sinks : bool
            False: leaves the sink logits out, for parts that are merged by lse.
        return_lse : bool
        out_dtype : str, optional
            "float32" for parts that will be merged; the model's dtype by default.
        expected_lens : list of int, optional
            The layer's length before the append; by default as this client knows it.

        Returns
        -------
        AttendResult

        Raises
        ------
        InvalidRequestError
            An argument is at fault; nothing has been sent.
        AttnError
            An item failed; `item` is its number, `result` has the others' rows.
        """
        return self._run(self._calls.attend(sequences, layer, q, k, v, options))

    # ---- life

    def close(self):
        """Closes the sequences still open, and the connection."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        try:
            left = list(self._calls.open_sequences.values())
            if left:
                self._run(self._calls.close(left), RetryPolicy(max_attempts=1), 5.0)
        except errors.AttnError:
            pass  # their lease ends them
        finally:
            self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def _keep_lease(self):
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._renew, name="attnserve-lease", daemon=True)
            self._keeper.start()

    def _renew(self):
        while not self._stopped.wait(self._calls.granted_lease / 6):
            if not self._calls.open_sequences:
                continue
            try:
                self._run(self._calls.renew(), RetryPolicy(max_attempts=1))
            except (errors.AttnError, ValueError):  # tried again soon; ValueError: channel closed
                pass

    def _run(self, steps, retry=None, timeout=None):
        """The result of a generator of _calls.py."""
        todo = actions(steps, retry or self.retry, timeout or self.timeout, self.target)
        try:
            action = next(todo)
            while True:
                try:
                    answer = self._do(*action)
                except grpc.RpcError as error:
                    action = todo.throw(error)
                else:
                    action = todo.send(answer)
        except StopIteration as done:
            return done.value

    def _do(self, method, message, seconds):
        if method is None:
            return time.sleep(seconds)
        if method not in self._methods:
            self._methods[method] = self._channel.unary_unary(method)
        return self._methods[method](message, timeout=seconds)
