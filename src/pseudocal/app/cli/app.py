"""The commands. Each one parses its options, calls a job and prints the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pseudocal.app.cli.bench import bench
from pseudocal.app.cli.errors import VERDICT_CODES
from pseudocal.app.cli.lab import lab
from pseudocal.app.cli.options import (
    EPILOG,
    check_alone,
    cropping,
    fraction,
    names_in,
    normalisation,
    numbers,
    option,
    resizing,
    words,
)
from pseudocal.app.cli.printing import show_progress, summary, summary_lines
from pseudocal.app.cli.scoring import scoring
from pseudocal.app.jobs.answers import TEMPLATE, ask_about
from pseudocal.app.jobs.job import DrawnBy, Job, Result, read_job
from pseudocal.app.jobs.pipeline import job_steps, refine_steps
from pseudocal.app.jobs.saved_outputs import keep_outputs
from pseudocal.app.report.predictions import Target
from pseudocal.arrays import InputError
from pseudocal.batches import DEFAULT_BATCH_SIZE
from pseudocal.calibrators import PseudoCal
from pseudocal.calibrators.calibration import versions

DEFAULT = PseudoCal()
BY_VERDICT = "end with 0: apply, 10: already calibrated, by answers, 11: caution, 12: do not apply"

app = typer.Typer(
    help="Calibrate classifiers on unlabelled data from the domain they are used in.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


app.add_typer(bench, name="bench")
app.add_typer(scoring)
app.add_typer(lab)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pseudocal {versions()['pseudocal']}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Options that come before the name of a command."""


