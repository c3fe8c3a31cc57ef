"""The commands that train models: `train` and `demo`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from pseudocal.app.cli.options import EPILOG, option
from pseudocal.app.cli.options import prefix as parse_prefix
from pseudocal.extras import MissingExtraError

DEMO_OUT = Path("demo-output")

lab = typer.Typer(rich_markup_mode=None)


@lab.command(epilog=EPILOG, short_help="Train a classifier that adapts to a target.")
def train(
    dataset: Annotated[
        str, typer.Argument(help="digits, emoji, office-31, office-home, visda-2017, ...")
    ],
    source: Annotated[str, option(help="domain with labels")],
    target: Annotated[str, option(help="domain whose labels training never sees")],
    out: Annotated[
        Path,
        option("--out", "-o", help="folder for the model and its outputs; a killed run resumes"),
    ],
    method: Annotated[
        str, option(help="source-only, mcc, bnm, cdan, atdoc, shot, ...", show_default=True)
    ] = "mcc",
    preset: Annotated[str, option(help="paper or official settings", show_default=True)] = "paper",
    backbone: Annotated[
        str | None, option(help="digits, efficientnet-lite0, resnet50, vit-b16, ...")
    ] = None,
    weights: Annotated[
        str, option(help="of the backbone: a state dict, folder or hub id, or random")
    ] = "default",
    frozen: Annotated[
        bool | None, option("--frozen/--end-to-end", help="[default: frozen if pretrained]")
    ] = None,
    iterations: Annotated[int, option(min=1, help="training steps", show_default=True)] = 1000,
    batch: Annotated[
        int | None, option(min=1, help="inputs of each domain per step [default: the preset's]")
    ] = None,
    lr: Annotated[
        float | None, option(help="learning rate at the start [default: the preset's]")
    ] = None,
    precision: Annotated[
        Literal["single", "mixed"], option(help="mixed: train the backbone in bfloat16")
    ] = "single",
    seed: Annotated[int, option(help="random seed", show_default=True)] = 0,
    root: Annotated[Path | None, option(help="folder of a benchmark's data")] = None,
    lists: Annotated[Path | None, option(help="folder of its list files [default: ROOT]")] = None,
    prefix: Annotated[
        str | None, option(metavar="OLD=NEW", help="how paths in lists begin, and begin here")
    ] = None,
    partial: Annotated[
        bool, option("--partial", help="target with a subset of the classes")
    ] = False,
    evaluate: Annotated[
        bool, option("--evaluate", help="score on the target's labels, for the record")
    ] = False,
    device: Annotated[str, option(help="cpu, cuda, cuda:1 ...", show_default=True)] = "cpu",
    quiet: Annotated[bool, option("--quiet", "-q", help="print errors only")] = False,
    as_json: Annotated[bool, option("--json", help="print the result as JSON")] = False,
) -> None:
    """Train an adapted classifier on the SOURCE and the unlabelled TARGET domain of DATASET."""
    from pseudocal.app.cli.training import (
        train_on,
        training_lines,
    )  # slow to import, and not needed by `calibrate`

    place = {"root": root, "lists": lists, "prefix": parse_prefix(prefix), "partial": partial}
    result = train_on(
        {"dataset": dataset, "source": source, "target": target, **place},
        {
            "method": method,
            "preset": preset,
            "batch": batch,
            "lr": lr,
            "weights": weights,
            "backbone": backbone,
        },
        {"out": out, "iterations": iterations, "seed": seed, "device": device, "frozen": frozen}
        | {"mixed": precision == "mixed"},
        evaluate=evaluate,
        quiet=quiet,
    )
    if as_json:
        typer.echo(json.dumps(result))
    elif not quiet:
        typer.echo("\n".join(training_lines(result)))


@lab.command(epilog=EPILOG, short_help="See it at work on built-in emoji, without a model.")
def demo(
    out: Annotated[
        Path, option("--out", "-o", help="folder for all results", show_default=True)
    ] = DEMO_OUT,
    quiet: Annotated[bool, option("--quiet", "-q", help="print the result only")] = False,
) -> None:
    """Train on one vendor's emoji, adapt to another's, calibrate without labels, compare, and write reports."""
    lines = _demo_lines()(out, quiet, lambda text: None if quiet else typer.echo(text, err=True))
    typer.echo("\n".join(lines))


def _demo_lines() -> Callable[..., Iterable[str]]:
    try:
        import torch  # noqa: F401  everything the demo needs comes with the same extra

        from pseudocal.app.cli.demo_table import demo_lines
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "demo") from error
    return demo_lines
