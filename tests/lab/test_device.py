"""With device="cuda" no tensor of a forward or backward pass stays behind on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pseudocal.lab.adapt import METHODS, TrainingRun, train
from pseudocal.lab.data import Domain

torch.set_num_threads(1)


def stripes(seed: int) -> Domain:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 40)
    pixels = rng.integers(0, 60, (40, 1, 16, 16))
    for image, label in zip(pixels, labels, strict=True):
        image[0, 4 * label : 4 * label + 3] += 150
    return Domain(f"stripes {seed}", pixels.astype(np.uint8), labels, ("a", "b", "c", "d"))


def test_the_device_notices_what_is_left_behind(recording) -> None:
    with recording() as places:
        layer = torch.nn.Linear(3, 2).to("cuda")
        assert layer.weight.device.type == "cuda"
        layer(torch.ones(1, 3).to("cuda")).sum().backward()
        assert layer.weight.grad.device.type == "cuda"
        assert places.heavy
        assert all(gpu for _, gpu in places.heavy)
        with pytest.raises(AssertionError, match="meets one of shape"):
            layer(torch.ones(1, 3))
        with pytest.raises(AssertionError, match="meets one of shape"):
            layer(torch.from_numpy(np.ones((1, 3), np.float32)))
        with pytest.raises(AssertionError, match="as an array"):
            layer.weight.detach().numpy()
        assert layer.weight.detach().cpu().numpy().shape == (2, 3)
        assert torch.zeros(2, device=layer.weight.device).device.type == "cuda"


@pytest.mark.parametrize("method", METHODS)
def test_no_tensor_of_a_training_is_left_behind(recording, tmp_path: Path, method: str) -> None:
    source, target = stripes(0), stripes(1)
    with recording() as places:
        for preset, frozen in (("paper", False), ("official", True)):
            run = TrainingRun(
                tmp_path / preset, iterations=3, checkpoint_every=2, frozen=frozen, cache=tmp_path,
                evaluate=target, device="cuda",
            )  # fmt: skip
            chosen = replace(METHODS[method][preset], batch=8)
            train(
                source,
                target.unlabelled(),
                run,
                method=method,
                preset=chosen,
                backbone="digits",
                width=8,
            )
    assert len(places.heavy) > 50
    assert all(gpu for _, gpu in places.heavy)
