"""What the tests share: a declared model, sequences that are closed afterwards, requests made of
items, and answers compared with the oracle."""

import unittest

import grpc

import oracle
import service
from attn.v1 import attention_pb2 as pb

Q_HEADS, KV_HEADS, DIM_QK, DIM_V = 4, 2, 16, 8
SINKS = [[0.5, -1.0], [0.0, 0.25], [-2.0, 1.5], [1.0, 1.0]]
PLAIN = oracle.Geometry(Q_HEADS, KV_HEADS, DIM_QK, DIM_V)
WINDOWED = oracle.Geometry(
    Q_HEADS, KV_HEADS, DIM_QK, DIM_V, scale=0.375, cap=3.0, left=5, sinks=SINKS)
LAYERS = [PLAIN, WINDOWED, PLAIN]
DTYPES = {
    "float32": pb.DATA_TYPE_FLOAT32,
    "float16": pb.DATA_TYPE_FLOAT16,
    "bfloat16": pb.DATA_TYPE_BFLOAT16,
}


def make_spec(name, dtype="float32"):
    heads = dict(num_q_heads=Q_HEADS, num_kv_heads=KV_HEADS, head_dim_qk=DIM_QK, head_dim_v=DIM_V)
    windowed = pb.LayerGroup(
        layers=[1], softmax_scale=WINDOWED.scale, logit_soft_cap=WINDOWED.cap,
        window=pb.Window(left=WINDOWED.left), sink_logits_per_head=2,
        sink_logits=[s for head in SINKS for s in head], **heads)
    return pb.ModelSpec(
        name=name, activation_dtype=DTYPES[dtype], num_layers=len(LAYERS), content_tag="interop",
        layer_groups=[pb.LayerGroup(layers=[0, 2], **heads), windowed])


class Item:
    """One (sequence, layer) of an Attend request. q, k, v: flat lists of numbers as stored."""

    def __init__(self, sequence, layer, q=(), k=(), v=(), expected_len=0, flags=0, token=0):
        self.sequence, self.layer, self.q, self.k, self.v = sequence, layer, q, k, v
        self.expected_len, self.flags, self.token = expected_len, flags, token


def make_attend(items, dtype="float32", return_lse=True):
    request = pb.AttendRequest(return_lse=return_lse)
    values = {"q": [], "k": [], "v": []}
    for item in items:
        request.sequence_ids.append(item.sequence)
        request.layers.append(item.layer)
        request.expected_lens.append(item.expected_len)
        request.q_lens.append(len(item.q) // (Q_HEADS * DIM_QK))
        request.kv_new_lens.append(len(item.k) // (KV_HEADS * DIM_QK))
        request.flags.append(item.flags)
        request.append_tokens.append(item.token)
        for name in values:
            values[name] += getattr(item, name)
    for name, (heads, dim) in {"q": (Q_HEADS, DIM_QK), "k": (KV_HEADS, DIM_QK),
                               "v": (KV_HEADS, DIM_V)}.items():
        if values[name]:
            getattr(request, name).CopyFrom(make_tensor(values[name], heads, dim, dtype))
    return request


def make_tensor(values, heads, dim, dtype="float32"):
    return pb.Tensor(dtype=DTYPES[dtype], shape=[len(values) // (heads * dim), heads, dim],
                     raw=oracle.pack(values, dtype))


class Case(unittest.TestCase):
    """One test against the running server, with owners and models of its own."""

    def setUp(self):
        self.service = service.current
        self.random = self.service.random
        self.owner = "interop %016x" % self.random.getrandbits(64)
        self.models = []
        self.opened = set()

    def tearDown(self):
        if self.opened:
            self.close(list(self.opened))
        for name in self.models:
            self.remove(name)

    def declare(self, dtype="float32", spec=None):
        spec = spec or make_spec("interop-%016x" % self.random.getrandbits(64), dtype)
        response = self.service.models.DeclareModel(pb.DeclareModelRequest(spec=spec))
        self.models.append(spec.name)
        return response.model

    def remove(self, name):
        try:
            self.service.models.RemoveModel(pb.RemoveModelRequest(name=name))
        except grpc.RpcError as error:
            if service.detail_of(error).reason != pb.REASON_UNKNOWN_MODEL:
                raise

    def open(self, model, count=1, lease_ms=0):
        response = self.service.sequences.OpenSequences(pb.OpenSequencesRequest(
            model=model.spec.name, model_fingerprint=model.fingerprint, owner=self.owner,
            lease_ms=lease_ms, items=[pb.OpenSequencesRequest.Item() for _ in range(count)]))
        self.assertFalse(response.errors)
        ids = list(response.sequence_ids)
        self.opened |= set(ids)
        return ids

    def close(self, ids):
        self.opened -= set(ids)
        response = self.service.sequences.CloseSequences(pb.CloseSequencesRequest(sequence_ids=ids))
        self.assertFalse(response.errors)

    def describe(self, sequence):
        response = self.service.sequences.DescribeSequences(
            pb.DescribeSequencesRequest(sequence_ids=[sequence]))
        self.assertFalse(response.errors)
        return response.sequences[0]

    def numbers(self, rows, heads, dim, dtype="float32"):
        """Random rows, rounded to dtype."""
        return oracle.as_stored(
            [self.random.gauss(0, 1) for _ in range(rows * heads * dim)], dtype)

    def append_item(self, sequence, keys, layer=0, count=1, dtype="float32"):
        """An item that appends `count` tokens and asks with as many rows; `keys` gets them too."""
        item = Item(sequence, layer, self.numbers(count, Q_HEADS, DIM_QK, dtype),
                    self.numbers(count, KV_HEADS, DIM_QK, dtype),
                    self.numbers(count, KV_HEADS, DIM_V, dtype),
                    expected_len=len(keys), token=self.random.getrandbits(64) | 1)
        keys.append(item.k, item.v)
        return item

    def attend(self, items, dtype="float32"):
        return self.service.attention.Attend(make_attend(items, dtype))

    def check_answer(self, response, wanted, dtype="float32"):
        """`wanted`: (out, lse) of the oracle for each item, in order."""
        self.assertFalse(response.errors)
        self.assertFalse(response.item_reasons)
        out = [x for item in wanted for x in item[0]]
        lse = [x for item in wanted for x in item[1]]
        self.assertEqual(response.out.dtype, DTYPES[dtype])
        self.assertEqual(list(response.out.shape), [len(lse) // Q_HEADS, Q_HEADS, DIM_V])
        self.assertEqual(response.lse.dtype, pb.DATA_TYPE_FLOAT32)
        oracle.check_near(oracle.unpack(response.out.raw, dtype), out, dtype, "out")
        oracle.check_near(oracle.unpack(response.lse.raw, "float32"), lse, dtype, "lse")

    def assert_refused(self, code, reason, field, call, request):
        """That the call fails with this status and details; returns the attn.v1.Status."""
        with self.assertRaises(grpc.RpcError) as caught:
            call(request)
        detail = service.detail_of(caught.exception)
        self.assertEqual(caught.exception.code(), code)
        got = pb.Reason.Name(detail.reason), detail.field
        self.assertEqual(got, (pb.Reason.Name(reason), field))
        return detail
