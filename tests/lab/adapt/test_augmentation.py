"""Training on image files: random crops, read ahead, resumed to the last digit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from pseudocal.arrays import InputError
from pseudocal.lab.adapt import METHODS, Choice, TrainingRun, train
from pseudocal.lab.adapt.backbones import BACKBONES, Backbone
from pseudocal.lab.data import image_folder


def small_backbone(choice: Choice) -> Backbone:
    """In the place of the digits' network, one for colour images of 12 pixels."""
    layers = [
        torch.nn.Conv2d(3, 8, 3, 2),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
    ]
    return Backbone(
        choice,
        torch.nn.Sequential(*layers),
        width=200,
        size=None,
        normal=((0.5,), (0.5,)),
        pretrained=False,
    )


@pytest.fixture
def domains(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PSEUDOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(BACKBONES, "digits", small_backbone)
    rng = np.random.default_rng(0)
    for name in ("art", "photo"):
        for label in "ab":
            (tmp_path / name / label).mkdir(parents=True)
            for i in range(12):
                Image.fromarray(rng.integers(0, 256, (18, 18, 3), dtype=np.uint8)).save(
                    tmp_path / name / label / f"{i}.png"
                )
    return [image_folder(tmp_path / name, resize=14, crop=12) for name in ("art", "photo")]


def trained(domains, out: Path, method: str = "mcc", **settings):
    run = TrainingRun(out, iterations=12, checkpoint_every=5, **settings)
    preset = replace(METHODS[method]["paper"], batch=6)
    result = train(
        domains[0],
        domains[1].unlabelled(),
        run,
        method=method,
        preset=preset,
        backbone="digits",
        width=8,
    )
    return load_file(result.out / "model.safetensors"), result


def same(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("method", ["mcc", "atdoc", "shot"])
def test_a_resumed_run_with_augmentation_is_the_same_to_the_last_digit(
    domains, tmp_path: Path, method: str
) -> None:
    def kill(progress) -> None:
        if (progress.stage, progress.done) == (method, 8):
            raise KilledError

    whole, _ = trained(domains, tmp_path / "whole", method)
    with pytest.raises(KilledError):
        trained(domains, tmp_path / "cut", method, progress=kill)
    assert (tmp_path / "cut" / "resume.safetensors").exists()
    again, _ = trained(domains, tmp_path / "cut", method)
    assert same(whole, again)


def test_augmentation_is_the_default_of_files_and_changes_the_training_only(
    domains, tmp_path: Path
) -> None:
    with_crops, result = trained(domains, tmp_path / "1")
    without, plain = trained(domains, tmp_path / "2", augment=False)
    assert not same(with_crops, without)
    for each in (result, plain):  # outputs are of the centres
        logits = each.load()(torch.from_numpy(domains[1].inputs[:])).detach().numpy()
        np.testing.assert_allclose(np.load(each.target)["logits"], logits, rtol=1e-4, atol=1e-5)
    arrays = [replace(domain, inputs=domain.inputs[:]) for domain in domains]
    assert same(without, trained(arrays, tmp_path / "3")[0])  # in memory there is no margin to crop
    with pytest.raises(InputError, match="expected image files and a backbone that is trained"):
        trained(arrays, tmp_path / "4", augment=True)
    with pytest.raises(InputError, match="got augment None"):
        trained(domains, tmp_path / "1", augment=False)


@pytest.mark.parametrize("method", ["mcc", "shot"])
def test_crops_are_taken_to_the_gpu(domains, recording, tmp_path: Path, method: str) -> None:
    with recording() as places:
        trained(domains, tmp_path / "out", method, device="cuda")
    assert len(places.heavy) > 50
    assert all(gpu for _, gpu in places.heavy)


def test_an_unreadable_image_ends_the_training_with_its_name(domains, tmp_path: Path) -> None:
    bad = Path(domains[1].inputs.paths[3])
    bad.write_bytes(b"nothing")
    with pytest.raises(InputError, match=bad.name):
        trained(domains, tmp_path / "out")
