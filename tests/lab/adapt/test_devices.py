"""What training does for a GPU, as far as it can be checked without one, and its log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from pseudocal.lab.adapt import METHODS, Trained, TrainingRun, train
from pseudocal.lab.adapt.devices import deterministic, on_device, staged
from pseudocal.lab.adapt.method import Preset
from pseudocal.lab.adapt.networks import Network, build_head
from pseudocal.lab.adapt.runs import (
    DescentPlan,
    build_optimiser,
    restore_checkpoint,
    save_checkpoint,
)


class KilledError(Exception):
    pass


def small(images, out: Path, *, method: str = "mcc", lr: float = 0.01, **run) -> Trained:
    source, target = images
    settings: dict[str, Any] = {"iterations": 12, "checkpoint_every": 5, **run}
    preset = replace(METHODS[method]["paper"], batch=16, lr=lr)
    return train(
        source,
        target.unlabelled(),
        TrainingRun(out, **settings),
        method=method,
        preset=preset,
        backbone="digits",
        width=8,
    )


def rows(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_does_not_wait_in_every_step(recording, images, tmp_path, method) -> None:
    """A method may look at its target now and then, so the waits must not grow with the steps."""
    waits = []
    for iterations in (30, 60):
        with recording() as places:
            run: dict[str, Any] = {"iterations": iterations, "checkpoint_every": 1000}
            small(images, tmp_path / str(iterations), method=method, device="cuda", **run)
        waits.append(places.waits)
    assert waits[1] - waits[0] < 10
    assert waits[1] < 70


def test_training_resumes_in_the_layout_of_its_weights(tmp_path) -> None:
    """The fused optimiser reads weights and momentum in the order of memory."""

    def trained(checkpoint: Path | None) -> torch.Tensor:
        torch.manual_seed(0)
        body: Any = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
        body = body.to(memory_format=torch.channels_last)
        network = Network(body, build_head("linear", 144, 4, 3))
        plan = DescentPlan(Preset(nn.Identity), 0, 4, tmp_path / "never")
        optimiser = build_optimiser(network, nn.Identity(), plan)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        x = torch.linspace(-1, 1, 2 * 3 * 64).reshape(2, 3, 8, 8)
        for step in range(4):
            if step == 2 and checkpoint is not None:
                save_checkpoint(checkpoint, network, nn.Identity(), optimiser, scaler, 2, [])
                optimiser = build_optimiser(network, nn.Identity(), plan)
                restore_checkpoint(checkpoint, network, nn.Identity(), optimiser, scaler)
            optimiser.zero_grad()
            network(x).square().mean().backward()
            optimiser.step()
        return body[0].weight.detach()

    assert torch.equal(trained(None), trained(tmp_path / "resume.safetensors"))


def test_float16_scales_gradients_and_resumes(images, tmp_path) -> None:
    single = small(images, tmp_path / "single")
    half = small(images, tmp_path / "half", precision="float16")

    def kill(progress) -> None:
        if progress.done == 8:
            raise KilledError

    with pytest.raises(KilledError):
        small(images, tmp_path / "cut", precision="float16", progress=kill)
    small(images, tmp_path / "cut", precision="float16")
    one, two, cut = (
        load_file(out / "model.safetensors") for out in (single.out, half.out, tmp_path / "cut")
    )
    assert all(torch.equal(tensor, cut[name]) for name, tensor in two.items())
    assert rows(half.out)[-1]["losses"][0] < 0.7 * rows(half.out)[0]["losses"][0]
    assert any(not torch.equal(tensor, one[name]) for name, tensor in two.items())
    assert json.loads((half.out / "run.json").read_text())["settings"]["precision"] == "float16"


def test_losses_and_rate_are_logged(images, tmp_path) -> None:
    trained = small(images, tmp_path / "mcd", method="mcd", iterations=120, checkpoint_every=1000)
    found = rows(trained.out)
    assert [row["step"] for row in found] == [50, 100, 120]
    assert {row["stage"] for row in found} == {"mcd"}
    assert [len(row["losses"]) for row in found] == [6, 6, 6]  # updates of a step
    rates = [row["lr"] for row in found]
    np.testing.assert_allclose(rates, 0.01 * (1 + 10 * np.array([50, 100, 120]) / 120) ** -0.75)
    assert found[-1]["losses"][0] < found[0]["losses"][0]


def test_a_resumed_training_has_the_same_log(images, tmp_path) -> None:
    whole = small(images, tmp_path / "whole")

    def kill(progress) -> None:
        if progress.done == 8:
            raise KilledError

    with pytest.raises(KilledError):
        small(images, tmp_path / "cut", progress=kill)
    with (tmp_path / "cut" / "log.jsonl").open("a") as file:
        file.write('{"stage": "mcc", "step": 8, "losses": [1.0]}\n{"stage": "m')  # lost in a kill
    small(images, tmp_path / "cut")
    assert rows(tmp_path / "cut") == rows(whole.out)
    assert [row["step"] for row in rows(whole.out)] == [5, 10, 12]


def test_tensorboard_shows_the_same_numbers(images, tmp_path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trained = small(images, tmp_path / "run")
    events = accumulators.EventAccumulator(str(trained.out / "tensorboard"))
    events.Reload()
    shown = [(event.step, event.value) for event in events.Scalars("mcc/loss 1")]
    logged = [(row["step"], pytest.approx(row["losses"][0])) for row in rows(trained.out)]
    assert shown == logged


def test_a_loss_that_is_not_finite_ends_the_training_before_a_checkpoint(images, tmp_path) -> None:
    with pytest.raises(FloatingPointError, match=r"got nan in step [1-5]: a smaller learning rate"):
        small(images, tmp_path / "run", lr=1e30)
    assert not (tmp_path / "run" / "resume.safetensors").exists()


def test_a_gpu_gets_deterministic_algorithms(monkeypatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with deterministic("cpu"):
        assert not torch.are_deterministic_algorithms_enabled()
    with deterministic("cuda:1"):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_gpu_gets_channels_last(monkeypatch) -> None:
    for device, last in (("meta", True), ("cpu", False)):
        weight = on_device(nn.Conv2d(4, 4, 3), device).weight
        assert weight.is_contiguous(memory_format=torch.channels_last) == last


def test_a_gpu_reads_pinned_memory(monkeypatch) -> None:
    pinned = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self) or self)
    staged(np.ones(3), "cpu")
    assert pinned == []
    staged(np.ones(3), "cuda:0")
    assert len(pinned) == 1
