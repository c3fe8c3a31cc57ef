"""Development and held-out cases for `benchmarks/trust.py`: a model on a target with second opinions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

import numpy as np

from pseudocal import fit_temperature
from pseudocal.arrays import Labelled
from pseudocal.calibrators.agreement import (
    Agreement,
    Opinion,
    agreement_of,
    certain_errors,
    count_agreement,
    count_mistakes,
)
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.trust import Trust, consensus_from, judge
from pseudocal.lab.bench import Store, Task
from pseudocal.lab.bench.stages.predict import all_logits, load_classifier
from pseudocal.lab.bench.store import load_arrays
from pseudocal.lab.bench.suites import SMALL
from pseudocal.lab.bench.views import View, domains_of, network_inputs
from pseudocal.metrics import Outcomes, ece
from pseudocal.mixup import partners
from pseudocal.scaling import TemperatureScaling
from trust_surrogates import features_for, surrogate_of

VENDORS = ("noto", "twemoji", "openmoji", "fluent")
LAM = 0.65
SEEDS = 3


@dataclass(frozen=True, eq=False)
class Case:
    """One model on one target with second opinions.

    Attributes:
        family: The family that the task belongs to.
        task: The name of the task; models of several seeds share one.
        logits: The logits of the target.
        labels: Its labels, for scoring alone.
        mixup_samples: The labelled mixup samples.
        opinions: What each second model says.
        source: Labelled logits of the source, if there are any.
        surrogate: What a surrogate of the model says.

    """

    family: str
    task: str
    logits: np.ndarray
    labels: np.ndarray
    mixup_samples: Labelled
    opinions: tuple[Opinion, ...]
    source: Labelled | None = None
    surrogate: Opinion | None = None

    @cached_property
    def real(self) -> Labelled:
        """The logits, labelled with the predicted class."""
        return Labelled(self.logits, self.logits.argmax(axis=1))

    @cached_property
    def accuracy(self) -> float:
        """What the estimate is about."""
        return float((self.real.labels == self.labels).mean())

    @cached_property
    def agreements(self) -> list[Agreement]:
        """The agreement with each second model."""
        return [agreement_of(opinion, self.real) for opinion in self.opinions]

    @cached_property
    def surrogates(self) -> list[Agreement]:
        """The agreement with the surrogate."""
        return (
            []
            if self.surrogate is None
            else [replace(agreement_of(self.surrogate, self.real), surrogate=True)]
        )

    @cached_property
    def mixing(self) -> TemperatureScaling:
        """PseudoCal's temperature, from mixup samples."""
        return fit_temperature(
            self.mixup_samples.logits, self.mixup_samples.labels, weights=self.mixup_samples.weights
        )

    def found(self, opinions: int = 1) -> dict[str, TemperatureScaling]:
        """The temperature of each estimator."""
        consensus = consensus_from(self.agreements[:opinions], self.real)
        if consensus is None:
            return {"mixup": self.mixing}
        return {
            "mixup": self.mixing,
            "agreement": match_confidence(self.logits, consensus.accuracy, consensus.error),
        }

    def trust(self, used: str = "agreement", opinions: int = 1) -> Trust:
        """The verdict on a temperature, as `PseudoCal.conclude` has it."""
        found = self.found(opinions)
        used = used if used in found else "mixup"
        return judge(
            self.real,
            found,
            used,
            mixup_samples=len(self.mixup_samples),
            agreements=self.agreements[:opinions],
            consensus=consensus_from(self.agreements[:opinions], self.real),
        )

    def ece(self, temperature: float) -> float:
        """In points."""
        return 100 * ece(Outcomes.from_logits(self.logits / temperature, self.labels))


