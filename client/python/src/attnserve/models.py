"""What a model is to the server: layers, heads, masks. Not its weights."""

from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Tuple

from attnserve import _wire, tensors
from attnserve.errors import InvalidRequestError

__all__ = ["LayerGroup", "ModelInfo", "ModelSpec"]


@dataclass(frozen=True)
class LayerGroup:
    """Layers of equal geometry and mask.

    Attributes
    ----------
    layers : sequence of int
        Numbers of the layers.
    num_q_heads, num_kv_heads : int
        Query head h reads KV head ``h // (num_q_heads // num_kv_heads)``.
    head_dim : int
        Of q and k.
    head_dim_v : int, optional
        Of v and of the output; `head_dim` by default.
    scale : float, optional
        Factor on q·k; ``head_dim ** -0.5`` by default.
    soft_cap : float
        Logits become ``soft_cap * tanh(logit / soft_cap)``; 0: they stay.
    window : (int or None, int or None)
        Keys ``p - left .. p + right`` stay visible to a row at position p; None: no limit on that
        side. A "sliding window of W tokens" that counts the row's own is ``(W - 1, None)``.
    sinks : sequence of float, optional
        Logits that join the denominator, [layers, num_q_heads, n] flat.
    sinks_per_head : int
        n.
    """

    layers: Sequence[int]
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    head_dim_v: Optional[int] = None
    scale: Optional[float] = None
    soft_cap: float = 0.0
    window: Tuple[Optional[int], Optional[int]] = (None, None)
    sinks: Sequence[float] = ()
    sinks_per_head: int = 0

    @property
    def dim_v(self):
        """head_dim_v with its default."""
        return self.head_dim if self.head_dim_v is None else self.head_dim_v


@dataclass(frozen=True)
class ModelSpec:
    """A model's geometry.

    Attributes
    ----------
    name : str
        ``[A-Za-z0-9._-]``, 1 to 128 of them.
    groups : sequence of LayerGroup
        Every layer stands in exactly one.
    dtype : str
        Of q, k, v as sent and of the output: "float32", "float16" or "bfloat16".
    kv_dtype : str, optional
        In the cache; `dtype` by default.
    page_size : int
        Tokens of a page; 0: the server's choice.
    content_tag : str
        Whatever else makes K and V what they are: weights revision, adapter.
    """

    name: str
    groups: Sequence[LayerGroup]
    dtype: str = "float32"
    kv_dtype: Optional[str] = None
    page_size: int = 0
    content_tag: str = ""

    @property
    def num_layers(self):
        """Layers of all groups."""
        return sum(len(group.layers) for group in self.groups)


@dataclass(frozen=True)
class ModelInfo:
    """A declared model, with every default filled in."""

    spec: ModelSpec
    fingerprint: bytes
    kv_bytes_per_token: int
    groups_by_layer: List[LayerGroup] = field(repr=False, compare=False, default_factory=list)


def encode_spec(spec):
    """As attn.v1.ModelSpec."""
    for name in filter(None, (spec.dtype, spec.kv_dtype)):
        if name not in tensors.DTYPES:
            raise InvalidRequestError("dtype: got %r, want one of %s"
                                      % (name, ", ".join(tensors.DTYPES)), field="dtype")
    out = _wire.ModelSpec(name=spec.name, activation_dtype=tensors.WIRE[spec.dtype],
                          page_size=spec.page_size, num_layers=spec.num_layers,
                          content_tag=spec.content_tag)
    if spec.kv_dtype:
        out.kv_dtype = tensors.WIRE[spec.kv_dtype]
    for group in spec.groups:
        to = out.layer_groups.add(
            layers=group.layers, num_q_heads=group.num_q_heads, num_kv_heads=group.num_kv_heads,
            head_dim_qk=group.head_dim, head_dim_v=group.head_dim_v or 0,
            logit_soft_cap=group.soft_cap, sink_logits_per_head=group.sinks_per_head,
            sink_logits=group.sinks)
        if group.scale is not None:
            to.softmax_scale = group.scale
        left, right = group.window
        if left is not None:
            to.window.left = left
        if right is not None:
            to.window.right = right
    return out


def decode_info(info):
    """From attn.v1.ModelInfo."""
    groups = []
    for group in info.spec.layer_groups:
        side = group.window
        groups.append(LayerGroup(
            layers=tuple(group.layers), num_q_heads=group.num_q_heads,
            num_kv_heads=group.num_kv_heads, head_dim=group.head_dim_qk,
            head_dim_v=group.head_dim_v, scale=group.softmax_scale, soft_cap=group.logit_soft_cap,
            window=(side.left if side.HasField("left") else None,
                    side.right if side.HasField("right") else None),
            sinks=tuple(group.sink_logits), sinks_per_head=group.sink_logits_per_head))
    spec = info.spec
    by_layer = {layer: group for group in groups for layer in group.layers}
    return ModelInfo(
        spec=ModelSpec(name=spec.name, groups=tuple(groups),
                       dtype=tensors.NAMES[spec.activation_dtype],
                       kv_dtype=tensors.NAMES.get(spec.kv_dtype), page_size=spec.page_size,
                       content_tag=spec.content_tag),
        fingerprint=info.fingerprint, kv_bytes_per_token=info.kv_bytes_per_token,
        groups_by_layer=[by_layer[layer] for layer in range(spec.num_layers)])
