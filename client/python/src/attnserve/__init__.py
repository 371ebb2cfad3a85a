"""Client of attnserve, an attention server: K and V in a paged cache, attention as a service.

    import attnserve, numpy as np

    spec = attnserve.ModelSpec("tiny", [attnserve.LayerGroup([0, 1], num_q_heads=8, num_kv_heads=2,
                                                             head_dim=64)])
    with attnserve.Client("127.0.0.1:50051") as client:
        with client.open(client.declare_model(spec)) as sequence:
            q = np.random.randn(5, 8, 64).astype(np.float32)
            k, v = np.random.randn(2, 5, 2, 64).astype(np.float32)
            out = sequence.attend(0, q, k, v).out      # [5, 8, 64]; k and v are cached now

Words are those of the server: docs/numerics.md of attnserve has the glossary.
"""

from attnserve import aio, errors
from attnserve._attend import AttendResult
from attnserve._calls import RetryPolicy, ServerInfo
from attnserve.client import Client, Sequence
from attnserve.errors import *  # noqa: F401,F403
from attnserve.models import LayerGroup, ModelInfo, ModelSpec

__version__ = "0.1.0"
__all__ = ["AttendResult", "Client", "LayerGroup", "ModelInfo", "ModelSpec", "RetryPolicy",
           "Sequence", "ServerInfo", "aio", "errors", *errors.__all__]
