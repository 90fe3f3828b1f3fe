"""The gRPC door (docs/grpc.md). Nothing else imports grpc, and `server` loads this only where it listens."""
