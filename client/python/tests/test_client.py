"""The client that waits: results, errors, lengths, sequences, life."""

import threading
import time
import unittest

import numpy as np

import support
from support import DIM, DIM_V, KV_HEADS, Q_HEADS, attnserve


class AttendTest(support.ServerCase):
    def setUp(self):
        super().setUp()
        self.client = attnserve.Client(self.server.address)
        self.addCleanup(self.client.close)
        self.spec = support.make_spec("plain")
        self.model = self.client.declare_model(self.spec)

    def test_prefill_and_decode_agree_with_numpy(self):
        with self.client.open(self.model) as sequence:
            for layer in range(2):
                group = self.model.groups_by_layer[layer]
                q, k, v = self.qkv(7)
                result = sequence.attend(layer, q, k, v, return_lse=True)
                out, lse = support.attend(group, q, k, v)
                self.assertEqual(result.out.shape, (7, Q_HEADS, DIM_V))
                self.assert_near(result.out, out)
                self.assert_near(result.lse, lse)
                for _ in range(3):
                    q1, k1, v1 = self.qkv(1)
                    k, v = np.concatenate([k, k1]), np.concatenate([v, v1])
                    self.assert_near(sequence.attend(layer, q1, k1, v1).out,
                                     support.attend(group, q1, k, v)[0])
            self.assertEqual(sequence.len, 10)

    def test_a_batch_of_sequences_of_any_lengths(self):
        sequences = self.client.open_many(self.model, 3)
        lens = [4, 1, 9]
        q, k, v = self.qkv(14)
        result = self.client.attend(sequences, 0, q, k, v, q_lens=lens)
        begin = 0
        for length in lens:
            part = slice(begin, begin + length)
            self.assert_near(result.out[part],
                             support.attend(self.model.groups_by_layer[0], q[part], k[part],
                                            v[part])[0])
            begin += length
        self.assertEqual([s.lens[0] for s in sequences], lens)

    def test_sixteen_bits(self):
        for dtype in ("float16", "bfloat16"):
            spec = support.make_spec("plain-" + dtype, dtype)
            model = self.client.declare_model(spec)
            q, k, v = self.qkv(6)
            if dtype == "float16":
                sent = [x.astype(np.float16) for x in (q, k, v)]
                exact = sent
            else:
                sent = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (q, k, v)]
                exact = [(x.astype(np.uint32) << 16).view(np.float32) for x in sent]
            with self.client.open(model) as sequence:
                out = sequence.attend(0, *sent).out
                wide = sequence.attend(0, sent[0], out_dtype="float32", q_starts=[0]).out
            want = support.attend(model.groups_by_layer[0], *exact)[0]
            self.assertEqual(out.dtype.itemsize, 2)
            self.assert_near(wide, want, 2e-2)
            if dtype == "bfloat16":
                out = (out.astype(np.uint32) << 16).view(np.float32)
            self.assert_near(out, want, 2e-2)

    def test_what_is_wrong_is_said_before_it_is_sent(self):
        q, k, v = self.qkv(4)
        with self.client.open(self.model) as sequence:
            for field, arguments in {
                "q": (q[..., :8], k, v),
                "k": (q, k.astype(np.float16), v),
                "v": (q, k, v[:3]),
            }.items():
                with self.assertRaises(attnserve.InvalidRequestError) as caught:
                    sequence.attend(0, *arguments)
                self.assertEqual(caught.exception.field, field)
                self.assertIsNotNone(caught.exception.want)
            for bad in (np.asfortranarray(q), q[::2], q.tolist(), q.astype(np.int32)):
                with self.assertRaises(attnserve.InvalidRequestError) as caught:
                    sequence.attend(0, bad, k, v)
                self.assertEqual(caught.exception.field, "q")
            with self.assertRaises(attnserve.InvalidRequestError):
                sequence.attend(2, q, k, v)
            with self.assertRaises(attnserve.InvalidRequestError):
                sequence.attend(0, q, k)
            self.assertEqual(sequence.lens, [0, 0])
            self.assertEqual(sequence.describe().layer_lens, [0, 0])

    def test_what_the_server_says_is_in_the_exception(self):
        q, k, v = self.qkv(4)
        with self.client.open(self.model) as sequence:
            sequence.attend(0, q, k, v)
            with self.assertRaises(attnserve.LengthMismatchError) as caught:
                sequence.attend(0, q, k, v, expected_lens=[1])
            self.assertEqual((caught.exception.actual_len, caught.exception.item), (4, 0))
            self.assertEqual(sequence.lens[0], 4)
        with self.assertRaises(attnserve.StaleSequenceError):
            sequence.attend(0, q, k, v)
        with self.assertRaises(attnserve.UnknownModelError) as caught:
            self.client.open("of nobody")
        self.assertEqual(caught.exception.field, "name")
        with self.assertRaises(attnserve.ModelExistsError):
            self.client.declare_model(support.make_spec("plain", "float16"))

    def test_a_failed_item_leaves_its_neighbours_their_rows(self):
        good, bad = self.client.open_many(self.model, 2)
        q, k, v = self.qkv(2)
        with self.assertRaises(attnserve.LengthMismatchError) as caught:
            self.client.attend([good, bad], 0, q, k, v, expected_lens=[0, 3])
        self.assertEqual(list(caught.exception.failed_items), [1])
        out = caught.exception.result.out
        self.assert_near(out[:1], support.attend(self.model.groups_by_layer[0], q[:1], k[:1],
                                                 v[:1])[0])
        self.assertTrue(np.isnan(out[1]).all())
        self.assertEqual((good.lens[0], bad.lens[0]), (1, 0))

    def test_forks_reorder_truncate_and_rewind(self):
        group = self.model.groups_by_layer[0]
        parent, other = self.client.open_many(self.model, 2)
        kept = {}
        for layer in range(2):
            kept[layer] = self.qkv(6)
            parent.attend(layer, *kept[layer])
        left, right = parent.fork(2, at_len=4)
        self.assertEqual((left.lens, right.len), ([4, 4], 4))
        q, k, v = self.qkv(1)
        out = left.attend(0, q, k, v).out
        self.assert_near(out, support.attend(group, q, np.concatenate([kept[0][1][:4], k]),
                                             np.concatenate([kept[0][2][:4], v]))[0])
        self.client.reorder([other], [parent])
        self.assertEqual(other.lens, parent.lens)
        parent.truncate(2)
        self.assertEqual(parent.lens, [2, 2])
        self.assertEqual(list(parent.describe().layer_lens), [2, 2])
        other.lens[0] = 3  # a draft of three tokens was rejected
        out = other.attend(0, q, k, v, rewind=True).out
        self.assert_near(out, support.attend(group, q, np.concatenate([kept[0][1][:3], k]),
                                             np.concatenate([kept[0][2][:3], v]))[0])
        self.assertEqual(other.lens[0], 4)

    def test_rows_that_see_every_key_and_rows_that_only_read(self):
        group = self.model.groups_by_layer[0]
        q, k, v = self.qkv(5)
        with self.client.open(self.model) as sequence:
            self.assert_near(sequence.attend(0, q, k, v, causal=False).out,
                             support.attend(group, q, k, v, causal=False)[0])
            self.assert_near(sequence.attend(0, q[:2]).out, support.attend(group, q[:2], k, v)[0])
            result = sequence.attend(0, None, k, v)
            self.assertEqual((result.out, sequence.lens[0]), (None, 10))

    def test_models_are_told_as_they_were_declared(self):
        group = self.model.spec.groups[1]
        self.assertEqual(group.window, (3, None))
        self.assertEqual(group.layers, (1,))
        self.assertAlmostEqual(self.model.spec.groups[0].scale, DIM ** -0.5)
        self.assertIs(self.client.declare_model(self.spec), self.model)
        self.assertIn("plain", [m.spec.name for m in self.client.list_models()])
        self.assertEqual(self.client.info().limits["max_sequence_len"], 1 << 20)


