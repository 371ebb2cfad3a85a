"""Attend messages by hand: tensors are joined into a request once, and cut out of an answer without
a copy. Everything else in them goes through protobuf."""

from attnserve import _wire

_VARINT, _BYTES = 0, 2
_SIZES = {1: 8, 5: 4}  # of fixed-width wire types


def varint(value):
    """As protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _key(number, kind):
    return varint(number << 3 | kind)


_RAW_KEY = _key(15, _BYTES)
_TENSOR_KEYS = {name: _key(number, _BYTES) for name, number in (("q", 28), ("k", 29), ("v", 30))}


def join_attend(head, dtype, **memories):
    """The bytes of an AttendRequest: `head`, serialized without tensors, then q, k and v.

    `dtype` is a number of attn.v1.DataType; empty memories are left out."""
    parts = [head]
    kind = _key(1, _VARINT) + varint(dtype)
    for name in ("q", "k", "v"):
        memory = memories.get(name)
        if not memory:
            continue
        intro = kind + _RAW_KEY + varint(len(memory))
        parts += [_TENSOR_KEYS[name], varint(len(intro) + len(memory)), intro, memory]
    return b"".join(parts)


def join_stream(request_id, field, message, timeout_us=0):
    """The bytes of an AttendStreamRequest whose oneof has `message` as field number `field`."""
    head = _wire.AttendStreamRequest(request_id=request_id,
                                     timeout_us=timeout_us).SerializeToString()
    return b"".join([head, _key(field, _BYTES), varint(len(message)), message])


def _fields(data):
    """(number, where the field begins, its payload or None, where it ends), in order."""
    at, end = 0, len(data)
    while at < end:
        begin = at
        key, at = _read_varint(data, at)
        kind = key & 7
        payload = None
        if kind == _VARINT:
            _, at = _read_varint(data, at)
        elif kind == _BYTES:
            size, at = _read_varint(data, at)
            payload = data[at:at + size]
            at += size
        else:
            at += _SIZES[kind]
        yield key >> 3, begin, payload, at


def _cut(data, numbers):
    """The rest of a message as bytes, and the payloads of the fields `numbers`."""
    rest, cut = [], {}
    for number, begin, payload, end in _fields(data):
        if number in numbers:
            cut[number] = payload
        else:
            rest.append(data[begin:end])
    return b"".join(rest), cut


def _split_tensor(payload):
    rest, cut = _cut(payload, (15,))
    tensor = _wire.Tensor.FromString(rest)
    return tensor.dtype, tuple(tensor.shape), cut.get(15, b"")


def split_attend(data):
    """An AttendResponse without its tensors, and (dtype, shape, memoryview) of out and lse; None
    where there is none."""
    rest, cut = _cut(memoryview(data), (28, 29))
    out, lse = (_split_tensor(cut[n]) if n in cut else None for n in (28, 29))
    return _wire.AttendResponse.FromString(rest), out, lse


def split_stream(data):
    """An AttendStreamResponse without its attend, and that as a memoryview or None."""
    rest, cut = _cut(memoryview(data), (8,))
    return _wire.AttendStreamResponse.FromString(rest), cut.get(8)
