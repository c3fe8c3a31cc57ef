"""How many files of the package have a function that runs.

In one calibration, and in one cell of the benchmark.

The fewer, the fewer a reader has to open. Bodies of modules and classes do not count, all threads
do.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import pseudocal
from pseudocal.lab.data import load

PACKAGE = Path(pseudocal.__file__).parent
MODELS = """
import numpy as np
weights = np.random.default_rng(0).normal(size=(5, 3))
def f(x): return 6 * x @ weights
def g(x): return 5 * (x + 0.3) @ weights
"""
IN_CLASS_BODIES = "__qualname__"  # a local name that only the body of a class sets


@contextmanager
def counted(found: set[str]) -> Iterator[None]:
    """Collect the files whose functions are called meanwhile, in whatever thread."""

    def called(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        body = (
            code.co_name.startswith("<") and code.co_name != "<lambda>"
        ) or IN_CLASS_BODIES in code.co_names
        if event == "call" and not body:
            found.add(code.co_filename)

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def command(*arguments: str) -> None:
    """Run the command in this process; a failure shows what it printed."""
    from pseudocal.app.cli.app import app

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            app(list(arguments), standalone_mode=False)
        except BaseException:
            sys.__stderr__.write(printed.getvalue())
            raise


def calibration() -> None:
    """`pseudocal calibrate m:f x.npy -o out --second-opinion m:g`."""
    Path("m.py").write_text(MODELS)
    sys.path.insert(0, os.getcwd())
    np.save("x.npy", np.random.default_rng(1).normal(size=(400, 5)))
    command("calibrate", "m:f", "x.npy", "-o", "out", "--second-opinion", "m:g")


def cell() -> None:
    """PseudoCal on one task of `bench run emoji`, its data cached.

    Train, predict, mixup, calibrate, score.
    """
    from pseudocal.lab.bench import Store, built_in, run

    suite = built_in("emoji")
    task = replace(suite.tasks[0], iterations=20)
    failed = run(replace(suite, tasks=(task,), calibrators=("pseudocal",)), Store(Path("cell")))
    assert not failed, failed


CASES: dict[str, Callable[[], Any]] = {"calibrate": calibration, "cell": cell}


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files too")
    parser.add_argument("case", nargs="*", choices=[*CASES, []], help="all when left out")
    given = parser.parse_args()
    for name in given.case or CASES:
        found: set[str] = set()
        if name == "cell":
            load("emoji")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), counted(found):
            CASES[name]()
        there = {*PACKAGE.rglob("*.py")}
        files = sorted(str(Path(f).relative_to(PACKAGE)) for f in found if Path(f) in there)
        print(f"{name}: {len(files)} of {len(there)} files")
        if given.list:
            print(*(f"    {file}" for file in files), sep="\n")


if __name__ == "__main__":
    main()
