"""The gRPC door's certificate, read and tried before a port opens."""

import ssl
from pathlib import Path
from typing import NamedTuple

from sagesched.settings import Grpc, SettingsError


class Tls(NamedTuple):
    """PEM bytes. `client_ca`: whose certificates clients need; None where they need none."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


def read_tls(grpc: Grpc) -> Tls | None:
    """None where no certificate is named. Raises SettingsError that names the field."""
    if grpc.tls_cert_file is None or grpc.tls_key_file is None:
        return None
    certificate = _read("grpc.tlsCertFile", grpc.tls_cert_file)
    key = _read("grpc.tlsKeyFile", grpc.tls_key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(grpc.tls_cert_file, grpc.tls_key_file, password="")
    except (ssl.SSLError, OSError, ValueError):
        raise SettingsError(
            f"grpc.tlsCertFile: {grpc.tls_cert_file} and {grpc.tls_key_file} are no PEM certificate with its key"
        ) from None
    if grpc.tls_client_ca_file is None:
        return Tls(certificate, key, None)
    client_ca = _read("grpc.tlsClientCaFile", grpc.tls_client_ca_file)
    try:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise SettingsError(f"grpc.tlsClientCaFile: {grpc.tls_client_ca_file} holds no PEM certificate") from None
    return Tls(certificate, key, client_ca)


def _read(field: str, name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise SettingsError(f"{field}: {name} cannot be read: {error.strerror}") from None
