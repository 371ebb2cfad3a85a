"""A server of the tests' own, models for it, and attention in float64."""

import os
import pathlib
import sys
import unittest

import numpy as np

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PACKAGE / "src"), str(PACKAGE.parents[1] / "tests" / "interop")]
import attnserve  # noqa: E402
import server_process  # noqa: E402

SERVER = os.environ.get("ATTN_SERVER")
Q_HEADS, KV_HEADS, DIM, DIM_V = 4, 2, 16, 8


class Server(server_process.Process):
    """On a free port, or on `address`."""

    def __init__(self, address="127.0.0.1:0"):
        super().__init__(SERVER, "--listen=" + address, "--threads=1", "--kv-bytes=64M",
                         "--linger-ms=0", "--log-level=error")

    def stop(self):
        """Its last line, after SIGTERM."""
        status, last = super().stop()
        assert status == 0, status
        return last


def make_spec(name, dtype="float32", num_layers=2):
    plain = attnserve.LayerGroup(range(0, num_layers, 2), Q_HEADS, KV_HEADS, DIM, DIM_V)
    windowed = attnserve.LayerGroup(range(1, num_layers, 2), Q_HEADS, KV_HEADS, DIM, DIM_V,
                                    scale=0.3, soft_cap=4.0, window=(3, None),
                                    sinks=[0.5] * (Q_HEADS * (num_layers // 2)), sinks_per_head=1)
    return attnserve.ModelSpec(name, [plain, windowed], dtype=dtype)


def attend(group, q, k, v, causal=True):
    """out and lse in float64 of the last len(q) positions of the keys k."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    repeat = group.num_q_heads // group.num_kv_heads
    k, v = np.repeat(k, repeat, 1), np.repeat(v, repeat, 1)
    scale = group.head_dim ** -0.5 if group.scale is None else group.scale
    logits = np.einsum("qhd,khd->hqk", q, k) * scale
    if group.soft_cap:
        logits = group.soft_cap * np.tanh(logits / group.soft_cap)
    rows = np.arange(len(k) - len(q), len(k))[:, None]
    keys = np.arange(len(k))[None]
    hidden = keys > rows if causal else np.zeros((len(q), len(k)), bool)
    if group.window[0] is not None:
        hidden |= keys < rows - group.window[0]
    weights = np.where(hidden, 0, np.exp(np.where(hidden, 0, logits)))
    total = weights.sum(-1) + (np.exp(group.sinks[0]) if group.sinks_per_head else 0)
    out = np.einsum("hqk,khd->qhd", weights, v) / total.T[..., None]
    return out, np.log(total).T


class ServerCase(unittest.TestCase):
    """One server for all tests of a class, and a fresh random generator for each."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        last = cls.server.stop()
        assert "open_sequences=0 leaked_sequences=0 leaked_pages=0 accounts=exact" in last, last

    def setUp(self):
        seed = int.from_bytes(os.urandom(4), "little")
        self.random = np.random.default_rng(seed)
        self.note = "seed %d" % seed

    def rows(self, count, heads, dim, dtype=np.float32):
        return self.random.standard_normal((count, heads, dim)).astype(dtype)

    def qkv(self, count, dtype=np.float32):
        return (self.rows(count, Q_HEADS, DIM, dtype), self.rows(count, KV_HEADS, DIM, dtype),
                self.rows(count, KV_HEADS, DIM_V, dtype))

    def assert_near(self, got, want, tolerance=2e-5):
        np.testing.assert_allclose(np.asarray(got, np.float64), want, atol=tolerance,
                                   rtol=tolerance, err_msg=self.note)