@app.command(epilog=EPILOG, short_help="Calibrate a model on unlabelled data; write a report.")
def calibrate(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            help="ONNX, .pt2, TorchScript, skops, Hugging Face, hf:owner/name, state dict, or module:function"
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(
            help="folder or list of images, .npy, .npz, .csv, .parquet, or - for paths; "
            "with --ray also a folder of .npy, .npz or .parquet shards, a pattern, or an address such as s3://..."
        ),
    ] = None,
    out: Annotated[Path | None, option("--out", "-o", help="folder for the results")] = None,
    job_file: Annotated[
        Path | None,
        option("--job", metavar="FILE", help="do the job of a file, such as OUT/job.toml, again"),
    ] = None,
    lam: Annotated[
        float, option(help="weight of the larger input", show_default=True)
    ] = DEFAULT.lam,
    seed: Annotated[int, option(help="random seed", show_default=True)] = DEFAULT.seed,
    second_opinion: Annotated[
        list[str] | None,
        option(
            metavar="MODEL2",
            help="another model of the same classes, surrogate[:BACKBONE], zero-shot:FOLDER; repeatable",
        ),
    ] = None,
    trust_model: Annotated[
        bool,
        option(
            "--trust-model", help="run code: .pt2 and TorchScript files, and what a job file names"
        ),
    ] = False,
    architecture: Annotated[
        str | None, option(help="state dicts: resnet34, resnet50, resnet101, vit-b16")
    ] = None,
    estimator: Annotated[
        Literal["auto", "mixup", "agreement"],
        option(
            help="fit T on mixup samples or agreement with MODEL2; auto: agreement if usable",
            show_default=True,
        ),
    ] = "auto",
    tolerance: Annotated[
        float | None, option(help="stop mixing at this standard error of log T")
    ] = None,
    max_samples: Annotated[
        int | None, option(min=2, help="use at most this many inputs, drawn at random")
    ] = None,
    pixels: Annotated[
        int, option(min=0, help="segmentation: pixels per image; 0: all", show_default=True)
    ] = 20_000,
    batch_size: Annotated[
        int | None,
        option(
            min=2,
            help=f"inputs per forward pass [default: {DEFAULT_BATCH_SIZE}; large segmenters: what fits in memory]",
        ),
    ] = None,
    device: Annotated[str, option(help="cpu, cuda, cuda:1 ...", show_default=True)] = "cpu",
    workers: Annotated[
        int, option(min=0, help="threads that read inputs, or workers of --ray; 0: one per core")
    ] = 0,
    ray: Annotated[
        str | None, option(metavar="[ADDRESS]", help="run on a Ray cluster, or on a new local one")
    ] = None,
    size: Annotated[
        str | None, option(help="images: what the model takes, 224 or HEIGHTxWIDTH")
    ] = None,
    resize: Annotated[
        str | None,
        option(metavar="N", help="images: shorter side before the crop; or: crop, stretch"),
    ] = None,
    crop: Annotated[
        str | None, option(help="images: the centre that is cut out, 224 or HEIGHTxWIDTH")
    ] = None,
    crop_pct: Annotated[
        float | None, option(help="images: share left by the crop, as in timm: 0.875")
    ] = None,
    interpolation: Annotated[
        str | None, option(help="images: bilinear, bicubic, nearest, lanczos ...")
    ] = None,
    preprocess: Annotated[
        str | None,
        option(help="images: imagenet, zero-one, minus-one-one, or MEAN/STD after scaling to 0..1"),
    ] = None,
    mean: Annotated[str | None, option(help="images: 0.485,0.456,0.406")] = None,
    std: Annotated[str | None, option(help="images: 0.229,0.224,0.225")] = None,
    layout: Annotated[
        Literal["nchw", "nhwc"] | None, option(help="images: channels first or last")
    ] = None,
    second_size: Annotated[
        str | None, option(help="images of MODEL2, if other: 224 or HEIGHTxWIDTH")
    ] = None,
    second_preprocess: Annotated[
        str | None, option(help="images of MODEL2, if other: as --preprocess")
    ] = None,
    text: Annotated[
        str | None,
        option(metavar="COLUMN", help="tables: the column of texts, for a model of texts"),
    ] = None,
    features: Annotated[str | None, option(help="tables: the columns to use, a,b,c")] = None,
    field: Annotated[str | None, option(help=".npz: the array to use")] = None,
    output: Annotated[str | None, option(help="ONNX: the tensor that holds the logits")] = None,
    outputs: Annotated[
        Literal["logits", "probabilities"] | None, option(help="what the model returns")
    ] = None,
    binary: Annotated[
        bool, option("--binary", help="one number per input, for two classes")
    ] = False,
    classes: Annotated[Path | None, option(help="text file of class names, one per line")] = None,
    labels: Annotated[Path | None, option(help="labels, for evaluation only")] = None,
    max_bad: Annotated[
        str, option(help="fraction of inputs that may be unreadable", show_default=True)
    ] = "1%",
    predict: Annotated[
        Literal["all", "seen"], option(help="inputs to predict after an early stop")
    ] = "all",
    table: Annotated[
        Literal["parquet", "csv"] | None, option("--format", help="format of the predictions")
    ] = None,
    keep_logits: Annotated[
        bool, option("--keep-logits/--no-logits", help="in OUT, as ask and refine need them")
    ] = True,
    answers: Annotated[
        Path | None, option(metavar="FILE", help="a person's answers to the questions of ask")
    ] = None,
    labels_are: Annotated[
        DrawnBy, option(help="how the answered inputs were drawn", show_default=True)
    ] = "ask",
    quiet: Annotated[bool, option("--quiet", "-q", help="print errors only")] = False,
    as_json: Annotated[bool, option("--json", help="print the result as JSON")] = False,
    exit_code: Annotated[bool, option("--exit-code", help=BY_VERDICT)] = False,
) -> None:
    """Calibrate MODEL on unlabelled DATA; write a calibrated model, predictions and a report."""
    if job_file is not None:
        check_alone(
            context, "job_file", {"out", "trust_model", "quiet", "as_json", "exit_code", "job_file"}
        )
        job = read_job(job_file, out=out, trust=trust_model)
        _end(
            show_progress(job_steps(job), quiet=quiet),
            quiet=quiet,
            as_json=as_json,
            exit_code=exit_code,
        )
        return
    if model is None or data is None or out is None:
        raise typer.BadParameter("expected MODEL, DATA and --out, or --job FILE")
    image_files = resizing(resize) | cropping(size, crop) | normalisation(preprocess)
    more = {"mean": numbers(mean), "std": numbers(std), "layout": layout, "crop_pct": crop_pct}
    image_files |= {
        k: v for k, v in (more | {"interpolation": interpolation}).items() if v is not None
    }
    job = Job(
        model=model,
        data=data,
        out=out,
        method=PseudoCal(
            lam=lam,
            seed=seed,
            tolerance=tolerance,
            pixels_per_image=pixels or None,
            estimator=estimator,
        ),
        preprocessing=image_files,
        second_preprocessing=cropping(second_size, None) | normalisation(second_preprocess),
        output=output,
        outputs=outputs,
        binary=binary,
        features=words(features),
        text=text,
        field=field,
        classes=names_in(classes),
        labels=labels,
        device=device,
        workers=workers,
        batch_size=batch_size,
        max_samples=max_samples,
        max_bad=fraction(max_bad),
        predict=predict,
        table=table,
        keep_logits=keep_logits,
        answers=answers,
        drawn_by=labels_are,
        ray=ray,
        second_opinion=tuple(second_opinion or ()),
        trust=trust_model,
        architecture=architecture,
    )
    _end(
        show_progress(job_steps(job), quiet=quiet),
        quiet=quiet,
        as_json=as_json,
        exit_code=exit_code,
    )


ASKED_ABOUT = (
    "folder that `calibrate` wrote, or saved outputs of any model: .npy, .npz, .csv or .parquet"
)
OUT_OF_OUTPUTS = (
    "saved outputs: folder for the results [default: the name of the file without its ending]"
)
SHOWN = "saved outputs: what the inputs are, a table or a text file with one input per line"


