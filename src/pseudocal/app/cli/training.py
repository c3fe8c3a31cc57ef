"""`pseudocal train`: train an adapted model on two domains of a data set."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pseudocal.app.cli.printing import Progress, progress, told_of_building
from pseudocal.extras import MissingExtraError
from pseudocal.files import check_writable


def train_on(
    dataset: str,
    source: str,
    target: str,
    *,
    root: Path | None,
    partial: bool,
    evaluate: bool,
    quiet: bool,
    **settings: Any,
) -> dict[str, Any]:
    """Train, show the progress, and return the results."""
    from pseudocal.lab.data import load, partial_set  # imported here: other commands import this file but need no data

    try:
        import torch

        from pseudocal.lab.adapt import TrainingRun, train
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "adapt") from error
    check_writable(Path(settings["out"]))
    with told_of_building(quiet=quiet):
        domains = list(load(dataset, *dict.fromkeys((source, target)), **({"root": root} if root else {})).values())
    source_domain, target_domain = domains[0], domains[-1]
    target_domain = partial_set(dataset, target_domain) if partial else target_domain
    chosen = {name: settings.pop(name) for name in ("method", "preset", "backbone")}
    if chosen["backbone"] == "digits":
        torch.set_num_threads(1)  # such a small network gains nothing from threads, and is slowed on a busy machine
    with Stages(quiet=quiet) as stages:
        run = TrainingRun(**settings, progress=stages, evaluate=target_domain if evaluate else None)
        trained = train(source_domain, target_domain.unlabelled(), run, **chosen)
    result = {"model": str(trained.out), "target": str(trained.target), "seconds": trained.seconds}
    if trained.curve:
        last = trained.curve[-1]
        result |= {"target_accuracy": 1 - last.error, "target_nll": last.nll}
    return result


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
