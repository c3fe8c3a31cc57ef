"""The commands on what is saved, which need no model.

Score outputs, calibrate them, draw and compare reports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from pseudocal.app.cli.options import EPILOG, option
from pseudocal.app.cli.printing import score_lines
from pseudocal.app.jobs.saved_results import (
    apply_file,
    compare_reports,
    load_calibration,
    rewrite_report,
    score_files,
)
from pseudocal.arrays import InputError

OUTPUTS = (
    ".npy, .npz, .csv or .parquet of shape (n, classes); arrays also (n, classes, height, width)"
)

scoring = typer.Typer(rich_markup_mode=None)


@scoring.command(epilog=EPILOG, short_help="Score saved logits against labels.")
def evaluate(
    logits: Annotated[Path, typer.Argument(help=OUTPUTS)],
    labels: Annotated[
        Path,
        typer.Argument(
            help="classes: .npy, .csv, .parquet, or text with one per line; .npy of masks"
        ),
    ],
    calibration: Annotated[
        Path | None, option(help="calibration.json, to score before and after")
    ] = None,
    outputs: Annotated[
        Literal["logits", "probabilities"] | None, option(help="what the file holds")
    ] = None,
    field: Annotated[str | None, option(help=".npz: the array to use")] = None,
    as_json: Annotated[bool, option("--json", help="print the result as JSON")] = False,
) -> None:
    """Score saved LOGITS against LABELS: ECE, NLL, Brier and accuracy with intervals."""
    rows = score_files(logits, labels, calibration, outputs=outputs, field=field)
    typer.echo(json.dumps(rows) if as_json else "\n".join(score_lines(rows)))


@scoring.command(epilog=EPILOG)
def apply(
    calibration: Annotated[Path, typer.Argument(help="calibration.json")],
    logits: Annotated[Path, typer.Argument(help=OUTPUTS)],
    out: Annotated[Path, option("--out", "-o", help="file for the calibrated probabilities, .npy")],
    outputs: Annotated[
        Literal["logits", "probabilities"] | None, option(help="what the file holds")
    ] = None,
    field: Annotated[str | None, option(help=".npz: the array to use")] = None,
) -> None:
    """Turn saved LOGITS into calibrated probabilities."""
    shape = apply_file(load_calibration(calibration), logits, out, outputs=outputs, field=field)
    typer.echo(f"{out}: probabilities of shape {shape}")


@scoring.command(epilog=EPILOG, short_help="Draw a report again, or compare several.")
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="OUT...", help="folders that `calibrate` wrote")
    ],
    out: Annotated[
        Path | None, option("--out", "-o", help="page of a comparison [default: comparison.html]")
    ] = None,
) -> None:
    """Draw report.html of one OUT again; of two or more, write one page that compares them."""
    if len(folders) == 1:
        if out is not None:
            raise InputError(f"expected two or more folders with --out, got {folders[0]} alone")
        typer.echo(rewrite_report(folders[0]))
        return
    out = out or Path("comparison.html")
    for line in compare_reports(folders, out):
        typer.echo(
            f"{line.name}: {line.verdict}, T = {line.temperature}, confidence {line.confidence}, ECE {line.ece}"
        )
    typer.echo(out)