@app.command("ask", epilog=EPILOG, short_help="Write a page with questions to a person.")
def ask_person(
    about: Annotated[Path, typer.Argument(metavar="OUT|OUTPUTS", help=ASKED_ABOUT)],
    n: Annotated[
        int, option("-n", min=1, help="how many inputs to ask about", show_default=True)
    ] = 50,
    out: Annotated[Path | None, option("--out", "-o", help=OUT_OF_OUTPUTS)] = None,
    inputs: Annotated[Path | None, option(metavar="FILE", help=SHOWN)] = None,
    outputs: Annotated[
        Literal["logits", "probabilities"] | None, option(help="what the file of outputs holds")
    ] = None,
    binary: Annotated[
        bool, option("--binary", help="saved outputs: one number per row, for two classes")
    ] = False,
    field: Annotated[str | None, option(help=".npz: the array to use")] = None,
    classes: Annotated[Path | None, option(help="text file of class names, one per line")] = None,
    trust_paths: Annotated[
        bool,
        option(
            "--trust-paths", help="read files that OUT names elsewhere, if somebody else wrote OUT"
        ),
    ] = False,
) -> None:
    """Write questions to a person: a page to open in a browser, and a table to fill in."""
    saved = {"inputs": inputs, "outputs": outputs, "binary": binary, "field": field}
    names = names_in(classes)
    folder = _folder_of(about, out, saved | ({"classes": names} if about.is_file() else {}))
    page = ask_about(folder, n, classes=names, trust_paths=trust_paths)
    typer.echo(f"{page}: {n:,} questions; open it in a browser, answer, save answers.csv")
    typer.echo(f"{folder / TEMPLATE}: the same as a table, to fill in elsewhere")
    if not Target.load(folder).classes:
        typer.echo("the classes are asked for by number: give --classes FILE to show names")
    typer.echo(f"then: pseudocal refine {folder} answers.csv")


@app.command("refine", epilog=EPILOG, short_help="Use the answers: temperature, model and report.")
def refine_result(
    about: Annotated[Path, typer.Argument(metavar="OUT|OUTPUTS", help=ASKED_ABOUT)],
    answers: Annotated[
        Path, typer.Argument(help="table with the columns file and label, of pixels also y and x")
    ],
    out: Annotated[Path | None, option("--out", "-o", help=OUT_OF_OUTPUTS)] = None,
    inputs: Annotated[Path | None, option(metavar="FILE", help=SHOWN)] = None,
    outputs: Annotated[
        Literal["logits", "probabilities"] | None, option(help="what the file of outputs holds")
    ] = None,
    binary: Annotated[
        bool, option("--binary", help="saved outputs: one number per row, for two classes")
    ] = False,
    field: Annotated[str | None, option(help=".npz: the array to use")] = None,
    classes: Annotated[Path | None, option(help="text file of class names, one per line")] = None,
    labels_are: Annotated[
        DrawnBy, option(help="how the answered inputs were drawn", show_default=True)
    ] = "ask",
    trust_model: Annotated[
        bool,
        option("--trust-model", help="open .pt2 and TorchScript again: such files can run code"),
    ] = False,
    trust_paths: Annotated[
        bool,
        option(
            "--trust-paths", help="read files that OUT names elsewhere, if somebody else wrote OUT"
        ),
    ] = False,
    device: Annotated[str, option(help="cpu, cuda, cuda:1 ...", show_default=True)] = "cpu",
    quiet: Annotated[bool, option("--quiet", "-q", help="print errors only")] = False,
    as_json: Annotated[bool, option("--json", help="print the result as JSON")] = False,
    exit_code: Annotated[bool, option("--exit-code", help=BY_VERDICT)] = False,
) -> None:
    """Bring OUT up to date with a person's ANSWERS.

    Temperature, calibrated model, predictions and report.
    """
    saved = {
        "inputs": inputs,
        "outputs": outputs,
        "binary": binary,
        "field": field,
        "classes": names_in(classes),
    }
    folder = _folder_of(about, out, saved)
    consent = {"trust": trust_model, "trust_paths": trust_paths}
    steps = refine_steps(folder, answers, drawn_by=labels_are, device=device, **consent)
    _end(show_progress(steps, quiet=quiet), quiet=quiet, as_json=as_json, exit_code=exit_code)


def _folder_of(about: Path, out: Path | None, saved: dict[str, Any]) -> Path:
    """The folder to ask about; outputs that were saved in a file get one of their own."""
    if about.is_file():
        return keep_outputs(about, about.with_suffix("") if out is None else out, **saved)
    given = [name for name, value in {"out": out, **saved}.items() if value]
    if given:
        raise InputError(f"expected a file of saved outputs with --{given[0]}, got {about}")
    return about


def _end(result: Result, *, quiet: bool, as_json: bool, exit_code: bool) -> None:
    """Print the result, and end with the exit code of its verdict if that is asked for."""
    if as_json:
        typer.echo(json.dumps(summary(result.report, result.out)))
    elif not quiet:
        typer.echo("\n".join(summary_lines(result.report, result.out)))
    if exit_code:
        raise typer.Exit(VERDICT_CODES[result.report.verdict or "apply"])
