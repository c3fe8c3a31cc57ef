"""Train a segmenter on labelled source images, without adaptation.

trained = train_segmenter(source, SegmenterRun("runs/noto"))
model = trained.load()      # images with values 0 to 255 in, logits for every pixel out
PseudoCal().fit(model, target.inputs)
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.lab.adapt.devices import autocast, deterministic, on_device
from pseudocal.lab.adapt.method import Moment, Preset, ReportProgress, Update, Updates
from pseudocal.lab.adapt.runs import (
    CHECKPOINT,
    DescentPlan,
    descend,
    finish_run,
    own_folder,
    seeded,
    start_run,
)
from pseudocal.lab.adapt.tensors import (
    SOURCE,
    Tensors,
    batch_numbers,
    load_tensors,
    read_ahead,
    save_tensors,
)
from pseudocal.lab.data import Scenes
from pseudocal.lab.data.fingerprint import fingerprint
from pseudocal.lab.segmentation.networks import build_segmenter
from pseudocal.lab.settings import Precision
from pseudocal.maps import IGNORED


@dataclass(frozen=True, eq=False)
class Masked:
    """A batch of images with the class of each pixel."""

    images: Tensor  # (n, 3, height, width)
    masks: Tensor  # (n, height, width)


class PixelCrossEntropy(nn.Module):
    """Cross-entropy of every pixel that is not ignored, at the size of the masks.

    Half of the images are mirrored.

    Args:
        precision: what the network computes in where torch does so safely.

    """

    def __init__(self, *, precision: Precision = "single") -> None:
        super().__init__()
        self.precision = precision

    def steps(self, network: nn.Module, batch: Masked, now: Moment) -> Updates:
        """One step."""
        mirrored = (torch.rand(len(batch.images), 1, 1) < 0.5).to(batch.images.device)
        images = torch.where(mirrored[..., None], batch.images.flip(-1), batch.images)
        masks = torch.where(mirrored, batch.masks.flip(-1), batch.masks)
        with autocast(images.device, self.precision):
            logits = network(images).float()
        if logits.shape[-2:] != masks.shape[-2:]:
            logits = F.interpolate(logits, masks.shape[-2:], mode="bilinear", align_corners=False)
        yield Update(F.cross_entropy(logits, masks.long(), ignore_index=IGNORED))


@dataclass(frozen=True)
class TrainedSegmenter:
    """A finished training.

    Attributes:
        out: the folder of its files.
        seconds: how long it took.

    """

    out: Path
    seconds: float

    def load(self) -> nn.Module:
        """The network in evaluation mode."""
        return load_segmenter(self.out)


@dataclass(frozen=True, eq=False)
class SegmenterRun:
    """Where a training writes and how it runs.

    The paper's DeepLab has `lr=2.5e-3` and `backbone_scale=0.1`.

    Attributes:
        out: the folder of the model. A killed training resumes there; a finished one is returned at
            once.
        seed: the seed of the initial weights and the batches.
        iterations: the number of batches to train on.
        batch: the number of images per batch.
        lr: the learning rate at the start.
        decay: the weight decay.
        backbone_scale: the backbone's learning rate relative to the head's.
        checkpoint_every: the number of iterations between checkpoints.
        device: the device of torch: "cpu", "cuda", "cuda:1", ...
        precision: what the network is trained in where torch does so safely: "mixed" is bfloat16,
            "float16" has scaled gradients.
        progress: called with a `TrainingProgress` after each batch.

    """

    out: Path
    seed: int = 0
    iterations: int = 300
    batch: int = 16
    lr: float = 0.1
    decay: float = 5e-4
    backbone_scale: float = 1.0
    checkpoint_every: int = 100
    device: str = "cpu"
    precision: Precision = "single"
    progress: ReportProgress | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out))
        for name in ("iterations", "checkpoint_every", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"expected {name} of at least 1, got {getattr(self, name)}")


def train_segmenter(
    source: Scenes,
    run: SegmenterRun,
    *,
    network: str = "unet",
    settings: dict[str, Any] | None = None,
) -> TrainedSegmenter:
    """Train on all of `source`; the last iterate is kept.

    Other settings or another source in the same folder are refused. Files on disk are compared by
    name and size.

    Args:
        source: labelled scenes.
        run: where to write, the seed, the settings of the optimiser, and how to run.
        network: a name in `NETWORKS`.
        settings: arguments of the network, such as `{"width": 16}`.

    """
    settings = settings or {}
    if run.batch > len(source):
        raise InputError(
            f"expected a batch of at most the {len(source)} scenes of {source.name}, got "
            f"{run.batch}"
        )
    recipe = {
        name: getattr(run, name)
        for name in ("iterations", "batch", "lr", "decay", "backbone_scale")
    }
    asked = {
        "network": network,
        "settings": settings,
        "seed": run.seed,
        "source": _source_record(source),
        **recipe,
    }
    if run.precision != "single":  # absent from folders that were started before it existed
        asked["precision"] = run.precision
    with own_folder(run.out), deterministic(run.device):
        finished = start_run(run.out, asked | {"classes": list(source.classes)})
        if finished:
            return TrainedSegmenter(run.out, finished.seconds)
        started = time.perf_counter()
        with seeded(run.seed):
            model = build_segmenter(network, len(source.classes), **settings)
        on_device(model, run.device)
        _descend(model, source, run)
        note = {"network": network, "settings": _rebuilt(settings), "classes": list(source.classes)}
        save_tensors(
            run.out / "model.safetensors", model.state_dict(), json.loads(json.dumps(note))
        )
        return TrainedSegmenter(
            run.out, finish_run(run.out, [], time.perf_counter() - started).seconds
        )


def _descend(model: nn.Module, source: Scenes, run: SegmenterRun) -> None:
    images = Tensors(source.inputs, run.device)
    masks = Tensors(source.masks, run.device)
    on_disk = not isinstance(source.inputs, np.ndarray)

    def read(step: int) -> tuple[Tensor, Tensor]:
        numbers = batch_numbers(len(source), run.batch, run.seed, SOURCE, step)
        return images.staged(source.inputs[numbers]), masks.staged(source.masks[numbers])

    def draw(first: int) -> Generator[Masked, None, None]:
        steps = read_ahead(read, first) if on_disk else map(read, count(first))
        for x, y in steps:
            yield Masked(images.placed(x), masks.placed(y))

    plan = DescentPlan(
        Preset(PixelCrossEntropy, batch=run.batch, lr=run.lr, decay=run.decay, schedule="poly"),
        run.seed,
        run.iterations,
        run.out / CHECKPOINT,
        checkpoint_every=run.checkpoint_every,
        report=run.progress,
        stage="segmenter",
        backbone_scale=run.backbone_scale,
        device=run.device,
        precision=run.precision,
        log=run.out,
    )
    method = PixelCrossEntropy(precision=run.precision)
    descend(model, method, draw, plan)  # type: ignore[arg-type]


def _source_record(source: Scenes) -> dict[str, Any]:
    """Return what identifies a source."""
    shape = list(source.inputs.shape)
    return {
        "name": source.name,
        "shape": shape,
        "classes": len(source.classes),
        "digest": fingerprint(source),
    }


def _rebuilt(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings that build the same network without its initial weights."""
    weights = settings.get("weights")
    if weights is None:
        return settings
    if Path(weights).is_file():  # a state dict: the network is the same without it
        return {name: value for name, value in settings.items() if name != "weights"}
    config = (
        require("transformers", "adapt").SegformerConfig.from_pretrained(weights).to_diff_dict()
    )
    # these are about the model that the weights came from
    dropped = ("id2label", "label2id", "architectures", "transformers_version")
    return {"config": {key: value for key, value in config.items() if key not in dropped}}


def load_segmenter(out: Path | str) -> nn.Module:
    """Load the network of a finished training; nothing is downloaded and no pickle is read.

    Args:
        out: the folder of the training.

    """
    path = Path(out) / "model.safetensors"
    if not path.exists():
        raise InputError(
            f"expected a finished training with {path.name}, got {path.parent}, which has none"
        )
    tensors, note = load_tensors(path)
    with seeded(0):  # the weights drawn here are replaced at once
        network = build_segmenter(note["network"], len(note["classes"]), **note["settings"])
    network.load_state_dict(tensors)
    return network.eval()
