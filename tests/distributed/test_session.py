"""A session of Ray on this machine listens on the loopback alone."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pseudocal.distributed import RayExecutor

if not sys.platform.startswith("linux"):
    pytest.skip("sockets are read from /proc", allow_module_level=True)
LISTENS = "0A"


def family() -> set[int]:
    """This process and all below it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found, size = {os.getpid()}, 0
    while len(found) > size:
        size = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found


def sockets(process: int) -> set[str]:
    found = set()
    for path in Path(f"/proc/{process}/fd").glob("*"):
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(path))
        except OSError:
            continue
        found |= {match[1]} if match else set()
    return found


def address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as /proc/net has it: words of 32 bits, each in the order of this machine."""
    words = [text[i : i + 8] for i in range(0, len(text), 8)]
    given = ipaddress.ip_address(b"".join(struct.pack("=I", int(word, 16)) for word in words))
    return getattr(given, "ipv4_mapped", None) or given


def listening() -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    own = set().union(*(sockets(process) for process in family()))
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        if (path := Path("/proc/net", name)).exists()
        for line in path.read_text().splitlines()[1:]
    ]
    return [
        address(line[1].partition(":")[0])
        for line in lines
        if line[3] == LISTENS and line[9] in own
    ]


def test_addresses_are_read_as_they_are():
    assert address("0100007F") == ipaddress.ip_address("127.0.0.1")
    assert address("0000000000000000FFFF00000100007F") == ipaddress.ip_address("127.0.0.1")
    assert address("00000000000000000000000000000000").is_unspecified
    with socket.create_server(("0.0.0.0", 0)):
        assert any(found.is_unspecified for found in listening())


def test_the_executors_of_calibrations(ray):
    """The session of all tests is one that `open_session` made."""
    results = RayExecutor(workers=1).map(lambda: lambda number, block: -block, [3, 4])
    assert next(results) == -3
    found = listening()  # while a worker waits
    results.close()
    assert len(found) >= 3  # the store, the scheduler, a worker
    assert all(each.is_loopback for each in found), found


def test_the_executor_of_the_benchmark(ray):
    pytest.importorskip("torch")
    from pseudocal.lab.bench.executors import Ray

    with Ray(workers=1) as executor:
        assert list(executor(abs, [-1])) == [1]
        assert all(each.is_loopback for each in listening())


SESSION = """
import stat
import sys
from pathlib import Path

from pseudocal.distributed import RayExecutor
from pseudocal.distributed.ray_session import open_session


def others_may_enter(path):
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


executor = RayExecutor(workers=1)
if sys.argv[1] == "closed":
    with executor.connected() as ray:
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        private = not all(others_may_enter(each) for each in session.parents if each not in (Path("/"), Path("/tmp")))
        print(session, private)
else:
    open_session(num_cpus=1)
    import ray

    print(ray._private.worker._global_node.get_session_dir_path(), True)
"""


@pytest.mark.parametrize("end", ["closed", "left open"])
@pytest.mark.parametrize("long", [False, True], ids=["/tmp", "a path too long for sockets"])
def test_files_of_a_session_are_private_and_removed(tmp_path, end, long):
    pytest.importorskip("ray")
    folder = tmp_path / ("long" * 25) if long else Path("/tmp")
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-c", SESSION, end]
    environment = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    session, _, private = done.stdout.strip().rpartition(" ")
    assert private == "True"
    assert not Path(session).exists()
    assert not Path(session).parent.exists()