def case_of_logits(
    family: str,
    task: str,
    logits: Sequence[np.ndarray],
    mixed: Sequence[np.ndarray],
    partner: np.ndarray,
    labels: np.ndarray,
    source: Labelled | None = None,
    surrogate: Opinion | None = None,
) -> Case:
    """From what each model says of the target and of mixup samples of each row with its partner."""
    first, *others = logits
    own = first.argmax(axis=1)
    kept = np.flatnonzero(own != own[partner])
    predicted, opinions = mixed[0][kept].argmax(axis=1), []
    for other, other_mixed in zip(others, mixed[1:], strict=True):
        its = other.argmax(axis=1)
        wrong = certain_errors(
            predicted, [c[rows] for c in (own, its) for rows in (kept, partner[kept])]
        )
        same = (other_mixed[kept].argmax(axis=1) == predicted)[wrong]
        opinions.append(
            count_agreement(first, other) + count_mistakes(predicted[wrong], same, first.shape[1])
        )
    return Case(
        family,
        task,
        first,
        labels,
        Labelled(mixed[0][kept], own[kept]),
        tuple(opinions),
        source,
        surrogate,
    )


def stored_case(family: str, task: Task, store: Store, *, with_surrogate: bool = False) -> Case:
    """A model of the benchmark, with those of the other seeds.

    Mixup samples come from the features that all heads share.
    """
    tasks = [replace(task, seed=(task.seed + i) % SEEDS) for i in range(SEEDS)]
    logits = [load_arrays(store.folder(t) / "target.npz")["logits"] for t in tasks]
    images, view = domains_of(task, store)[1].inputs, View(LAM, task.seed)
    mixed = [all_logits(load_classifier(t, store), network_inputs(t, images, view)) for t in tasks]
    partner = partners(len(logits[0]), seed=task.seed)
    surrogate = None
    if with_surrogate:  # its features take much longer than all else
        features = [features_for(task, store, one) for one in (View(), view)]
        surrogate = surrogate_of(logits[0], mixed[0], partner, features, task.seed)
    val = store.folder(task) / "source_val.npz"
    source = load_arrays(val) if val.exists() else None
    return case_of_logits(
        family,
        f"{task.pair}, {task.method}",
        logits,
        mixed,
        partner,
        np.load(store.folder(task) / "target_labels.npy"),
        None if source is None else Labelled(source["logits"], source["labels"]),
        surrogate,
    )


def emoji(
    targets: tuple[str, ...], methods: tuple[str, ...], backbone: str = "efficientnet-lite0"
) -> list[Task]:
    """Tasks as the suite `emoji` has them, those of SHOT as `emoji-source-free` has them."""
    return [
        Task(
            "emoji",
            source,
            target,
            "source-free" if method == "shot" else "closed-set",
            method,
            seed,
            backbone=backbone,
            width=256,
            options=SMALL.get(method, ()),
        )
        for source, target in permutations(VENDORS, 2)
        if target in targets
        for method in methods
        for seed in range(SEEDS)
    ]


def digits(methods: tuple[str, ...]) -> list[Task]:
    """Tasks as the suite `digits` has them."""
    return [
        Task(
            "digits",
            source,
            target,
            method=method,
            seed=seed,
            backbone="digits",
            width=256,
            iterations=600,
        )
        for source, target in permutations(("mnist", "optdigits", "fonts"), 2)
        for method in methods
        for seed in range(SEEDS)
    ]


DEVELOPMENT = {
    "emoji, Lite0": emoji(("noto", "fluent"), ("source-only", "mcc", "bnm", "shot")),
    "emoji, Lite2": emoji(("noto", "fluent"), ("source-only", "mcc", "bnm"), "efficientnet-lite2"),
    "digits": digits(("source-only", "mcc", "bnm")),
}
HELD_OUT = {
    "emoji, Lite0": emoji(
        ("openmoji", "twemoji"), ("source-only", "mcc", "bnm", "atdoc", "cdan", "safn")
    ),
    "emoji, Lite2": emoji(
        ("openmoji", "twemoji"), ("source-only", "mcc", "bnm", "safn"), "efficientnet-lite2"
    ),
    "digits, other methods": digits(("atdoc", "cdan", "safn")),
}
