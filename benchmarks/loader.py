"""Images per second of the loader and of the network trained on them.

    python benchmarks/loader.py --device cuda

Images of the size of Office-Home's are generated and read as in training: batches of 36 from each
domain, random crops, in a thread beside the training. The network takes SGD steps on batches
already in memory.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from pseudocal.lab.adapt.backbones import build_backbone
from pseudocal.lab.adapt.choices import Choice
from pseudocal.lab.adapt.devices import AUTOCAST
from pseudocal.lab.adapt.tensors import SOURCE, batch_numbers, random_crops, read_ahead
from pseudocal.lab.bench.dry_run import training_speed
from pseudocal.lab.data import Crops, crops_of, image_folder

BATCH = 72  # 36 of each domain
CPU_BATCH = 8  # enough to measure a network that learns from a few images a second


def make_images(folder: Path, count: int) -> None:
    """Write JPEG files of 500 by 375 pixels: smooth shapes with some noise."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
            (500, 375), resample=3
        )
        noisy = np.asarray(coarse, np.int16) + rng.integers(-8, 9, (375, 500, 3))
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(
            folder / f"{number}.jpg", quality=90
        )


def images_a_second(step: Callable[[], object], seconds: float, batch: int = BATCH) -> float:
    """Repeat a step of one batch for some seconds."""
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        step()
        steps += 1
    return steps * batch / (time.perf_counter() - started)


def loader_speed(crops: Crops, seconds: float) -> float:
    """Images a second that come from `read_ahead`."""
    batches = read_ahead(
        lambda step: random_crops(
            crops, batch_numbers(len(crops), BATCH, 0, SOURCE, step), 0, SOURCE, step
        ),
        1,
    )
    speed = images_a_second(lambda: next(batches), seconds)
    batches.close()
    return speed


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="single", choices=AUTOCAST)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PSEUDOCAL_CACHE"] = f"{folder}/cache"
        make_images(Path(folder, "data", "a"), args.images)
        files = image_folder(Path(folder, "data")).inputs
        crops = crops_of(files)
        assert crops is not None
        started = time.perf_counter()
        crops.squares.read(np.arange(len(files)))
        first = len(files) / (time.perf_counter() - started)
        cached = loader_speed(crops, args.seconds)
    network = training_speed(
        build_backbone(Choice(args.backbone, "random")),
        (3, 224, 224),
        rows=BATCH,
        device=args.device,
        precision=args.precision,
        seconds=args.seconds,
    )
    print(f"first reading  {first:8.0f} images/s, with JPEG decoding, on {os.cpu_count()} cores")
    print(f"later readings {cached:8.0f} images/s, of decoded images")
    print(f"{args.backbone:14} {network:8.2f} images/s in training on {args.device}")
    print(f"loader / network: {cached / network:.0f}, and {first / network:.1f} while it decodes")


if __name__ == "__main__":
    main()
