"""Sessions of Ray.

One on this machine, which nobody else can reach, or a cluster that is there already.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pseudocal.arrays import InputError
from pseudocal.distributed.addresses import check_address
from pseudocal.extras import require

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # a paragraph on standard output; here it is one line
    "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed",
}


# A path of a socket has at most 107 bytes (103 on macOS). Below the parent are
# "/ray-12345678/r/session_2026-01-31_12-34-56_123456_1234567/sockets/plasma_store": 79.
LONGEST_PARENT = 103 - 79


def open_session(address: str | None = None, num_cpus: int | None = None) -> bool:
    """Open a session, unless one is open; say whether that was done.

    Whoever opens one calls `close_session`.

    Args:
        address: of a cluster, or "auto" for the one this machine belongs to; None or "local" for
            one made here.
        num_cpus: how many cores a session that is made here may use; all of them by default.

    """
    with _quiet():
        ray = require("ray", "ray")
        cluster = None if address == "local" else address
        if cluster is not None:
            check_address(cluster)
        if ray.is_initialized():
            return False
        if cluster is not None:
            _init(ray, cluster)
        else:
            folder = _private_folder()
            _private_folders.append(folder)
            with _on_the_loopback(ray):
                # Ray gives its own folder mode 0777, so it gets one inside
                _init(
                    ray,
                    "local",
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    _temp_dir=str(folder / "r"),
                )
    return True


def close_session() -> None:
    """Shut the session down, and remove the files of one that was made here."""
    require("ray", "ray").shutdown()
    while _private_folders:
        shutil.rmtree(_private_folders.pop(), ignore_errors=True)


_private_folders: list[Path] = []  # of the session that was made here


@atexit.register
def _remove_what_is_left() -> None:
    if _private_folders:
        close_session()


def _private_folder() -> Path:
    """Make a folder that no other user can enter, with a path short enough for the sockets inside."""
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > LONGEST_PARENT and sys.platform != "win32":
        parent = "/tmp"  # noqa: S108  the folder in it has a random name and mode 0700
    return Path(tempfile.mkdtemp(prefix="ray-", dir=parent))  # with mode 0700


def _init(ray: Any, address: str, **settings: Any) -> None:
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **settings)
    except ConnectionError as error:
        raise InputError(f"expected a Ray cluster at {address}, got none: {error}") from error


@contextmanager
def _on_the_loopback(ray: Any) -> Iterator[None]:
    """Let Ray take this machine for one that no cluster has use for, as it takes all of macOS and Windows.

    It then binds its ports to 127.0.0.1 rather than to an address that others can reach. There is
    no public way to ask for that: `_node_ip_address="127.0.0.1"` is replaced by such an address, on
    purpose, and the environment variable behind this constant, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER,
    is read once, when Ray is imported, which may be long ago. So this is a private name of Ray. If
    a release drops it, no session is started; if one no longer heeds it,
    tests/distributed/test_session.py, which reads the sockets that a session listens on, fails.
    """
    constants = ray._private.ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray reads some of its settings when it is imported, others when it is started."""
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update(QUIET)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
