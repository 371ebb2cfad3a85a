"""The messages and methods of attn.v1, in a descriptor pool of this package's own, so that a program
may have generated stubs of the same protocol beside it."""

import base64

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from attnserve._descriptors import DESCRIPTORS

_pool = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(DESCRIPTORS)).file:
    _pool.AddSerializedFile(_file.SerializeToString())


def message(name):
    """The class of message attn.v1.`name`."""
    descriptor = _pool.FindMessageTypeByName("attn.v1." + name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_pool).GetPrototype(descriptor)


def _values(enum):
    return {v.name: v.number for v in _pool.FindEnumTypeByName("attn.v1." + enum).values}


REASONS = {n: name[len("REASON_"):] for name, n in _values("Reason").items()}
DATA_TYPES = _values("DataType")
FEATURES = {n: name[len("FEATURE_"):].lower() for name, n in _values("Feature").items()}

AttendRequest = message("AttendRequest")
AttendResponse = message("AttendResponse")
AttendStreamRequest = message("AttendStreamRequest")
AttendStreamResponse = message("AttendStreamResponse")
Tensor = message("Tensor")
Status = message("Status")
RpcStatus = message("RpcStatus")
ModelSpec = message("ModelSpec")

METHODS = {
    name: ("/attn.v1.%s/%s" % (service, name), message(name + "Request"), message(name + "Response"))
    for service, names in {
        "Server": ["GetServerInfo"],
        "Models": ["DeclareModel", "GetModel", "ListModels", "RemoveModel"],
        "Sequences": ["OpenSequences", "ForkSequences", "ReorderSequences", "TruncateSequences",
                      "CloseSequences", "DescribeSequences", "RenewLease"],
        "Attention": ["Attend"],
    }.items()
    for name in names
}


def request(method, /, **fields):
    """A request message of `method`."""
    return METHODS[method][1](**fields)


ATTEND = METHODS["Attend"][0]
ATTEND_STREAM = "/attn.v1.Attention/AttendStream"
