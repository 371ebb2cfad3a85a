"""The client for asyncio."""

import asyncio
import unittest

import support
from support import attnserve


class AioTest(support.ServerCase):
    def test_many_sequences_at_once(self):
        async def one(client, model):
            group = model.groups_by_layer[0]
            async with await client.open(model) as sequence:
                q, k, v = self.qkv(5)
                out = (await sequence.attend(0, q, k, v)).out
                self.assert_near(out, support.attend(group, q, k, v)[0])
                await sequence.attend(1, q, k, v)
                (child,) = await sequence.fork()
                await child.truncate(3)
                self.assertEqual(list((await child.describe()).layer_lens), [3, 3])
                self.assertEqual((child.len, sequence.len), (3, 5))
                await child.close()

        async def run():
            async with attnserve.aio.Client(self.server.address) as client:
                model = await client.declare_model(support.make_spec("aio"))
                await asyncio.gather(*(one(client, model) for _ in range(20)))
                self.assertEqual(client._calls.open_sequences, {})

        asyncio.run(run())

    def test_errors_are_those_of_the_client_that_waits(self):
        async def run():
            async with attnserve.aio.Client(self.server.address) as client:
                model = await client.declare_model(support.make_spec("aio-errors"))
                sequence = await client.open(model)
                q, k, v = self.qkv(2)
                with self.assertRaises(attnserve.InvalidRequestError):
                    await sequence.attend(0, q, k, v[:1])
                with self.assertRaises(attnserve.LengthMismatchError):
                    await sequence.attend(0, q, k, v, expected_lens=[9])
                await client.open_many(model, 3)  # closed with the client

        asyncio.run(run())

    def test_a_cancelled_call_ends_and_the_client_goes_on(self):
        async def run():
            async with attnserve.aio.Client(self.server.address) as client:
                model = await client.declare_model(support.make_spec("aio-cancel"))
                sequence = await client.open(model)
                task = asyncio.ensure_future(sequence.attend(0, *self.qkv(2000)))
                await asyncio.sleep(0)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                other = await client.open(model)
                q, k, v = self.qkv(1)
                self.assertEqual((await other.attend(0, q, k, v)).out.shape[0], 1)

        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
