"""A task, which is one cell of the benchmark's grid, and a suite, which is a list of tasks.

A task is plain data: which model is trained on which two domains, with which seed. Tasks that
differ in any setting have different folders, so results computed under other settings are never
reused by mistake.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from pseudocal.arrays import InputError
from pseudocal.lab.settings import Precision

Scenario = Literal["closed-set", "partial-set", "source-free"]
BUILT_IN = (
    "digits",
    "emoji",
    "emoji-groups",
    "scenes",
)  # arrays in memory: nothing is left to crop
MEMBERS = 3  # models per ensemble: those of the task's seed and of the two other seeds in its group
# Fields that came after stores existed. They are no part of a task's identity while they have these
# values, so that what was computed before is found.
LATER: dict[str, Any] = {
    "precision": "single",
    "batch": None,
    "lr": None,
    "augment": None,
    "checkpoint": None,
}
# Options that the training of a segmenter depends on.
SEGMENTER_TRAINING = ("batch", "lr", "height", "backbone_scale")


@dataclass(frozen=True)
class Task:
    """A model that is trained on a source, adapted to a target, and calibrated there.

    >>> task = Task("emoji", "noto", "fluent", method="mcc", seed=4)
    >>> task.pair, [member.seed for member in task.members()]
    ('noto->fluent', [3, 4, 5])
    >>> str(task.folder)
    'emoji/closed-set/noto-fluent/mcc/4-3fc0fa4b'

    Attributes:
        data: the data set, one of `pseudocal.lab.data.DATASETS` or, for segmentation, "scenes" or
            "street-scenes".
        source: the labelled domain that the model is trained on.
        target: the unlabelled domain that it is adapted to and calibrated on.
        scenario: "partial-set" keeps some of the target's classes; "source-free" hides the source
            from calibrators.
        method: how the model is adapted, one of `pseudocal.lab.adapt`.
        seed: the seed of the training, of the pairs, and of everything else that is random.
        preset: the name of the method's preset. Suites take the data set's if there is one.
        backbone: the network below the head; for segmentation, the whole network.
        weights: the initial weights of the backbone: a folder or hub id, "default" or "random".
        frozen: whether the backbone is frozen; None to freeze it if its weights are pretrained.
        width: the width of the bottleneck or of the U-Net; None for that of the preset.
        iterations: the number of training steps.
        options: options of the method; for segmentation, those of `segmentation_tasks.OPTIONS`.
        runner: "classification" or "segmentation".
        precision: "mixed" trains the network in bfloat16 where torch does so safely, "float16" in
            that, with scaled gradients; all else stays in float32.
        batch: how many inputs of each domain a step sees; None for the number of the preset.
        lr: the learning rate at the start; None for that of the preset.
        augment: whether a step sees random crops and mirror images; None for yes if the data is on
            disk and the backbone is trained.
        checkpoint: the state dict of a model that is trained already, with `backbone` as its
            architecture; `{seed}` in it stands for the seed. None to train one.

    """

    data: str
    source: str
    target: str
    scenario: Scenario = "closed-set"
    method: str = "source-only"
    seed: int = 0
    preset: str = "paper"
    backbone: str = "efficientnet-lite0"
    weights: str = "default"
    frozen: bool | None = None
    width: int | None = None
    iterations: int = 1000
    options: tuple[tuple[str, Any], ...] = ()
    runner: str = "classification"
    precision: Precision = "single"
    batch: int | None = None
    lr: float | None = None
    augment: bool | None = None
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        if self.scenario not in get_args(Scenario):
            raise InputError(
                f"expected a scenario among {', '.join(get_args(Scenario))}, got {self.scenario!r}"
            )
        if self.source == self.target:
            raise InputError(
                f"expected a source and a target that differ, got {self.source!r} twice"
            )
        if self.seed < 0:
            raise InputError(f"expected a seed of at least 0, got {self.seed}")
        if self.precision not in get_args(Precision):
            raise InputError(
                f"expected a precision among {', '.join(get_args(Precision))}, got "
                f"{self.precision!r}"
            )
        for name in ("iterations", "batch", "lr"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"expected {name} above zero, got {value}")

    @property
    def pair(self) -> str:
        """The two domains, as tables print them."""
        return f"{self.source}->{self.target}"

    @property
    def segments(self) -> bool:
        """Whether the model labels every pixel rather than every image."""
        return self.runner == "segmentation"

    @property
    def folder(self) -> PurePosixPath:
        """The folder of its files: a readable name, and a hash of all settings."""
        settings = json.dumps(self.identity(), sort_keys=True)
        digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
        pair = f"{self.source}-{self.target}"
        return PurePosixPath(self.data, self.scenario, pair, self.method, f"{self.seed}-{digest}")

    def identity(self) -> dict[str, Any]:
        """Return all settings that results depend on.

        What the hash in the folder's name is made of.
        """
        whole = asdict(self) | {"augment": self.augments or None}
        return {
            name: value
            for name, value in whole.items()
            if name not in LATER or value != LATER[name]
        }

    @property
    def augments(self) -> bool:
        """Whether a step sees random crops and mirror images."""
        if self.segments:  # mirrored in any case, and never cropped
            return False
        if self.augment is not None:
            return self.augment
        trained = self.frozen is False or (self.frozen is None and self.weights == "random")
        return trained and self.data not in BUILT_IN

    @property
    def training(self) -> Task:
        """The task whose folder has the model: the task itself, unless tasks share a model.

        A segmenter is trained on its source only, so all targets of a source and seed share one.

        >>> options = (("batch", 8), ("lr", 0.1))
        >>> noto = Task("scenes", "noto", "fluent", options=options, runner="segmentation")
        >>> noto.training.pair, noto.training == replace(noto, target="twemoji").training
        ('noto->any', True)
        """
        if not self.segments:
            return self
        options = dict(self.options)
        kept = tuple((name, options[name]) for name in SEGMENTER_TRAINING if name in options)
        return replace(self, target="any", options=kept)

    def of_seed(self, seed: int) -> Task:
        """Return the same task with another seed.

        Args:
            seed: the seed.

        """
        return replace(self, seed=seed)

    def members(self) -> list[Task]:
        """List the models of this task's ensemble.

        Seeds come in groups of three, 0 to 2, 3 to 5, and so on.

        So the ensemble of a task does not depend on how many seeds are run, and three seeds need no
        extra models.
        """
        first = self.seed // MEMBERS * MEMBERS
        return [replace(self, seed=seed) for seed in range(first, first + MEMBERS)]


@dataclass(frozen=True)
class Suite:
    """A list of tasks, and which calibrators to compare on each.

    Attributes:
        name: the name of the suite, and of its file in the store.
        tasks: the tasks.
        calibrators: names in `pseudocal.lab.bench.calibrators.COMPARED`, in the order of the
            tables.
        about: a description in one line.
        repeats: how often calibrators that draw random numbers are fitted to each model.

    """

    name: str
    tasks: tuple[Task, ...]
    calibrators: tuple[str, ...]
    about: str = ""
    repeats: int = 1

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise InputError(f"expected at least one repeat, got {self.repeats}")

    def to_dict(self) -> dict[str, Any]:
        """Return the suite as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Suite:
        """Rebuild a suite from `to_dict`.

        Args:
            content: JSON values, as `to_dict` returned them.

        """
        tasks = [
            Task(**{**task, "options": tuple((name, value) for name, value in task["options"])})
            for task in content["tasks"]
        ]
        return cls(
            content["name"],
            tuple(tasks),
            tuple(content["calibrators"]),
            content["about"],
            content.get("repeats", 1),  # stores from before have none
        )
