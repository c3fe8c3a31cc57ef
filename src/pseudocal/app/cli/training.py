"""`pseudocal train`: train an adapted model on two domains of a data set."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from pseudocal.app.cli.options import check_device
from pseudocal.app.cli.printing import Progress, progress, told_of_building
from pseudocal.extras import MissingExtraError
from pseudocal.files import check_writable


def train_on(
    data: dict[str, Any], model: dict[str, Any], run: dict[str, Any], *, evaluate: bool, quiet: bool
) -> dict[str, Any]:
    """Train, show the progress, and return the results."""
    try:
        import torch

        from pseudocal.lab.adapt import Choice, TrainingRun, train
        from pseudocal.lab.adapt.training import find_preset
        from pseudocal.lab.adapt.weights import about_weights
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "adapt") from error
    check_writable(Path(run["out"]))
    check_device(run["device"])
    preset = replace(find_preset(model["method"], model["preset"]), **_given(model, "batch", "lr"))
    backbone = model["backbone"] or (
        "digits" if data["dataset"] == "digits" else "efficientnet-lite0"
    )
    with told_of_building(quiet=quiet):
        source, target = _domains(**data)
    if not quiet and model["weights"] != "default":
        sys.stderr.write(about_weights(backbone, model["weights"]) + "\n")
    if backbone == "digits":
        torch.set_num_threads(
            1
        )  # such a small network gains nothing from threads, and is slowed on a busy machine
    with Stages(quiet=quiet) as stages:
        settings = TrainingRun(**run, progress=stages, evaluate=target if evaluate else None)
        choice = Choice(backbone, model["weights"])
        trained = train(
            source,
            target.unlabelled(),
            settings,
            method=model["method"],
            preset=preset,
            backbone=choice,
        )
    result = {"model": str(trained.out), "target": str(trained.target), "seconds": trained.seconds}
    if trained.curve:
        last = trained.curve[-1]
        result |= {"target_accuracy": 1 - last.error, "target_nll": last.nll}
    return result


def _domains(
    dataset: str, source: str, target: str, *, partial: bool, **place: Any
) -> tuple[Any, Any]:
    """Load the two domains; `place` says where a benchmark is."""
    from pseudocal.lab.data import (
        load,
        partial_set,
    )  # imported here: other commands import this file but need no data

    domains = list(
        load(dataset, *dict.fromkeys((source, target)), **_given(place, *place)).values()
    )
    return domains[0], partial_set(dataset, domains[-1]) if partial else domains[-1]


def _given(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return those of the named settings that the user gave."""
    return {name: settings[name] for name in names if settings[name] is not None}


def training_lines(result: dict[str, Any]) -> list[str]:
    """Return the lines to print after training.

    >>> training_lines({"model": "runs/a", "target": "runs/a/target.npz", "seconds": 3.2})
    ['runs/a: trained in 3 s', 'runs/a/target.npz: logits and features of the target']
    """
    lines = [f"{result['model']}: trained in {result['seconds']:.0f} s"]
    lines.append(f"{result['target']}: logits and features of the target")
    if "target_accuracy" in result:
        lines.append(
            f"target accuracy {result['target_accuracy']:.1%}, NLL {result['target_nll']:.3f} (labels used here only)"
        )
    return lines


class Stages:
    """A progress bar for each stage of a training, one after another."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._stage: str | None = None
        self._done = 0
        self._advance: Progress = lambda done: None
        self._open = ExitStack()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __call__(self, at: Any) -> None:
        """Show how far a stage is."""
        if at.stage != self._stage:
            self._open.close()
            bar = progress(at.total, quiet=self._quiet, what=at.stage, unit=f"done: {at.stage}")
            self._advance = self._open.enter_context(bar)
            self._stage, self._done = at.stage, 0
        self._advance(at.done - self._done)
        self._done = at.done
