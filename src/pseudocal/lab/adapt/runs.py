"""A training's folder: settings, model, outputs for calibration, curve.

run.json             settings, seed, versions; starting again with other settings is refused
resume.safetensors   only while training: the checkpoint that it resumes from
model.safetensors    the whole network, backbone included
target.npz           logits, features
source_train.npz     logits, features, labels  (not for source-free methods: see the source model's own folder)
source_val.npz       logits, features, labels  (held out from training)
result.json          curve and seconds; written last, so its presence means finished
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from pseudocal.arrays import InputError
from pseudocal.files import save_json
from pseudocal.lab.adapt.backbones import Backbone, Choice, build_backbone
from pseudocal.lab.adapt.loop import Point, seeded
from pseudocal.lab.adapt.networks import Network, build_head
from pseudocal.lab.adapt.tensors import load_tensors, save_tensors


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        out: the folder of its files.
        curve: error and NLL on the target during training, if labels for evaluation were given.
        seconds: how long it took.

    """

    out: Path
    curve: tuple[Point, ...]
    seconds: float

    @property
    def target(self) -> Path:
        """Target logits and features, without labels."""
        return self.out / "target.npz"

    @property
    def source_val(self) -> Path:
        """Source validation logits, features and labels; of the source model if the method is source-free."""
        own = self.out / "source_val.npz"
        return own if own.exists() else self.out / "source" / "source_val.npz"

    @property
    def source_train(self) -> Path:
        """The same for the source images that were trained on."""
        return self.source_val.with_name("source_train.npz")

    def load(self) -> Network:
        """The whole network in evaluation mode: images with values 0 to 255 in, logits out."""
        return load_network(self.out)


def start_run(out: Path, settings: dict[str, Any]) -> Trained | None:
    """Write the settings, or compare them with those of an earlier start; the result if that finished."""
    settings = json.loads(json.dumps(settings))  # as they will be read back
    path = out / "run.json"
    if path.exists():
        _check_same(out, json.loads(path.read_text())["settings"], settings)
    else:
        save_json(path, {"settings": settings, "versions": training_versions()})
    result = out / "result.json"
    if not result.exists():
        return None
    finished = json.loads(result.read_text())
    return Trained(out, tuple(Point(**point) for point in finished["curve"]), finished["seconds"])


def finish_run(out: Path, curve: list[Point], seconds: float) -> Trained:
    """Mark the run as finished and delete its checkpoint."""
    save_json(out / "result.json", {"curve": [asdict(point) for point in curve], "seconds": seconds})
    (out / "resume.safetensors").unlink(missing_ok=True)
    return Trained(out, tuple(curve), seconds)


def save_network(out: Path, network: Network, *, head: str, width: int, classes: tuple[str, ...]) -> None:
    """Write the weights of the whole network, and how to build it."""
    backbone = network.backbone
    assert isinstance(backbone, Backbone)
    note = {"backbone": asdict(backbone.choice), "head": head, "width": width, "classes": list(classes)}
    save_tensors(out / "model.safetensors", network.state_dict(), note)


def load_network(out: Path | str) -> Network:
    """The network of a finished training; nothing is downloaded and no pickle is read.

    Args:
        out: the folder of the training.

    """
    path = Path(out) / "model.safetensors"
    if not path.exists():
        raise InputError(f"expected a finished training with {path.name}, got {path.parent}, which has none")
    tensors, note = load_tensors(path)
    choice = Choice(**note["backbone"])
    with seeded(0):  # the weights drawn here are replaced at once
        backbone = build_backbone(Choice(choice.name, "random", choice.size, choice.config))
        network = Network(backbone, build_head(note["head"], backbone.width, note["width"], len(note["classes"])))
    network.load_state_dict(tensors)
    backbone.pretrained, backbone.choice = True, choice
    return network.eval()


def training_versions() -> dict[str, str]:
    """The versions that the results may depend on."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        **{name: version(name) for name in ("numpy", "safetensors")},
    }


def _check_same(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if changed:
        key = changed[0]
        raise InputError(
            f"expected the settings that {out} was started with ({key} {before.get(key)!r}), got {key} {now.get(key)!r}"
        )
