"""Time, peak memory and error of `fit_temperature` beside scikit-learn, probmetrics and torch LBFGS.

Run by `make bench`. Each contender runs in a process of its own on the same file of float32 logits
whose labels were drawn at T = 2. The time is the best of three runs, or of up to thirty that fit
into three seconds; the memory is what the process took beyond the loaded input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

SIZES = [(50_000, 1_000), (200_000, 19)]
RIGHT = 1e-3  # a peer is right if its temperature is within this of the optimum


def ours(logits, labels):
    from pseudocal import fit_temperature

    return lambda n: fit_temperature(logits[:n], labels[:n]).temperature


def scikit_learn(logits, labels):
    from sklearn.calibration import (
        _TemperatureScaling,
    )  # behind CalibratedClassifierCV(method="temperature")

    return lambda n: float(1 / _TemperatureScaling().fit(logits[:n], labels[:n]).beta_)


def probmetrics(logits, labels):
    import torch
    from probmetrics.calibrators import TemperatureScalingCalibrator
    from probmetrics.distributions import CategoricalLogits

    def fit(n):
        calibrator = TemperatureScalingCalibrator()
        calibrator.fit_torch(
            CategoricalLogits(torch.from_numpy(logits[:n])), torch.from_numpy(labels[:n])
        )
        return float(1 / calibrator.invtemp_)

    return fit


def torch_lbfgs(logits, labels):
    import torch

    def fit(n):
        z, y = torch.from_numpy(logits[:n]), torch.from_numpy(labels[:n])
        log_b = torch.zeros(1, requires_grad=True)
        optimiser = torch.optim.LBFGS([log_b], max_iter=50, line_search_fn="strong_wolfe")

        def loss():
            optimiser.zero_grad()
            value = torch.nn.functional.cross_entropy(z * log_b.exp(), y)
            value.backward()
            return value

        optimiser.step(loss)
        return float((-log_b).exp())

    return fit


CONTENDERS = {
    "pseudocal": ours,
    "scikit-learn": scikit_learn,
    "probmetrics": probmetrics,
    "torch LBFGS": torch_lbfgs,
}


def contend(name: str, folder: Path) -> dict[str, float]:
    """Run one contender in this process."""
    warnings.simplefilter("ignore")
    logits, labels = np.load(folder / "logits.npy"), np.load(folder / "labels.npy")
    fit = CONTENDERS[name](logits, labels)
    fit(500)  # imports, compilation, thread pools
    before = _peak_megabytes(reset=True)
    seconds: list[float] = []
    while len(seconds) < 3 or (len(seconds) < 30 and sum(seconds) < 3):
        start = time.perf_counter()
        temperature = fit(len(logits))
        seconds.append(time.perf_counter() - start)
    return {
        "seconds": min(seconds),
        "megabytes": _peak_megabytes() - before,
        "temperature": temperature,
    }


def _peak_megabytes(*, reset: bool = False) -> float:
    """The most memory that this process held since the last reset (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024


def optimum(logits: np.ndarray, labels: np.ndarray) -> float:
    """The exact optimum by a root search in float64."""

    def slope(b: float) -> float:
        total = 0.0
        for i in range(0, len(logits), 5_000):
            z, y = logits[i : i + 5_000].astype(np.float64), labels[i : i + 5_000]
            e = np.exp(b * (z - z.max(axis=1, keepdims=True)))
            total += ((e * z).sum(axis=1) / e.sum(axis=1) - z[np.arange(len(z)), y]).sum()
        return total / len(logits)

    return 1 / brentq(slope, 0.4, 0.6, xtol=1e-12)


def main() -> None:
    """Print one table for each size."""
    for n, classes in SIZES:
        rng = np.random.default_rng(0)
        z = rng.standard_normal((n, classes), dtype=np.float32) * 2
        labels = np.array([(row + rng.gumbel(size=classes)).argmax() for row in z])
        logits = z * np.float32(2)
        truth = optimum(logits, labels)
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "logits.npy", logits)
            np.save(Path(folder) / "labels.npy", labels)
            rows = {name: _in_a_process(name, folder) for name in CONTENDERS}
        _print_table(n, classes, truth, rows)


def _in_a_process(name: str, folder: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, name, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _print_table(n: int, classes: int, truth: float, rows: dict[str, dict[str, float]]) -> None:
    print(f"\nfit_temperature, {n:,} x {classes:,} float32, exact optimum T = {truth:.7f}\n")
    print("| | seconds | MB beyond input | error of T | times slower |\n|---|---|---|---|---|")
    for name, row in rows.items():
        error = row["temperature"] - truth
        ratio = row["seconds"] / rows["pseudocal"]["seconds"]
        print(
            f"| {name} | {row['seconds']:.4f} | {row['megabytes']:.0f} | {error:+.1e} | {ratio:.1f} |"
        )
    peers = [
        r["seconds"]
        for k, r in rows.items()
        if k != "pseudocal" and abs(r["temperature"] - truth) < RIGHT
    ]
    print(
        f"\nThe fastest peer that is right takes {min(peers) / rows['pseudocal']['seconds']:.1f} times as long."
    )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(contend(sys.argv[1], Path(sys.argv[2]))))
    else:
        main()
