"""The monitor of the gallery: gas sensors that drift over two and a half years.

    python benchmarks/watch_gas.py --data ../shared/data docs/howto/watch_gas.html

A logistic regression and a network, the pair of `watch.py`, are trained on half of batches 1 and 2 of
the gas sensor array drift data (UCI, 128 features, six gases). The other half is the baseline;
batches 3 to 9 are watched. Our copy has no batch 7. The true accuracy of each batch is given after
all of them were watched. Ten seconds on one core. Development data. With two networks of the same
kind (`--alike`) batch 3 raises no alarm: both make the same errors.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pseudocal.app import WatchResult, calibrate, watch

Array = NDArray[np.float64]
MODELS = ModuleType("gas")
# the last month of each batch
TIMES = {
    3: "2009-01-31",
    4: "2009-03-31",
    5: "2009-04-30",
    6: "2009-08-31",
    8: "2009-11-30",
    9: "2010-06-30",
}


def trained(classifier: Any, x: Array, y: NDArray[np.int64]) -> Callable[[Array], Array]:
    """Train a model, and return its logits as a function."""
    model = make_pipeline(StandardScaler(), classifier).fit(x, y)
    return lambda rows: np.log(np.clip(model.predict_proba(rows), 1e-12, 1))


def watched(stored: dict[str, Array], alike: bool) -> list[WatchResult]:
    """Calibrate on held-out rows of the first batches, and watch the others, in this folder."""
    x = stored["x"].astype(np.float64)
    batch = stored["batch"]
    y = stored["y"].astype(np.int64)
    classes = [str(name) for name in stored["classes"]]
    known = np.random.default_rng(1).permutation(np.flatnonzero(batch <= 2))
    train = known[: len(known) // 2]
    rest = known[len(known) // 2 :]
    pair: list[Any] = [
        LogisticRegression(max_iter=2000),
        MLPClassifier((64,), max_iter=300, random_state=0),
    ]
    if alike:
        pair[0] = MLPClassifier((64,), max_iter=300, random_state=1)
    MODELS.regression = trained(pair[0], x[train], y[train])  # type: ignore[attr-defined]
    MODELS.network = trained(pair[1], x[train], y[train])  # type: ignore[attr-defined]
    sys.modules[MODELS.__name__] = MODELS
    np.save("batches_1_and_2.npy", x[rest])
    calibrate(
        "gas:regression",
        "batches_1_and_2.npy",
        "out",
        second_opinion="gas:network",
        classes=classes,
        output_type="logits",
    )
    watch("monitor", baseline="out", time="2008-10-31")
    results = []
    for number, time in TIMES.items():
        np.save(f"batch_{number}.npy", x[batch == number])
        np.save(f"truth_{number}.npy", y[batch == number])
        results.append(watch("monitor", f"batch_{number}.npy", time=time, trust=True))
    for number in TIMES:
        watch("monitor", f"batch_{number}.npy", ground_truth=f"truth_{number}.npy", trust=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--alike", action="store_true", help="two networks of the same kind")
    given = parser.parse_args()
    stored = dict(np.load(given.data / "gas_drift.npz"))
    page = given.page.absolute()
    with TemporaryDirectory() as folder, chdir(folder):
        results = watched(stored, given.alike)
        shutil.copy("monitor/index.html", page)
    for result in results:
        one = result.batches[0]
        accuracy = "-" if one.accuracy is None else f"{one.accuracy.value:.0%}"
        print(f"{one.time} {one.inputs:5} inputs, estimated {accuracy}, alarm {one.alarm}")
    print(page)


if __name__ == "__main__":
    main()
