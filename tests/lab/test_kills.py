"""`train` and `bench run`, killed at any moment and started again, end as if undisturbed, and leave nothing aside.

A moment is an operation on a file of the output folder: it is opened, renamed or removed. The runs
are children of a
child: this file run as a script, `python tests/lab/test_kills.py WHAT SEED ROUNDS FOLDER`. It lists
    the operations of
an undisturbed run. In each round a run kills itself before one of the renames, the next before any
operation, both drawn by the seed, and a third one ends. It prints what is wrong then.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OPERATIONS = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}
SUITE = """
calibrators = ["none", "tempscal", "mc-dropout", "pseudocal", "oracle"]

[[tasks]]
data = "digits"
source = "optdigits"
target = "fonts"
method = "mcc"
backbone = "digits"
width = 8
iterations = 4
"""


def arrays() -> dict[str, Any]:
    """In the place of the digits, 60 images of each domain."""
    import numpy as np

    made: dict[str, Any] = {}
    for seed, name in enumerate(("mnist", "optdigits", "fonts")):
        rng = np.random.default_rng(seed)
        labels = np.arange(60) % 10
        images = rng.integers(0, 100, (60, 1, 16, 16)) + 15 * labels[:, None, None, None]
        made |= {f"{name}_images": images.astype(np.uint8), f"{name}_labels": labels}
    return made


def training(out: Path) -> None:
    """Train a source model and adapt it, with a checkpoint after every other step."""
    from dataclasses import replace

    from pseudocal.lab.adapt import METHODS, TrainingRun, train
    from pseudocal.lab.data import load

    source, target = load("digits", "optdigits", "fonts").values()
    preset = replace(METHODS["shot"]["paper"], batch=16)
    run = TrainingRun(out, iterations=5, checkpoint_every=2)
    train(
        source, target.unlabelled(), run, method="shot", preset=preset, backbone="digits", width=8
    )


def benchmark(out: Path) -> None:
    from pseudocal.lab.bench import Store, run
    from pseudocal.lab.bench.suite_file import read_suite

    suite = out.parent / "kills.toml"
    suite.write_text(SUITE)
    assert run(read_suite(suite), Store(out)) == []


WORK: dict[str, Callable[[Path], None]] = {"train": training, "bench": benchmark}


def started(work: Callable[[Path], None], out: Path, moment: int | None) -> list[str]:
    """The operations of a run in a child, which kills itself before one of them if a moment is given."""
    log = out.with_suffix(".log")
    child = os.fork()
    if child == 0:
        watch(out, moment, log)
        work(out)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = moment is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or status == 0, status
    return log.read_text().splitlines()


def watch(out: Path, moment: int | None, log: Path) -> None:
    """List the operations on files in a folder as they begin."""
    file, done = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 0

    def before(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event in OPERATIONS and str(arguments[0]).startswith(f"{out}{os.sep}"):
            os.write(file, f"{event}\n".encode())
            done += 1
            if done == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(before)


def content(out: Path) -> dict[str, Any]:
    """All files but locks and events of TensorBoard, and all that they say but times."""
    files = [
        path
        for path in out.rglob("*")
        if path.is_file()
        and path.name not in ("times.json", ".lock")
        and path.parent.name != "tensorboard"
    ]
    found: dict[str, Any] = {str(path.relative_to(out)): path.read_bytes() for path in files}
    for name in found:
        if name.endswith("result.json"):
            found[name] = json.loads(found[name])["curve"]
    return found


def disturbed(what: str, seed: int, rounds: int, folder: Path) -> list[str]:
    """What is wrong after each round, and whether it was one."""
    rng, work, cut, wrong = random.Random(seed), WORK[what], folder / "cut", list[str]()
    work(folder / "first")  # whatever is imported late is there before the processes part
    operations = started(work, folder / "whole", None)
    renames = [i for i, name in enumerate(operations, start=1) if name == "os.rename"]
    whole = content(folder / "whole")
    for _ in range(rounds):
        moments = rng.choice(renames), rng.randrange(1, len(operations) // 2)
        started(work, cut, moments[0])
        wrong += (
            []
            if any(".aside" in name for name in content(cut))
            else [f"nothing is left aside at {moments[0]}"]
        )
        started(work, cut, moments[1])
        started(work, cut, None)
        end = content(cut)
        differ = [
            name for name in sorted(whole.keys() | end.keys()) if whole.get(name) != end.get(name)
        ]
        wrong += [f"{name} differs after {moments}" for name in differ]
        shutil.rmtree(cut)
    return wrong


@pytest.mark.parametrize("what", WORK)
@pytest.mark.parametrize(
    ("seed", "rounds"),
    [(0, 2), *(pytest.param(seed, 25, marks=pytest.mark.slow) for seed in range(1, 5))],
)
def test_killed_at_any_moment_it_ends_as_if_undisturbed(what, seed, rounds, tmp_path):
    pytest.importorskip("torch")
    if not hasattr(os, "fork"):
        pytest.skip("processes cannot fork here")
    words = [sys.executable, __file__, what, str(seed), str(rounds), str(tmp_path)]
    environment = os.environ | {"PSEUDOCAL_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


if __name__ == "__main__":
    import torch

    from pseudocal.lab.data import builtin_digits
    from pseudocal.lab.data.cache import cache_folder, write_checked

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kind, number, times, place = sys.argv[1:]
    write_checked(cache_folder() / f"digits-{builtin_digits.DIGITS_DIGEST[:12]}.npz", arrays())
    sys.stdout.write("\n".join([*disturbed(kind, int(number), int(times), Path(place)), "done\n"]))
