"""The client for asyncio: as ``attnserve.Client``, with methods to be awaited.

    async with attnserve.aio.Client("127.0.0.1:50051") as client:
        model = await client.declare_model(spec)
        async with await client.open(model) as sequence:
            result = await sequence.attend(0, q, k, v)
"""

import asyncio

import grpc
import grpc.aio

from attnserve import errors
from attnserve._calls import Calls, RetryPolicy, SequenceState, actions
from attnserve.client import CHANNEL_OPTIONS

__all__ = ["Client", "Sequence"]


class Sequence(SequenceState):
    """See :class:`attnserve.Sequence`; calls of one sequence are awaited one after another."""

    async def attend(self, layer, q, k=None, v=None, **options):
        """See :meth:`attnserve.Client.attend`."""
        return await self._client.attend([self], layer, q, k, v, **options)

    async def fork(self, count=1, at_len=None):
        """See :meth:`attnserve.Sequence.fork`."""
        return await self._client.fork([self], [count], [at_len])

    async def truncate(self, length):
        """Cuts layers that are longer to `length` tokens."""
        await self._client.truncate([self], [length])

    async def describe(self):
        """See :meth:`attnserve.Sequence.describe`."""
        return await self._client.describe(self)

    async def close(self):
        """Gives its pages back. Again: does nothing."""
        await self._client.close_sequences([self])

    async def __aenter__(self):
        return self

    async def __aexit__(self, *unused):
        await self.close()


class Client:
    """See :class:`attnserve.Client`. To be made where an event loop runs."""

    def __init__(self, target="127.0.0.1:50051", *, owner=None, timeout=60.0, lease=None,
                 retry=RetryPolicy()):
        self.target, self.timeout, self.retry = target, timeout, retry
        self._channel = grpc.aio.insecure_channel(target, CHANNEL_OPTIONS)
        self._methods = {}
        self._calls = Calls(owner, int((lease or 0) * 1000),
                            lambda *parts: Sequence(self, *parts))
        self._keeper = None

    @property
    def owner(self):
        """Whose lease covers the sequences."""
        return self._calls.owner

    async def info(self):
        """See :meth:`attnserve.Client.info`."""
        return await self._run(self._calls.info())

    async def declare_model(self, spec):
        """See :meth:`attnserve.Client.declare_model`."""
        return await self._run(self._calls.declare_model(spec))

    async def get_model(self, name):
        """A declared model, or UnknownModelError."""
        return await self._run(self._calls.get_model(name))

    async def list_models(self):
        """All of them, by name."""
        return await self._run(self._calls.list_models())

    async def remove_model(self, name):
        """ModelInUseError while sequences of it are open."""
        await self._run(self._calls.remove_model(name))

    async def open(self, model):
        """An empty sequence."""
        return (await self.open_many(model, 1))[0]

    async def open_many(self, model, count):
        """`count` empty sequences in one call: all or none."""
        opened = await self._run(self._calls.open(model, count))
        if self._keeper is None:
            self._keeper = asyncio.ensure_future(self._renew())
        return opened

    async def fork(self, parents, counts, at_lens=None):
        """See :meth:`attnserve.Client.fork`."""
        return await self._run(self._calls.fork(parents, counts, at_lens or [None] * len(parents)))

    async def reorder(self, targets, sources):
        """See :meth:`attnserve.Client.reorder`."""
        await self._run(self._calls.reorder(targets, sources))

    async def truncate(self, sequences, lengths):
        """See :meth:`attnserve.Client.truncate`."""
        await self._run(self._calls.truncate(sequences, lengths))

    async def describe(self, sequence):
        """See :meth:`attnserve.Client.describe`."""
        return await self._run(self._calls.describe(sequence))

    async def close_sequences(self, sequences):
        """Gives their pages back."""
        await self._run(self._calls.close(sequences))

    async def attend(self, sequences, layer, q, k=None, v=None, **options):
        """See :meth:`attnserve.Client.attend`. The tensors are read before this returns control."""
        return await self._run(self._calls.attend(sequences, layer, q, k, v, options))

    async def close(self):
        """Closes the sequences still open, and the connection."""
        if self._keeper is not None:
            self._keeper.cancel()
        try:
            left = list(self._calls.open_sequences.values())
            if left:
                await self._run(self._calls.close(left), RetryPolicy(max_attempts=1), 5.0)
        except errors.AttnError:
            pass  # their lease ends them
        finally:
            await self._channel.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *unused):
        await self.close()

    async def _renew(self):
        while True:
            await asyncio.sleep(self._calls.granted_lease / 6)
            if not self._calls.open_sequences:
                continue
            try:
                await self._run(self._calls.renew(), RetryPolicy(max_attempts=1))
            except errors.AttnError:
                pass  # tried again soon

    async def _run(self, steps, retry=None, timeout=None):
        """The result of a generator of _calls.py."""
        todo = actions(steps, retry or self.retry, timeout or self.timeout, self.target)
        try:
            action = next(todo)
            while True:
                try:
                    answer = await self._do(*action)
                except grpc.RpcError as error:
                    action = todo.throw(error)
                else:
                    action = todo.send(answer)
        except StopIteration as done:
            return done.value

    async def _do(self, method, message, seconds):
        if method is None:
            return await asyncio.sleep(seconds)
        if method not in self._methods:
            self._methods[method] = self._channel.unary_unary(method)
        return await self._methods[method](message, timeout=seconds)
