"""A client of the gRPC door (docs/grpc.md): ask for a turn, watch the queue, say what the engine did.

It needs grpcio, protobuf and the wire package, and nothing else of SageSched.
"""

from sagesched_client.client import Client, subject
from sagesched_client.stay import Place, Stay

__all__ = ["Client", "Place", "Stay", "subject"]
