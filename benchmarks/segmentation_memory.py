"""Memory for 50 and for 500 frames of 1,024 x 2,048 pixels and 19 classes: calibrate and evaluate.

A stand-in model computes the logits of a frame from a small random block and the frame's pixels.
Each row of the table is a separate process, and the peak is the one the system reports.
torchmetrics reads the same stream and is stopped at 6 GB. Takes a quarter of an hour. Run by `make
bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

CLASSES, HEIGHT, WIDTH, TILE = 19, 1024, 2048, 64
CAP = 6 * 2**30  # bytes of address space for torchmetrics beyond what it starts with


def frames(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Frames (1, 1, height, width) and their masks, one at a time."""
    for i in range(count):
        rng = np.random.default_rng(i)
        coarse = rng.standard_normal((1, 1, HEIGHT // TILE, WIDTH // TILE), dtype=np.float32)
        x = coarse.repeat(TILE, axis=2).repeat(TILE, axis=3)
        mask = (
            np.abs(3 * x[0, 0]).astype(np.uint8) * 5
            + rng.integers(0, 3, (HEIGHT, WIDTH), dtype=np.uint8)
        ) % CLASSES
        mask[:8] = 255
        yield x, mask[None]


class StandIn:
    """Logits that depend on the pixel and on its class's own random texture."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        block = 2 * rng.standard_normal((CLASSES, 1, TILE, TILE), dtype=np.float32)
        self.texture = np.tile(block, (1, 1, 1, WIDTH // TILE))[:, 0]  # (classes, tile, width)
        self.slope = 3 * rng.standard_normal(CLASSES, dtype=np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Logits of one batch."""
        out = np.empty((len(x), CLASSES, HEIGHT, WIDTH), dtype=np.float32)
        for c in range(CLASSES):
            np.multiply(x[:, 0], self.slope[c], out=out[:, c])
            for top in range(0, HEIGHT, TILE):
                out[:, c, top : top + TILE] += self.texture[c]
        return out


def ours(count: int, pixels: int | None) -> dict[str, Any]:
    """Calibrate on the stream, then evaluate it before and after."""
    from pseudocal import PseudoCal
    from pseudocal.metrics import Segmented

    model = StandIn()
    started = time.process_time()
    calibration = PseudoCal(pixels_per_image=pixels).fit(model, (x for x, _ in frames(count)))
    fitted = time.process_time()
    before, after = (
        sum(Segmented.of(model(x), mask, temperature=t) for x, mask in frames(count))
        for t in (1.0, calibration.temperature)
    )
    return {
        "T": f"{calibration.temperature:.4f} [{calibration.interval[0]:.3f}, {calibration.interval[1]:.3f}]",
        "ece": before.ece,
        "ece after": after.ece,
        "fit": (fitted - started) / count,
        "evaluate": (time.process_time() - fitted) / count / 2,
    }


def theirs(count: int) -> dict[str, Any]:
    """The calibration error of torchmetrics on the same stream."""
    import torch
    from torchmetrics.classification import MulticlassCalibrationError

    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + CAP,) * 2)
    model, metric, done = (
        StandIn(),
        MulticlassCalibrationError(CLASSES, n_bins=15, ignore_index=255),
        0,
    )
    started = time.process_time()
    try:
        for x, mask in frames(count):
            metric.update(torch.from_numpy(model(x)), torch.from_numpy(mask.astype(np.int64)))
            done += 1
        value = float(metric.compute())
    except (MemoryError, RuntimeError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        return {
            "T": f"out of memory after {done} frames",
            "evaluate": (time.process_time() - started) / done,
        }
    return {"ece": value, "evaluate": (time.process_time() - started) / count}


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


CASES: dict[str, Callable[..., dict[str, Any]]] = {"pseudocal": ours, "torchmetrics": theirs}


def measured(case: str, count: int, pixels: int | None) -> dict[str, Any]:
    """Run one case in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--case",
        case,
        "--frames",
        str(count),
        "--pixels",
        str(pixels or 0),
    ]
    return json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=[*CASES])
    parser.add_argument("--frames", type=int, nargs="+", default=[50, 500])
    parser.add_argument("--pixels", type=int, default=20_000, help="of each image; 0 for all")
    given = parser.parse_args()
    if given.case:
        settings = {"pixels": given.pixels or None} if given.case == "pseudocal" else {}
        result = CASES[given.case](given.frames[0], **settings)
        print(
            json.dumps(result | {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024})
        )
        return
    print(f"\nFrames of {HEIGHT} x {WIDTH} x {CLASSES} float32, 159 MB each; CPU seconds a frame\n")
    print(
        "| | frames | peak memory | fit | evaluate | T | ECE before | after |\n|---|---|---|---|---|---|---|---|"
    )
    peaks = []
    for case in CASES:
        for count in given.frames:
            r = measured(case, count, given.pixels)
            peaks.append(r["peak"])
            fit, evaluate = (f"{r[k]:.2f}" if k in r else "-" for k in ("fit", "evaluate"))
            before, after = (f"{r[k]:.2%}" if k in r else "-" for k in ("ece", "ece after"))
            row = [
                case,
                count,
                f"{r['peak'] / 1e9:.2f} GB",
                fit,
                evaluate,
                r.get("T", "-"),
                before,
                after,
            ]
            print(f"| {' | '.join(map(str, row))} |", flush=True)
    few, many = given.frames
    print(
        f"\npseudocal: {peaks[1] / peaks[0]:.3f} times the memory for {many / few:g} times the frames"
    )


if __name__ == "__main__":
    main()
