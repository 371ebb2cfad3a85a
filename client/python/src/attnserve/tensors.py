"""Tensors of numpy and torch, to the wire and back, without copies where there need be none.

bfloat16 is torch's, that of the package ml_dtypes, or numpy.uint16 with ``dtype="bfloat16"``."""

import sys

import numpy as np

from attnserve import _wire
from attnserve.errors import InvalidRequestError

#: Names of dtypes as this package says them, with their bytes.
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
WIRE = {name: _wire.DATA_TYPES["DATA_TYPE_" + name.upper()] for name in DTYPES}
NAMES = {number: name for name, number in WIRE.items()}


def is_torch(tensor):
    """Whether it is a torch tensor; torch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def dtype_of(tensor, name):
    """ "float32", "float16" or "bfloat16"; uint16 passes for bfloat16."""
    text = str(tensor.dtype).replace("torch.", "")
    if text in ("uint16", "int16") and not is_torch(tensor):
        text = "bfloat16"
    if text not in DTYPES:
        raise InvalidRequestError(
            "%s: got dtype %s, want float32, float16 or bfloat16" % (name, text), field=name)
    return text


def rows_of(tensor, name, dtype, heads, head_dim):
    """The bytes of a tensor of rows, as they lie in memory.

    Parameters
    ----------
    tensor : numpy.ndarray or torch.Tensor
        [rows, heads, head_dim] or [rows, heads * head_dim], contiguous, on the CPU.
    name : str
        For errors.
    dtype : str
        That of the model.
    heads, head_dim : int

    Returns
    -------
    memoryview
        Of bytes; valid as long as the tensor.
    int
        Rows.
    """
    if is_torch(tensor):
        if tensor.device.type != "cpu":
            raise InvalidRequestError("%s: got a tensor on %s, want one on the CPU: .cpu()"
                                      % (name, tensor.device), field=name)
        contiguous = tensor.is_contiguous()
    elif isinstance(tensor, np.ndarray):
        contiguous = tensor.flags.c_contiguous
    else:
        raise InvalidRequestError("%s: got %s, want a numpy array or a torch tensor"
                                  % (name, type(tensor).__name__), field=name)
    got = dtype_of(tensor, name)
    if got != dtype:
        raise InvalidRequestError("%s: got dtype %s, want %s, that of the model"
                                  % (name, got, dtype), field=name)
    shape = tuple(tensor.shape)
    if shape[1:] not in ((heads, head_dim), (heads * head_dim,)) or not shape:
        raise InvalidRequestError("%s: got shape %s, want (rows, %d, %d)"
                                  % (name, shape, heads, head_dim), field=name)
    if not contiguous:
        raise InvalidRequestError(
            "%s: got a tensor that is not contiguous, want a contiguous one: .contiguous() or "
            "numpy.ascontiguousarray()" % name, field=name)
    return _memory_of(tensor), shape[0]


def _memory_of(tensor):
    if is_torch(tensor):
        import torch
        tensor = tensor.detach()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.view(torch.int16)
        tensor = tensor.numpy()
    elif tensor.dtype.byteorder == ">" or (tensor.dtype.byteorder == "=" and
                                           sys.byteorder == "big"):
        tensor = tensor.astype(tensor.dtype.newbyteorder("<"))
    # Types that the buffer protocol does not know (bfloat16 of ml_dtypes) go as bytes, too.
    return memoryview(tensor.view(np.uint8).reshape(-1)) if tensor.size else memoryview(b"")


def from_bytes(data, dtype, shape, like):
    """A tensor of the family of `like` over `data`.

    numpy gets a read-only view of the answer's own bytes; torch, which has no such thing, a copy.
    bfloat16 in numpy is uint16 unless ml_dtypes is loaded."""
    if is_torch(like):
        import torch
        out = torch.empty(shape, dtype=getattr(torch, dtype))
        if out.numel():
            out.view(torch.uint8).numpy().reshape(-1)[:] = np.frombuffer(data, np.uint8)
        return out
    if dtype == "bfloat16":
        extra = sys.modules.get("ml_dtypes")
        kind = np.dtype(extra.bfloat16) if extra else np.dtype("<u2")
    else:
        kind = np.dtype(dtype).newbyteorder("<")
    return np.frombuffer(data, kind).reshape(shape)
