"""Hugging Face models whose attention runs in an attention server.

    import attnserve, attnserve.hf

    with attnserve.Client("127.0.0.1:50051") as client, attnserve.hf.AttnCache(model, client) as cache:
        out = model.generate(**inputs, past_key_values=cache)

Weights, projections and sampling stay with the model; K and V and attention live in the server.
Needs transformers 5 or 4.57 and torch. Each row of a batch is a sequence; padding, to the left as
for every decoder, is neither sent nor stored."""

import hashlib
import json

import torch
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from attnserve.errors import InvalidRequestError, UnsupportedError
from attnserve.models import LayerGroup, ModelSpec

__all__ = ["AttnCache", "register", "spec_of"]

_NAME = "attnserve"


def register():
    """Makes "attnserve" an attention implementation of transformers. AttnCache does it too."""
    ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(_NAME, _padding_mask)


def _refuse(field, message):
    raise UnsupportedError("%s: %s" % (field, message), reason="UNSUPPORTED", field=field)


# ------------------------------------------------------------------------------------------ the model

def _attention_modules(model):
    found = {}
    for module in model.modules():
        if hasattr(module, "layer_idx") and hasattr(module, "num_key_value_groups"):
            found[module.layer_idx] = module
    if not found or sorted(found) != list(range(len(found))):
        _refuse("model", "got %s, want a decoder with attention in every layer"
                % type(model).__name__)
    return [found[i] for i in range(len(found))]


def _window_of(module):
    """Tokens that a row sees, its own counted; None: all."""
    if hasattr(module, "sliding_window"):
        return module.sliding_window
    config = module.config
    kinds = getattr(config, "layer_types", None)
    if kinds and kinds[module.layer_idx] != "sliding_attention":
        return None
    if getattr(config, "use_sliding_window", True) is False:
        return None
    return getattr(config, "sliding_window", None)


def _cap_of(module):
    return (getattr(module, "attn_logit_softcapping", None) or
            getattr(module.config, "attn_logit_softcapping", None) or 0.0)


def spec_of(model, name=None):
    """The geometry of a model's attention.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    name : str, optional
        By default made of the geometry, so that equal models share it.

    Returns
    -------
    ModelSpec
    """
    modules = _attention_modules(model)
    groups = {}
    for module in modules:
        heads = module.config.num_attention_heads
        window = _window_of(module)
        key = (heads, heads // module.num_key_value_groups, module.head_dim,
               float(module.scaling), float(_cap_of(module)),
               (window - 1 if window else None, None), hasattr(module, "sinks"))
        groups.setdefault(key, []).append(module)
    made = []
    for (heads, kv_heads, dim, scale, cap, window, has_sinks), members in groups.items():
        sinks = [float(s) for m in members for s in m.sinks.detach().float()] if has_sinks else []
        made.append(LayerGroup([m.layer_idx for m in members], heads, kv_heads, dim, scale=scale,
                               soft_cap=cap, window=window, sinks=sinks,
                               sinks_per_head=1 if has_sinks else 0))
    dtype = str(model.dtype).replace("torch.", "")
    if name is None:
        text = json.dumps([dtype] + [vars(g) for g in made], sort_keys=True)
        name = "hf-%s-%s" % (model.config.model_type,
                             hashlib.sha256(text.encode()).hexdigest()[:12])
    return ModelSpec(name, made, dtype=dtype)


# ------------------------------------------------------------------------------------------ the cache

class _Layer(CacheLayerMixin):
    """Holds nothing: hands new keys and values on to the attention function."""

    is_sliding = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, cache, index):
        super().__init__()
        self.cache, self.index, self.seen = cache, index, 0

    def lazy_initialization(self, key_states, value_states=None):
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        self.is_initialized = True
        self.seen += key_states.shape[-2]
        key_states = key_states.view(key_states.shape)  # an object of its own
        key_states.attnserve_layer = self
        return key_states, value_states

    def get_mask_sizes(self, query_length):
        if isinstance(query_length, torch.Tensor):  # cache positions, as before transformers 5
            query_length = query_length.shape[0]
        return self.seen + query_length, 0

    def get_seq_length(self, cache_position=None):
        return self.seen

    def get_max_length(self):
        return -1

    get_max_cache_shape = get_max_length


class AttnCache(Cache):
    """A cache in the server, for ``model.generate(past_key_values=cache)``.

    Makes "attnserve" the model's attention implementation. A context manager that closes its
    sequences, after an exception too.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        On the CPU; float32, float16 or bfloat16.
    client : attnserve.Client
    name : str, optional
        See :func:`spec_of`.

    Attributes
    ----------
    sequences : list of attnserve.Sequence
        One per row of the batch, opened with the first tokens.
    """

    def __init__(self, model, client, name=None):
        register()
        self.client, self.info = client, client.declare_model(spec_of(model, name))
        model.set_attn_implementation(_NAME)
        self.sequences = []
        super().__init__(layers=[_Layer(self, i) for i in range(self.info.spec.num_layers)])

    def rows(self, batch):
        """The sequences of a batch of so many rows."""
        if not self.sequences:
            self.sequences = self.client.open_many(self.info, batch)
        if len(self.sequences) != batch:
            raise InvalidRequestError("batch: got %d rows, want %d, as the cache has"
                                      % (batch, len(self.sequences)), field="batch")
        return self.sequences

    def crop(self, tokens):
        """Takes tokens off the end: ``-n`` takes n, 0 none; a length, as before transformers 5, all
        behind it."""
        drop = -tokens if tokens <= 0 else self.get_seq_length() - tokens
        if drop <= 0:
            return
        self.client.truncate(self.sequences, [s.len - drop for s in self.sequences])
        for layer in self.layers:
            layer.seen -= drop

    def reorder_cache(self, beam_idx):
        """Row i goes on as row ``beam_idx[i]``."""
        order = [int(i) for i in beam_idx]
        moved = [(t, self.sequences[s]) for t, s in zip(self.sequences, order)
                 if t is not self.sequences[s]]
        if moved:
            self.client.reorder([t for t, _ in moved], [s for _, s in moved])

    def batch_repeat_interleave(self, repeats):
        """Every row `repeats` times."""
        if repeats > 1 and self.sequences:
            children = iter(self.client.fork(self.sequences, [repeats - 1] * len(self.sequences)))
            self.sequences = [s for parent in self.sequences
                              for s in [parent] + [next(children) for _ in range(repeats - 1)]]

    def batch_select_indices(self, indices):
        """Keeps these rows."""
        wanted = [int(i) for i in indices]
        kept = [self.sequences[i] for i in dict.fromkeys(wanted)]
        if len(kept) != len(wanted):
            _refuse("indices", "got a row twice, want each once: use reorder_cache")
        self.client.close_sequences([s for s in self.sequences if s not in kept])
        self.sequences = kept

    def reset(self):
        """Empties it."""
        sequences, self.sequences = self.sequences, []
        for layer in self.layers:
            layer.seen = 0
        self.client.close_sequences(sequences)

    close = reset

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


