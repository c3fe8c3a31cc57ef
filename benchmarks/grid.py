"""How much time two workers save on the quick emoji suite.

    python benchmarks/grid.py

Both runs start with the data only and compute the features again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from pseudocal.lab.bench import Store, built_in, run
from pseudocal.lab.bench.executors import Pool
from pseudocal.lab.data import cache_folder, emoji


def seconds(workers: int) -> float:
    """How long it takes from empty folders, starting the workers included."""
    with tempfile.TemporaryDirectory() as folder:
        cache, before = Path(folder, "cache"), cache_folder()
        cache.mkdir()
        for path in before.glob("emoji-*"):
            shutil.copy(path, cache)
        os.environ["PSEUDOCAL_CACHE"] = str(cache)
        started = time.perf_counter()
        with Pool(workers) if workers > 1 else nullcontext(map) as executor:
            failures = run(
                built_in("emoji", quick=True), Store(Path(folder, "out")), executor=executor
            )
        took = time.perf_counter() - started
        os.environ["PSEUDOCAL_CACHE"] = str(before)
        assert not failures
    return took


def main() -> None:
    """Print the two times and their ratio."""
    emoji()  # built once, in the user's cache
    one, two = seconds(1), seconds(2)
    print(
        f"\npseudocal bench run emoji --quick: one worker {one:.0f} s, two {two:.0f} s, ratio {two / one:.2f}"
    )


if __name__ == "__main__":
    main()
