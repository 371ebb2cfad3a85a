"""Unary Attend: answers of every dtype against the oracle, append rules, flags, item errors; and
Compute, which is refused."""

import grpc

import oracle
from attn.v1 import attention_pb2 as pb
from case import DIM_QK, DTYPES, LAYERS, Q_HEADS, Case, Item, make_attend


class AttendTest(Case):
    def check_prefill_and_decode(self, dtype):
        """Two sequences in all layers: a prefill of 19 tokens, then five steps of one token."""
        ids = self.open(self.declare(dtype), 2)
        keys = {(s, l): oracle.Keys(LAYERS[l]) for s in ids for l in range(len(LAYERS))}
        for count in (19, 1, 1, 1, 1, 1):
            items = [self.append_item(s, keys[s, l], l, count, dtype) for s, l in keys]
            response = self.attend(items, dtype)
            self.assertEqual(list(response.new_lens), [len(k) for k in keys.values()])
            self.assertGreater(response.timing.compute_ns, 0)
            wanted = [oracle.attend(k, item.q) for k, item in zip(keys.values(), items)]
            self.check_answer(response, wanted, dtype)

    def test_float32_prefill_and_decode_agree_with_the_oracle(self):
        self.check_prefill_and_decode("float32")

    def test_float16_prefill_and_decode_agree_with_the_oracle(self):
        self.check_prefill_and_decode("float16")

    def test_bfloat16_prefill_and_decode_agree_with_the_oracle(self):
        self.check_prefill_and_decode("bfloat16")

    def test_rows_may_start_anywhere_and_see_what_their_position_sees(self):
        (sequence,) = self.open(self.declare())
        keys = [oracle.Keys(geometry) for geometry in LAYERS]
        self.attend([self.append_item(sequence, keys[l], l, 12) for l in range(3)])
        for q_start in (0, 4, 30):
            q = self.numbers(3, Q_HEADS, DIM_QK)
            request = make_attend([Item(sequence, l, q) for l in range(3)])
            request.q_starts.append(q_start)
            wanted = [oracle.attend(k, q, q_start=q_start) for k in keys]
            self.check_answer(self.service.attention.Attend(request), wanted)

    def test_flags_change_what_is_seen(self):
        (sequence,) = self.open(self.declare())
        keys = oracle.Keys(LAYERS[1])
        self.attend([self.append_item(sequence, keys, 1, 9)])
        q = self.numbers(4, Q_HEADS, DIM_QK)
        for flags, options in ((pb.ITEM_FLAG_NON_CAUSAL, dict(causal=False)),
                               (pb.ITEM_FLAG_NO_SINK_LOGITS, dict(with_sinks=False))):
            response = self.attend([Item(sequence, 1, q, flags=flags)])
            self.check_answer(response, [oracle.attend(keys, q, **options)])
        after = self.append_item(sequence, keys, 1, 2)
        after.flags = pb.ITEM_FLAG_APPEND_AFTER
        response = self.attend([after])
        self.assertEqual(list(response.new_lens), [11])
        self.check_answer(response, [oracle.attend(keys, after.q, q_start=9, kv_end=9)])

    def test_out_can_be_asked_for_in_float32(self):
        (sequence,) = self.open(self.declare("bfloat16"))
        keys = oracle.Keys(LAYERS[0])
        item = self.append_item(sequence, keys, 0, 3, "bfloat16")
        request = make_attend([item], "bfloat16", return_lse=False)
        request.out_dtype = pb.DATA_TYPE_FLOAT32
        response = self.service.attention.Attend(request)
        self.assertFalse(response.HasField("lse"))
        out, _ = oracle.attend(keys, item.q)
        oracle.check_near(oracle.unpack(response.out.raw, "float32"), out, "bfloat16", "out")

    def test_a_repeated_append_is_computed_again_and_not_appended_again(self):
        (sequence,) = self.open(self.declare())
        keys = oracle.Keys(LAYERS[0])
        item = self.append_item(sequence, keys, 0, 3)
        first = self.attend([item])
        again = self.attend([item])
        self.assertEqual(list(again.item_replayed), [True])
        self.assertEqual(list(again.new_lens), [3])
        self.assertEqual(again.out.raw, first.out.raw)

    def test_a_rewind_cuts_what_was_drafted(self):
        (sequence,) = self.open(self.declare())
        keys = oracle.Keys(LAYERS[0])
        self.attend([self.append_item(sequence, keys, 0, 6)])
        kept = keys.cut(4)
        item = self.append_item(sequence, kept)
        mismatch = self.attend([item])
        self.assertEqual(list(mismatch.item_reasons), [pb.REASON_LENGTH_MISMATCH])
        self.assertEqual(list(mismatch.new_lens), [6])
        item.flags = pb.ITEM_FLAG_REWIND
        response = self.attend([item])
        self.assertEqual(list(response.new_lens), [5])
        self.check_answer(response, [oracle.attend(kept, item.q)])

    def test_a_failed_item_has_nan_rows_and_its_neighbours_are_right(self):
        (sequence,) = self.open(self.declare())
        keys = oracle.Keys(LAYERS[0])
        good = self.append_item(sequence, keys, 0, 2)
        closed = self.open(self.declare())[0]
        self.close([closed])
        bad = Item(closed, 0, self.numbers(1, Q_HEADS, DIM_QK))
        response = self.attend([bad, good])
        self.assertEqual(list(response.item_reasons), [pb.REASON_STALE_SEQUENCE, pb.REASON_OK])
        self.assertEqual([(e.item, e.status.code) for e in response.errors],
                         [(0, grpc.StatusCode.NOT_FOUND.value[0])])
        out = oracle.unpack(response.out.raw, "float32")
        row = len(out) // 3
        self.assertTrue(all(x != x for x in out[:row]))
        oracle.check_near(out[row:], oracle.attend(keys, good.q)[0], "float32", "out")

    def test_every_item_of_a_dtype_must_be_sent_in_it(self):
        (sequence,) = self.open(self.declare("bfloat16"))
        item = Item(sequence, 0, self.numbers(1, Q_HEADS, DIM_QK))
        for dtype in sorted(set(DTYPES) - {"bfloat16"}):
            self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT, pb.REASON_INVALID, "q.dtype",
                                self.service.attention.Attend, make_attend([item], dtype))

    def test_compute_is_refused_by_name(self):
        detail = self.assert_refused(
            grpc.StatusCode.UNIMPLEMENTED, pb.REASON_UNSUPPORTED, "compute",
            self.service.attention.Compute, pb.ComputeRequest(causal=True))
        self.assertIn("Attend", detail.message)
