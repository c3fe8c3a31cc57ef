"""Train a segmenter on labelled source images; adaptation is left to others, as in the paper.

trained = train_segmenter(source, out="runs/noto")
model = trained.load()                              # images with values 0 to 255 in, logits for every pixel out
PseudoCal().fit(model, target.inputs)
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

from pseudocal.arrays import InputError
from pseudocal.lab.adapt.files import load_tensors, save_tensors
from pseudocal.lab.adapt.loop import Plan, Report, descend, seeded
from pseudocal.lab.adapt.method import Moment, Preset, Step, Steps
from pseudocal.lab.adapt.rows import SOURCE, Rows, batch_rows
from pseudocal.lab.adapt.runs import finish_run, start_run
from pseudocal.lab.data import Scenes
from pseudocal.lab.data.fingerprint import fingerprint
from pseudocal.lab.segmentation.networks import build_segmenter
from pseudocal.maps import IGNORED


@dataclass(frozen=True, eq=False)
class Masked:
    """A batch of images with the class of each pixel."""

    images: Tensor  # (n, 3, height, width)
    masks: Tensor  # (n, height, width)


class PixelCrossEntropy(nn.Module):
    """Cross-entropy of every pixel that counts, at the size of the masks; half of the images are mirrored."""

    def steps(self, network: nn.Module, batch: Masked, now: Moment) -> Steps:
        """One step."""
        mirrored = torch.rand(len(batch.images), 1, 1) < 0.5
        images = torch.where(mirrored[..., None].to(batch.images.device), batch.images.flip(-1), batch.images)
        masks = torch.where(mirrored.to(batch.masks.device), batch.masks.flip(-1), batch.masks)
        logits = network(images)
        if logits.shape[-2:] != masks.shape[-2:]:
            logits = F.interpolate(logits, masks.shape[-2:], mode="bilinear", align_corners=False)
        yield Step(F.cross_entropy(logits, masks.long(), ignore_index=IGNORED))


@dataclass(frozen=True)
class TrainedSegmenter:
    """A finished training: where its files lie, and how long it took."""

    out: Path
    seconds: float

    def load(self) -> nn.Module:
        """The network in evaluation mode."""
        return load_segmenter(self.out)


def train_segmenter(
    source: Scenes,
    *,
    out: Path | str,
    network: str = "unet",
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    iterations: int = 300,
    batch: int = 16,
    lr: float = 0.1,
    decay: float = 5e-4,
    backbone_scale: float = 1.0,
    checkpoint_every: int = 100,
    device: str = "cpu",
    progress: Report | None = None,
) -> TrainedSegmenter:
    """Train on all of `source`; the last iterate is kept. `settings` are those of the network.

    Started again on the same folder, it goes on where it was killed, or returns what is finished; other settings or
    another source are refused. Of files on disk the names and sizes are compared. The paper's DeepLab has
    `lr=2.5e-3`, `backbone_scale=0.1` and small batches.
    """
    out, settings = Path(out), settings or {}
    if iterations < 1 or checkpoint_every < 1 or not 1 <= batch <= len(source):
        raise InputError(
            f"expected iterations and checkpoint_every from 1 and a batch from 1 to {len(source)}, "
            f"got {iterations}, {checkpoint_every} and {batch}"
        )
    recipe = {"iterations": iterations, "batch": batch, "lr": lr, "decay": decay, "backbone_scale": backbone_scale}
    asked = {"network": network, "settings": settings, "seed": seed, "source": _record(source), **recipe}
    finished = start_run(out, asked | {"classes": list(source.classes)})
    if finished:
        return TrainedSegmenter(out, finished.seconds)
    started = time.perf_counter()
    with seeded(seed):
        model = build_segmenter(network, len(source.classes), **settings).to(device)
    images, masks = Rows(source.inputs, device), Rows(source.masks, device)

    def draw(step: int) -> Masked:
        rows = batch_rows(len(source), batch, seed, SOURCE, step)
        return Masked(images[rows], masks[rows])

    plan = Plan(
        Preset(PixelCrossEntropy, batch=batch, lr=lr, decay=decay, schedule="poly"),
        seed,
        iterations,
        out / "resume.safetensors",
        checkpoint_every=checkpoint_every,
        report=progress,
        stage="segmenter",
        backbone_scale=backbone_scale,
    )
    descend(model, PixelCrossEntropy(), draw, plan)  # type: ignore[arg-type]
    note = {"network": network, "settings": _rebuilt(settings), "classes": list(source.classes)}
    save_tensors(out / "model.safetensors", model.state_dict(), json.loads(json.dumps(note)))
    return TrainedSegmenter(out, finish_run(out, [], time.perf_counter() - started).seconds)


def _record(source: Scenes) -> dict[str, Any]:
    """What a source is known by."""
    shape = list(source.inputs.shape)
    return {"name": source.name, "shape": shape, "classes": len(source.classes), "digest": fingerprint(source)}


def _rebuilt(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that build the same network without asking for its first weights again."""
    weights = settings.get("weights")
    if weights is None:
        return settings
    from transformers import SegformerConfig

    config = SegformerConfig.from_pretrained(weights).to_diff_dict()
    named = ("id2label", "label2id", "architectures", "transformers_version")  # of the model that it came from
    return {"config": {key: value for key, value in config.items() if key not in named}}


def load_segmenter(out: Path | str) -> nn.Module:
    """Build the network of a finished training again; nothing is downloaded and no pickle is read."""
    path = Path(out) / "model.safetensors"
    if not path.exists():
        raise InputError(f"expected a finished training with {path.name}, got {path.parent}, which has none")
    tensors, note = load_tensors(path)
    with seeded(0):  # the weights drawn here are replaced at once
        network = build_segmenter(note["network"], len(note["classes"]), **note["settings"])
    network.load_state_dict(tensors)
    return network.eval()
