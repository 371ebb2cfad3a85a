"""cuDNN through PyTorch, and FlashAttention-3 where its module is found, beside our own figures of
the same GPU and the same minute.

    python3 torch_rival.py ours.jsonl > joined.jsonl

reads the lines of gpu_bench and prints them again. Lines of shapes that a rival can run get the
fields rival (cudnn or fa3), rival_value and ratio: ours over the rival's for rates, time over time
for times. Where both run, the faster is the rival, and cudnn_value and fa3_value hold both. Timing
is that of gpu_bench: cold is the event time of one call after reading 512 MiB, median of 21;
sustained is back-to-back calls; rotating is a CUDA graph of calls over sets that exceed L2 three
times. The rivals read contiguous keys and values.
"""
import importlib
import json
import re
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DIM = 128
VARLEN_MIX = (8192, 4096, 2048, 1024, 512, 256, 128, 128)
FLUSH = torch.zeros(2**27, device="cuda", dtype=torch.float32)


def find_fa3():
    for name in ("flash_attn_interface", "fa3_fwd_interface"):
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    return None


FA3 = find_fa3()


def events():
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def elapsed_us(queue):
    begin, end = events()
    begin.record()
    queue()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def cold_us(call, repeats=21):
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        FLUSH.sum()
        times.append(elapsed_us(call))
    return sorted(times)[repeats // 2]


def graph_of(calls):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def rotating_us(calls):
    graph = graph_of(calls)
    times = [elapsed_us(graph.replay) for _ in range(12)][2:]
    return sorted(times)[5] / len(calls)


def sustained_us(call, seconds=0.4):
    calls = max(10, int(seconds * 1e6 / cold_us(call, 3)))
    for _ in range(calls // 4):
        call()

    def queue():
        for _ in range(calls):
            call()

    return elapsed_us(queue) / calls


def random_rows(batch, length, heads):
    shape = (batch, length, heads, DIM)
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2)


def attend(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                          enable_gqa=q.shape[1] != k.shape[1])


def rate(metric, call, flops):
    return flops / (cold_us(call) if metric == "cold" else sustained_us(call)) / 1e6


def prefill(metric, heads, kv_heads, causal, length, batch):
    q = random_rows(batch, length, heads)
    k = random_rows(batch, length, kv_heads)
    v = random_rows(batch, length, kv_heads)
    flops = 4 * batch * length * length * heads * DIM * (0.5 if causal else 1)
    found = {"cudnn": rate(metric, lambda: attend(q, k, v, causal), flops)}
    if FA3 is not None:
        rows = [x.transpose(1, 2) for x in (q, k, v)]
        found["fa3"] = rate(metric, lambda: FA3.flash_attn_func(*rows, causal=causal), flops)
    return found


def varlen_prefill(metric, heads, kv_heads):
    if FA3 is None:
        return {}
    ends = torch.tensor((0,) + VARLEN_MIX, device="cuda").cumsum(0).to(torch.int32)
    q, k, v = (torch.randn((sum(VARLEN_MIX), n, DIM), device="cuda", dtype=torch.bfloat16)
               for n in (heads, kv_heads, kv_heads))
    longest = max(VARLEN_MIX)
    flops = 4 * sum(n * n for n in VARLEN_MIX) * heads * DIM * 0.5
    return {"fa3": rate(metric,
                        lambda: FA3.flash_attn_varlen_func(q, k, v, ends, ends, longest, longest,
                                                           causal=True), flops)}


def decode(metric, heads, kv_heads, batch, length):
    size = 2 * batch * length * kv_heads * DIM * 2
    sets = max(1, min(16, int(180e6 / size) + 1))
    inputs = [(random_rows(batch, 1, heads), random_rows(batch, length, kv_heads),
               random_rows(batch, length, kv_heads)) for _ in range(sets)]
    calls = [(lambda i=i: attend(*inputs[i % sets], False)) for i in range(max(8, sets))]
    return {"cudnn": cold_us(calls[0]) if metric == "cold" else rotating_us(calls)}


def measurement_of(line):
    """What to call, with what, for the rivals of a line; None where they cannot run it."""
    if line["metric"] not in ("cold", "sustained", "rotating"):
        return None
    shape = re.match(r"(\d+)/(\d+) (causal|none) S(\d+) B(\d+) (contiguous|page \d+)$",
                     line["case"])
    if line["bench"] == "gpu_prefill" and shape:
        heads, kv_heads, length, batch = (int(shape[i]) for i in (1, 2, 4, 5))
        return prefill, (line["metric"], heads, kv_heads, shape[3] == "causal", length, batch)
    shape = re.match(r"(\d+)/(\d+) causal varlen", line["case"])
    if line["bench"] == "gpu_prefill" and shape:
        return varlen_prefill, (line["metric"], int(shape[1]), int(shape[2]))
    shape = re.match(r"(\d+)/(\d+) B(\d+) L(\d+) q1 page \d+$", line["case"])
    if line["bench"] == "gpu_decode" and shape:
        return decode, (line["metric"], *(int(shape[i]) for i in (1, 2, 3, 4)))
    return None


def join(line, values):
    if not values:
        return
    best = (min if line["unit"] == "us" else max)(values, key=values.get)
    line["rival"] = best
    line["rival_value"] = round(values[best], 3)
    line["ratio"] = round(line["value"] / values[best], 4)
    if len(values) > 1:
        line.update({f"{name}_value": round(value, 3) for name, value in values.items()})


def main():
    known = {}
    with open(sys.argv[1]) as ours, torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for text in ours:
            line = json.loads(text)
            measurement = measurement_of(line)
            if measurement is not None and measurement not in known:
                known[measurement] = measurement[0](*measurement[1])
            join(line, known.get(measurement))
            print(json.dumps(line), flush=True)


main()