class LifeTest(support.ServerCase):
    def test_nothing_is_left_after_an_exception_or_a_forgotten_close(self):
        with self.assertRaises(ZeroDivisionError):
            with attnserve.Client(self.server.address) as client:
                model = client.declare_model(support.make_spec("life"))
                client.open_many(model, 5)
                raise ZeroDivisionError
        with attnserve.Client(self.server.address) as client:
            client.remove_model("life")  # in use if a sequence were left

    def test_leases_are_renewed_while_sequences_are_open(self):
        with attnserve.Client(self.server.address, lease=1.0) as client:
            sequence = client.open(client.declare_model(support.make_spec("lease")))
            time.sleep(2.5)
            self.assertEqual(sequence.describe().committed_len, 0)

    def test_threads_may_share_a_client(self):
        with attnserve.Client(self.server.address) as client:
            model = client.declare_model(support.make_spec("threads"))
            group = model.groups_by_layer[0]
            failures = []

            def work(seed):
                random = np.random.default_rng(seed)
                try:
                    with client.open(model) as sequence:
                        keys = np.empty((0, KV_HEADS, DIM), np.float32)
                        values = np.empty((0, KV_HEADS, DIM_V), np.float32)
                        for _ in range(20):
                            q = random.standard_normal((1, Q_HEADS, DIM)).astype(np.float32)
                            k = random.standard_normal((1, KV_HEADS, DIM)).astype(np.float32)
                            v = random.standard_normal((1, KV_HEADS, DIM_V)).astype(np.float32)
                            keys = np.concatenate([keys, k])
                            values = np.concatenate([values, v])
                            out = sequence.attend(0, q, k, v).out
                            want = support.attend(group, q, keys, values)[0]
                            np.testing.assert_allclose(out, want, atol=2e-5)
                except BaseException as failure:  # told by the test's own thread
                    failures.append(failure)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])


class RestartTest(unittest.TestCase):
    def test_a_server_that_goes_away_is_an_exception_that_says_so(self):
        server = support.Server()
        client = attnserve.Client(server.address, timeout=5)
        sequence = client.open(client.declare_model(support.make_spec("gone")))
        server.kill()
        ones = np.ones((1, Q_HEADS, DIM), np.float32)
        with self.assertRaises(attnserve.ServerUnavailableError) as caught:
            sequence.attend(0, ones)
        self.assertIn("no server answers", str(caught.exception))
        again = support.Server(server.address)
        client.declare_model(support.make_spec("gone"))
        with self.assertRaises(attnserve.StaleSequenceError):
            client.attend([sequence], 0, ones)
        client.close()
        again.stop()


if __name__ == "__main__":
    unittest.main()
