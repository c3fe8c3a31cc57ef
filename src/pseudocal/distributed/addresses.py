"""Check that a cluster can be reached.

Ray itself would wait for it and could not be interrupted.
"""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from pseudocal.arrays import InputError

CONNECTION_SECONDS = 5.0  # timeout of a connection
SETTINGS = b"\x04"
HELLO = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + SETTINGS + bytes(5)
)  # an HTTP/2 server replies with its own
CLIENT_PORT = 10001  # default port of ray://


def check_address(address: str) -> None:
    """Connect to the address of a cluster, as gRPC would, and disconnect again.

    >>> check_address("127.0.0.1:1")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected a Ray cluster at 127.0.0.1:1, got no reply: Connection
    refused

    "auto" means the address in RAY_ADDRESS, or the cluster of this machine, which Ray finds without
    waiting.
    """
    where = os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address
    if where in ("auto", "local"):
        return
    host, port = _host_and_port(where)
    try:
        with socket.create_connection((host, port), timeout=CONNECTION_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(HELLO)
            reply = connection.recv(9)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise InputError(f"expected a Ray cluster at {where}, got no reply: {why}") from error
    if reply[3:4] != SETTINGS:
        raise InputError(f"expected a Ray cluster at {where}, got another service")


def _host_and_port(address: str) -> tuple[str, int]:
    """The host and the port of an address.

    >>> _host_and_port("head:6379"), _host_and_port("ray://head")
    (('head', 6379), ('head', 10001))
    """
    client = address.startswith("ray://")
    try:
        parts = urlsplit(address if client else f"//{address}")
        port = parts.port or (CLIENT_PORT if client else None)
    except ValueError:
        port = None
    if port is None or not parts.hostname:
        raise InputError(
            f"expected auto, local, host:6379 or ray://host:10001 for a cluster, got {address}"
        )
    return parts.hostname, port