# ------------------------------------------------------------------------------------- the functions

def _check_mask_function(function, batch_size, q_length, kv_length, q_offset):
    """Refuses masks other than causal ones, with or without a window: each row must see its left
    neighbour and not its right one. Blocks that see each other (images) and packed sequences do
    not."""
    rows = torch.arange(int(q_offset), int(q_offset) + q_length)[None]
    batch, head = torch.arange(batch_size)[:, None], torch.zeros(1, 1, dtype=torch.long)

    def sees(offset):
        keys = rows + offset
        within = (keys >= 0) & (keys < kv_length)
        seen = function(batch, head, rows, keys.clamp(0, kv_length - 1))
        return torch.as_tensor(seen).broadcast_to(batch_size, q_length), within

    seen, within = sees(1)
    if bool((seen & within).any()):
        _refuse("attention_mask", "got rows that see later tokens, want a causal mask: blocks of "
                "an image that see each other are not served")
    seen, within = sees(-1)
    if bool((~seen & within).any()):
        _refuse("attention_mask", "got rows that do not see the token before them, want a causal "
                "mask over one sequence a row: packed sequences are not served")


def _padding_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None,
                  attention_mask=None, **unused):
    """What transformers hands to the attention function: which tokens are no padding, or None.
    Causality and windows are the server's."""
    if mask_function is not None:
        _check_mask_function(mask_function, batch_size, q_length, kv_length, q_offset)
    if attention_mask is None or bool(attention_mask.all()):
        return None
    return attention_mask[:, -kv_length:]


def _real_rows(mask, length):
    """[batch, length], true where a token is no padding."""
    mask = mask.bool()
    if bool((mask[:, :-1] & ~mask[:, 1:]).any()):
        raise InvalidRequestError("attention_mask: got padding behind tokens, want it to the left: "
                                  "padding_side='left'", field="attention_mask")
    return mask[:, -length:]


def _rows(states, real):
    """[rows, heads, head_dim] of states [batch, heads, length, head_dim]: those that are `real`,
    without a copy where they lie so already."""
    states = states.detach().transpose(1, 2)
    return (states.flatten(0, 1) if real is None else states[real]).contiguous()


def _differ(got, want):
    if got is None or want is None:
        return got is not want
    return abs(got - want) > 1e-6 * abs(want)


def _check_call(module, group, scaling, kwargs):
    """What a model says with each call is what the server was told at the start."""
    said = {"scaling": (scaling, group.scale),
            "softcap": (kwargs.get("softcap") or 0.0, group.soft_cap)}
    if "sliding_window" in kwargs:
        window = kwargs["sliding_window"]
        said["sliding_window"] = (window - 1 if window else None, group.window[0])
    for name, (got, want) in said.items():
        if _differ(got, want):
            _refuse(name, "got %s in layer %d, want %s, as its module said"
                    % (got, module.layer_idx, want))
    if kwargs.get("s_aux") is not None and not group.sinks_per_head:
        _refuse("s_aux", "got sinks in layer %d, whose module has none" % module.layer_idx)


def _attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    layer = getattr(key, "attnserve_layer", None)
    if layer is None:
        _refuse("past_key_values", "got no AttnCache, want one: attention runs in the server")
    if dropout:
        _refuse("dropout", "got %s, want 0: call model.eval()" % dropout)
    if query.device.type != "cpu":
        raise InvalidRequestError("query: got a tensor on %s, want the model on the CPU"
                                  % query.device, field="query")
    cache = layer.cache
    batch, _, length, _ = query.shape
    _check_call(module, cache.info.groups_by_layer[layer.index], scaling, kwargs)
    sequences, lens, real = cache.rows(batch), [length] * batch, None
    if attention_mask is not None:
        real = _real_rows(attention_mask, length)
        lens = real.sum(1).tolist()
    q, k, v = (_rows(x, real) for x in (query, key, value))
    taking = [(s, n) for s, n in zip(sequences, lens) if n]
    out = cache.client.attend([s for s, _ in taking], layer.index, q, k, v,
                              q_lens=[n for _, n in taking]).out
    if real is None:
        return out.view(batch, length, *out.shape[1:]), None
    padded = query.new_zeros(batch, length, *out.shape[1:])
    padded[real] = out
    return padded, None
