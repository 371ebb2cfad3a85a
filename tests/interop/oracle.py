"""Attention as docs/numerics.md defines it, in float64 over plain lists, and the rounding of inputs
to 16-bit types. Nothing here is shared with the server: struct does the rounding."""

import math
import struct


def round_bf16(value):
    """To nearest even; the 16 bits as an int. Finite values only."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def bf16_value(bits):
    (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    return value


def pack(values, dtype):
    """Little-endian bytes of `values`: dtype is "float32", "float16" or "bfloat16"."""
    if dtype == "bfloat16":
        return struct.pack("<%dH" % len(values), *map(round_bf16, values))
    return struct.pack("<%d%s" % (len(values), "f" if dtype == "float32" else "e"), *values)


def unpack(raw, dtype):
    if dtype == "bfloat16":
        return [bf16_value(bits) for bits in struct.unpack("<%dH" % (len(raw) // 2), raw)]
    size, letter = (4, "f") if dtype == "float32" else (2, "e")
    return list(struct.unpack("<%d%s" % (len(raw) // size, letter), raw))


def as_stored(values, dtype):
    """What the server reads when `values` are sent as dtype."""
    return unpack(pack(values, dtype), dtype)


class Geometry:
    """One layer: heads, dims, score and mask."""

    def __init__(self, q_heads, kv_heads, dim_qk, dim_v, scale=None, cap=0.0, left=None, sinks=()):
        self.q_heads, self.kv_heads, self.dim_qk, self.dim_v = q_heads, kv_heads, dim_qk, dim_v
        self.scale = 1 / math.sqrt(dim_qk) if scale is None else scale
        self.cap, self.left = cap, left
        self.sinks = sinks  # by query head, a list of logits each; or empty


class Keys:
    """Keys and values of one (sequence, layer): flat rows of [kv_heads, dim]."""

    def __init__(self, geometry, k=(), v=()):
        self.geometry, self.k, self.v = geometry, list(k), list(v)

    def __len__(self):
        return len(self.k) // (self.geometry.kv_heads * self.geometry.dim_qk)

    def append(self, k, v):
        self.k += k
        self.v += v

    def cut(self, length):
        g = self.geometry
        rows = length * g.kv_heads
        return Keys(g, self.k[: rows * g.dim_qk], self.v[: rows * g.dim_v])


def _visible(geometry, position, kv_end, causal):
    low = 0 if geometry.left is None else max(0, position - geometry.left)
    high = min(kv_end, position + 1) if causal else kv_end
    return range(low, max(low, high))


def _row(keys, q, head, positions, with_sinks):
    """(out, lse) of one query vector over the keys at `positions`."""
    g = keys.geometry
    kv_head = head // (g.q_heads // g.kv_heads)

    def logit(j):
        at = (j * g.kv_heads + kv_head) * g.dim_qk
        t = g.scale * math.fsum(a * b for a, b in zip(q, keys.k[at : at + g.dim_qk]))
        return g.cap * math.tanh(t / g.cap) if g.cap > 0 else t

    logits = [(j, logit(j)) for j in positions]
    sinks = list(g.sinks[head]) if g.sinks and with_sinks else []
    if not logits and not sinks:
        return [0.0] * g.dim_v, -math.inf
    peak = max([s for _, s in logits] + sinks)
    weights = [(j, math.exp(s - peak)) for j, s in logits]
    total = math.fsum([w for _, w in weights] + [math.exp(s - peak) for s in sinks])
    out = [
        math.fsum(w * keys.v[(j * g.kv_heads + kv_head) * g.dim_v + d] for j, w in weights) / total
        for d in range(g.dim_v)
    ]
    return out, peak + math.log(total)


def attend(keys, q, q_start=None, kv_end=None, causal=True, with_sinks=True):
    """out [rows, q_heads, dim_v] and lse [rows, q_heads], flat, of the rows in `q`."""
    g = keys.geometry
    kv_end = len(keys) if kv_end is None else kv_end
    rows = len(q) // (g.q_heads * g.dim_qk)
    q_start = kv_end - rows if q_start is None else q_start
    out, lse = [], []
    for row in range(rows):
        positions = _visible(g, q_start + row, kv_end, causal)
        for head in range(g.q_heads):
            at = (row * g.q_heads + head) * g.dim_qk
            row_out, row_lse = _row(keys, q[at : at + g.dim_qk], head, positions, with_sinks)
            out += row_out
            lse.append(row_lse)
    return out, lse


# The least error of a naive computation that docs/numerics.md grants, by the dtype of the inputs.
NAIVE = {"float32": 0.0, "float16": 2.0**-12, "bfloat16": 2.0**-9}


def check_near(got, want, dtype, what):
    """Raises AssertionError beyond the tolerance of docs/numerics.md."""
    assert len(got) == len(want), "%s: got %d values, want %d" % (what, len(got), len(want))
    peak = max((abs(x) for x in want if math.isfinite(x)), default=0.0)
    allowed = 3 * NAIVE[dtype] * peak + 1e-5 * (1 + peak)
    for i, (g, w) in enumerate(zip(got, want)):
        same = g == w if math.isinf(w) else abs(g - w) <= allowed
        assert same, "%s[%d]: got %r, want %r within %.2g" % (what, i, g, w, allowed)
