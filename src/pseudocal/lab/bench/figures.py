"""The paper's figures from the files of a suite, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.lab.bench.calibrators import find_compared
from pseudocal.lab.bench.figure_data import (
    real_and_pseudo,
    reliabilities,
    sweeps,
    temperatures,
    trainings,
)
from pseudocal.lab.bench.records import read_records, unique
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.task import Suite, Task
from pseudocal.metrics import Reliability

Form = Literal["svg", "png"]
FEW_POINTS = 30  # up to this number, points are drawn large
TEMPERATURES = (0.5, 1, 2, 5, 10)  # where the axes have ticks
DOTS_PER_INCH = 100  # of what a vector graphic has as pixels


def draw_figures(
    suite: Suite,
    store: Store,
    folder: Path,
    *,
    form: Form = "svg",
    together: Sequence[str] = (),
) -> list[Path]:
    """Draw all figures that the suite has numbers for.

    Reliability diagrams show the first pair and seed only. Those of the real and the pseudo target
    are in one diagram (Figure 1b of the paper).

    `chosen_tasks` makes a suite of some pairs or methods.

    Args:
        suite: the suite.
        store: its folder.
        folder: the folder of the figures.
        form: the format of the figures.
        together: calibrators whose reliability is drawn in one diagram (Figure 3 of the paper);
            none to draw a diagram for each calibrator.

    """
    for name in together:
        if name not in suite.calibrators:
            known = ", ".join(suite.calibrators)
            raise InputError(f"expected calibrators among {known}, got {name!r}")
    plt = pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []

    def save(name: str, figure: Any) -> None:
        path = folder / f"{suite.name}-{name}.{form}"
        figure.tight_layout()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(path, metadata=metadata, dpi=DOTS_PER_INCH)
        plt.close(figure)
        drawn.append(path)

    records = read_records(suite, store)
    plain = [name for name in suite.calibrators if not name.startswith("lambda-")]
    for task in _first_of_each_method(suite, store):
        draw = _together if together else _side_by_side
        found = _titled_reliabilities(task, together or plain, store)
        save(f"reliability-{task.method}", draw(plt, found, f"{task.method}, {task.pair}"))
        if (store.folder(task) / "mixup" / "pseudocal.npz").exists():
            both = real_and_pseudo(task, store)
            save(f"pseudo-{task.method}", _together(plt, both, f"{task.method}, {task.pair}"))
    curves = trainings(suite.tasks, store)
    if curves:
        save("training", _training_figure(plt, curves))
    swept = sweeps(records)
    fitted = temperatures(records)
    if swept:
        save("lambda", _lambda_figure(plt, swept))
    elif fitted:
        save("temperatures", _temperature_figure(plt, fitted))
    return drawn


def chosen_tasks(suite: Suite, pair: str | None, method: str | None) -> Suite:
    """Keep the tasks of one pair of domains, of one method, or of both, and rename the suite.

    >>> suite = Suite("s", (Task("emoji", "noto", "fluent"), Task("emoji", "fluent", "noto")), ())
    >>> chosen = chosen_tasks(suite, "fluent->noto", None)
    >>> chosen.name, [task.pair for task in chosen.tasks]
    ('s-fluent-noto', ['fluent->noto'])

    Args:
        suite: the suite.
        pair: the source and the target, with "->" or ":" between them; None for all.
        method: the method; None for all.

    """
    tasks = suite.tasks
    name = suite.name
    if pair is not None:
        asked = pair.replace(":", "->")
        tasks = tuple(task for task in tasks if task.pair == asked)
        if not tasks:
            known = ", ".join(unique(task.pair for task in suite.tasks))
            raise InputError(f"expected a pair among {known}, got {pair!r}")
        name += "-" + asked.replace("->", "-")
    if method is not None:
        known = ", ".join(unique(task.method for task in tasks))
        tasks = tuple(task for task in tasks if task.method == method)
        if not tasks:
            raise InputError(f"expected a method among {known}, got {method!r}")
        name += f"-{method}"
    return replace(suite, name=name, tasks=tasks)


def _first_of_each_method(suite: Suite, store: Store) -> list[Task]:
    done = [task for task in suite.tasks if store.scores(task)]
    return [
        next(task for task in done if task.method == method)
        for method in unique(task.method for task in done)
    ]


def _titled_reliabilities(task: Task, names: Sequence[str], store: Store) -> dict[str, Reliability]:
    found = reliabilities(task, names, store)
    return {find_compared(name).title: each for name, each in found.items()}


def _together(plt: Any, found: dict[str, Reliability], title: str) -> Any:
    """Draw the accuracy against the confidence of all in one diagram."""
    figure, ax = plt.subplots(figsize=(4.2, 4.0))
    ax.plot([0, 1], [0, 1], color="0.6", lw=1, label="perfect")
    for name, reliability in found.items():
        filled = reliability.count > 0
        ax.plot(
            reliability.confidence[filled],
            reliability.accuracy[filled],
            "o-",
            ms=3,
            lw=1,
            label=f"{name}, ECE {reliability.ece:.1%}",
        )
    ax.set(title=title, xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    ax.legend(fontsize=7)
    return figure


def _side_by_side(plt: Any, found: dict[str, Reliability], title: str) -> Any:
    """Draw small reliability diagrams.

    Accuracy against confidence, the diagonal, and the fraction of rows per bin.
    """
    columns = min(5, len(found))
    rows = -(-len(found) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.5 * columns, 2.4 * rows + 1), sharex=True, sharey=True
    )
    flat = np.atleast_1d(axes).ravel()
    for ax, (name, r) in zip(flat, found.items(), strict=False):
        filled = r.count > 0
        fraction = r.count / r.count.sum()
        ax.stairs(fraction, r.edges, fill=True, color="0.85", label="fraction of rows")
        ax.plot([0, 1], [0, 1], color="0.6", lw=1)
        ax.plot(
            r.confidence[filled],
            r.accuracy[filled],
            "o-",
            ms=3,
            lw=1,
            color="tab:blue",
            label="accuracy",
        )
        halves = (0.0, 0.5, 1.0)
        ax.set(xlim=(0, 1), ylim=(0, 1), xticks=halves, yticks=halves)
        ax.set_title(f"{name}\nECE {r.ece:.1%}", fontsize=9)
    _finish_grid(flat, len(found), columns)
    flat[0].legend(fontsize=6)
    figure.supxlabel("confidence")
    figure.supylabel("accuracy")
    figure.suptitle(title)
    return figure


def _training_figure(plt: Any, found: dict[str, Any]) -> Any:
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.4 * columns, 2.6 * rows), squeeze=False)
    for ax, (method, curve) in zip(axes.ravel(), found.items(), strict=False):
        ax.plot(curve.steps, 100 * curve.error, color="tab:blue", label="error, %")
        twin = ax.twinx()
        twin.plot(curve.steps, curve.nll, color="tab:red", ls="--", label="NLL")
        ax.set(title=method, xlabel="step")
        ax.set_ylabel("error, %", color="tab:blue")
        twin.set_ylabel("NLL", color="tab:red")
    for ax in axes.ravel()[len(found) :]:
        ax.set_axis_off()
    return figure


def _lambda_figure(plt: Any, found: dict[str, Any]) -> Any:
    figure, axes = plt.subplots(
        1, len(found), figsize=(3.2 * len(found), 2.8), sharey=True, squeeze=False
    )
    for ax, (method, curves) in zip(axes[0], found.items(), strict=True):
        for labels, curve in curves.items():
            ax.errorbar(
                curve.lams,
                100 * curve.mean,
                100 * curve.sd,
                capsize=2,
                marker="o",
                ms=3,
                label=labels,
            )
        ax.set(title=method, xlabel="λ, the larger part")
    axes[0, 0].set_ylabel("ECE, %, mean and sd over tasks")
    axes[0, 0].legend(title="labels")
    return figure


def _temperature_figure(plt: Any, found: dict[str, Any]) -> Any:
    columns = min(5, len(found))
    rows = -(-len(found) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(2.2 * columns, 2.1 * rows + 0.5),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for ax, (name, (best, own)) in zip(axes.ravel(), found.items(), strict=False):
        low = min(best.min(), 0.3)
        high = max(best.max(), 10.0)
        ax.plot([low, high], [low, high], color="0.6", lw=1)
        few = len(best) <= FEW_POINTS
        points = {"ms": 9, "alpha": 0.8} if few else {"ms": 3, "alpha": 0.5, "rasterized": True}
        ax.plot(best, np.clip(own, low, high), ".", **points)
        ax.set_title(find_compared(name).title, fontsize=8)
        ax.set(xscale="log", yscale="log")
        ax.minorticks_off()
        ax.set_xticks(TEMPERATURES, [f"{t:g}" for t in TEMPERATURES])
        ax.set_yticks(TEMPERATURES, [f"{t:g}" for t in TEMPERATURES])
    _finish_grid(axes.ravel(), len(found), columns)
    figure.supxlabel("temperature of the oracle")
    figure.supylabel("temperature found")
    return figure


def _finish_grid(axes: Any, used: int, columns: int) -> None:
    """Remove unused panels; the lowest used one of each column has numbers on its axis."""
    for ax in axes[used:]:
        ax.set_axis_off()
    for ax in axes[max(0, used - columns) : used]:
        ax.tick_params(labelbottom=True)


def pyplot() -> Any:
    """Set up matplotlib to write files: no window, and the same bytes for the same numbers."""
    mpl = require("matplotlib", "bench")
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pseudocal"
    return require("matplotlib.pyplot", "bench")
