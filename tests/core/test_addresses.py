"""Where a door may listen, and what only this machine can reach."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched.addresses import parse_address
from sagesched.settings import SettingsError, decode


@pytest.mark.parametrize("text", ["unix:/run/x.sock", "127.0.0.1:50051", "127.9.9.9:1", "[::1]:0", "localhost:50051"])
def test_private_addresses_are_read_and_written_back(text):
    assert str(parse_address(text)) == text
    assert parse_address(text).is_private
    assert decode({"grpc": {"listen": [text]}}).grpc.listen == (text,)


@pytest.mark.parametrize("text", ["0.0.0.0:50051", "10.1.2.3:50051", "[::]:50051"])
def test_an_address_beyond_the_machine_needs_tls(text):
    with pytest.raises(SettingsError, match=r"^grpc\.listen: .*loopback.*grpc\.tlsCertFile"):
        decode({"grpc": {"listen": ["127.0.0.1:0", text]}})
    decode({"grpc": {"listen": [text], "tlsCertFile": "c", "tlsKeyFile": "k"}})


@pytest.mark.parametrize(
    "text", ["", "x", ":1", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "::1:5", "unix:x", "unix:/", "host.name:1"]
)
def test_what_is_no_address_is_named(text):
    with pytest.raises(SettingsError, match=r"^grpc\.listen: "):
        decode({"grpc": {"listen": [text]}})


@pytest.mark.parametrize(
    ("grpc", "field"),
    [
        ({"tlsCertFile": "c"}, "grpc.tlsKeyFile"),
        ({"tlsKeyFile": "k"}, "grpc.tlsCertFile"),
        ({"tlsClientCaFile": "a"}, "grpc.tlsClientCaFile"),
    ],
)
def test_half_of_tls_is_refused(grpc, field):
    with pytest.raises(SettingsError, match=f"^{field}: "):
        decode({"grpc": grpc})


@given(st.text())
def test_any_text_is_an_address_or_an_error(text):
    with contextlib.suppress(ValueError):
        assert parse_address(str(parse_address(text))) == parse_address(text)
