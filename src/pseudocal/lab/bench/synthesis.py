"""The third stage: pseudo-target sets, each from the same pairs that `PseudoCal().fit(network, images)` would draw.

Inputs are row numbers here: what the network says of the real rows was written down before, and a synthesis that needs
images looks them up. So the real rows are predicted once for all syntheses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from pseudocal.arrays import InputError, Labelled, Logits, Predictor
from pseudocal.batches import take
from pseudocal.calibrators import PseudoCal, ensemble
from pseudocal.lab.adapt.files import save_arrays
from pseudocal.lab.analyses import LAMBDAS
from pseudocal.lab.bench.domains import domains_of
from pseudocal.lab.bench.heads import load_model, logits_of, of_images
from pseudocal.lab.bench.store import Store, read_arrays
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, seen
from pseudocal.predictors import as_predictor
from pseudocal.synthesis import STRATEGIES, Pairs, Strategy, apart, partners
from pseudocal.synthesis.mixup import mixup


@dataclass(frozen=True)
class Synthesis:
    """How a pseudo-target set is made: mixup of a share and with labels of a kind, or one of the alternatives."""

    title: str
    strategy: str = "PseudoCal"
    lam: float = 0.65
    labels: Literal["hard", "soft"] = "hard"
    together: bool = False  # of an ensemble


ABLATION = {name.lower(): Synthesis(name, name) for name in STRATEGIES if name != "PseudoCal"}
SWEEP = {
    f"lambda-{lam}-{labels}": Synthesis(f"λ = {lam}, {labels}", lam=lam, labels=labels)
    for lam in LAMBDAS
    for labels in ("hard", "soft")
}
SYNTHESES: dict[str, Synthesis] = {
    "pseudocal": Synthesis("PseudoCal"),
    "pseudo-ensemble": Synthesis("Pseudo-ensemble", together=True),
    **ABLATION,
    **SWEEP,
}


def synthesise(task: Task, name: str, store: Store) -> None:
    """Write `mixes/NAME.npz`."""
    how = SYNTHESES[name]
    tasks = task.members() if how.together else [task]
    logits = _joined([read_arrays(store.folder(each) / "target.npz")["logits"] for each in tasks])
    drawn: list[Pairs] = []  # of row numbers
    strategy = _mixup(task, tasks, how, store, drawn) if how.strategy == "PseudoCal" else _other(task, how, store)
    steps = PseudoCal(seed=task.seed).steps(logits.__getitem__, np.arange(len(logits)), strategy=strategy)
    parts = [step.mixes for step in steps if len(step.mixes)]
    if not parts:
        raise InputError(f"expected at least one row from {how.title}, got none of {len(logits)} pairs")
    columns = {"logits": [p.logits for p in parts], "labels": [p.labels for p in parts]}
    if drawn:
        columns |= {"first": [p.x for p in drawn], "second": [p.partner for p in drawn]}
    path = store.folder(task) / "mixes" / f"{name}.npz"
    save_arrays(path, **{key: np.concatenate(each) for key, each in columns.items()})


def _mixup(task: Task, tasks: list[Task], how: Synthesis, store: Store, drawn: list[Pairs]) -> Strategy:
    """Mixup whose forward pass was done beforehand, for all pairs of this seed; pairs told apart go into `drawn`."""
    view = View("mixed", how.lam, task.seed)
    mixed = _joined([logits_of(load_model(each, store), seen(each, view, store.root)) for each in tasks])
    partner = partners(len(mixed), seed=task.seed)

    def strategy(_: Predictor, pairs: Pairs, /, *, rng: np.random.Generator) -> Labelled:
        kept = apart(pairs)
        assert np.array_equal(partner[kept.x], kept.partner)
        drawn.append(kept)
        return mixup(lambda _: mixed[kept.x], kept, lam=how.lam, labels=how.labels)

    return strategy


def _other(task: Task, how: Synthesis, store: Store) -> Strategy:
    """An alternative of the paper's ablation, on images; ManifoldMix mixes what comes out of the backbone."""
    pixels = {"mean": 0.0, "std": 1 / 255}
    if how.strategy == "ManifoldMix":
        network = load_model(task, store)
        strategy = partial(STRATEGIES[how.strategy], module=network, layer="backbone")
        return _looked_up(strategy, as_predictor(network), seen(task, View(), store.root))
    strategy = partial(STRATEGIES[how.strategy], **pixels if how.strategy in ("MocoV2Aug", "RandAug") else {})
    return _looked_up(strategy, of_images(task, store), domains_of(task, store.root)[1].inputs)


def _looked_up(strategy: Callable[..., Labelled], predict: Predictor, inputs: Any) -> Strategy:
    def of_numbers(_: Predictor, numbers: Pairs, /, *, rng: np.random.Generator) -> Labelled:
        pairs = replace(numbers, rows=take(inputs, numbers.rows))
        return strategy(predict, pairs, rng=rng)

    return of_numbers


def _joined(logits: Sequence[Logits]) -> Logits:
    return ensemble(logits) if len(logits) > 1 else logits[0]
