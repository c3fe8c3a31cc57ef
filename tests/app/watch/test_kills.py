"""A call that is killed at any moment is repeated, and the monitor is as if nothing had happened.

A moment is an operation on a file of the monitor: it is opened, renamed, made or removed. The calls are
children of a child: this file run as a script, `python test_kills.py FOLDER SEED ROUNDS`. In each
round a call kills itself before a random operation, and the next one counts the same batch. Two
calls at the same time are real processes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from conftest import World, make_world  # type: ignore[import-not-found]
else:
    from ..conftest import CHILD
    from .conftest import World, make_world

OPERATIONS = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.listdir"}
TIME = "2026-11-17"


def counted(world: World, name: str) -> None:
    from pseudocal.app import watch

    watch(world.monitor, world.folder / f"{name}.npy", baseline=world.out, time=TIME)


def started(world: World, moment: int | None) -> int:
    """Count a batch in a child, which kills itself before an operation; how many there were."""
    log = world.folder / "operations.log"
    child = os.fork()
    if child == 0:
        watch_operations(world.monitor, moment, log)
        counted(world, "tue")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed if moment is not None else status == 0, status
    return len(log.read_text().splitlines())


def watch_operations(folder: Path, moment: int | None, log: Path) -> None:
    file = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    done = 0

    def before(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event in OPERATIONS and str(arguments[0]).startswith(str(folder)):
            os.write(file, f"{event}\n".encode())
            done += 1
            if done == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(before)


def content(monitor: Path) -> dict[str, Any]:
    """All files of a monitor; left files would show up.

    The time that a run took is left out, and the versions of packages: a process that has imported
    others records those too.
    """
    found: dict[str, Any] = {}
    for path in sorted(monitor.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(monitor))
        found[name] = path.read_bytes()
        if path.name == "run.json":
            found[name] = json.loads(found[name]) | {"timing": None, "versions": None}
    return found


def rounds(folder: Path, seed: int, number: int) -> None:
    world = make_world(folder)
    world.batch("mon")
    world.batch("tue", noise=3.0)  # which raises the alarm: there is most to write
    counted(world, "mon")
    shutil.copytree(world.monitor, folder / "before")
    operations = started(world, None)
    undisturbed = content(world.monitor)
    assert json.loads(undisturbed["state.json"])["change"] is not None
    rng = random.Random(seed)
    for moment in rng.choices(range(1, operations + 1), k=number):
        shutil.rmtree(world.monitor)
        shutil.copytree(folder / "before", world.monitor)
        started(world, moment)
        started(world, None)
        after = content(world.monitor)
        different = [
            name for name in after | undisturbed if after.get(name) != undisturbed.get(name)
        ]
        if different:
            sys.stdout.write(f"killed before operation {moment} of {operations}: {different}\n")


@pytest.mark.parametrize("number", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_calls_leave_the_monitor_of_undisturbed_ones(tmp_path, number):
    pytest.importorskip("onnxruntime")
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path), str(number), str(number)]
    done = subprocess.run(command, env=CHILD, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_two_calls_at_the_same_time_count_each_batch_once(world: World):
    world.batch("mon")
    world.batch("tue")
    counted(world, "mon")
    words = [sys.executable, "-m", "pseudocal", "watch", str(world.monitor)]
    calls = [
        subprocess.Popen(
            [*words, str(world.folder / f"{name}.npy"), "--time", TIME],
            env=CHILD,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("mon", "tue", "tue", "mon")
    ]
    for call in calls:
        _, err = call.communicate()
        assert call.returncode == 0, err
    twice = content(world.monitor)
    shutil.rmtree(world.monitor)
    counted(world, "mon")
    counted(world, "tue")
    assert content(world.monitor) == twice


if __name__ == "__main__":
    rounds(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
