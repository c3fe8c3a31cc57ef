"""The command `pseudocal`. Each command parses its options, calls a function and prints the result.

`cli_bench.py` has the commands that train models: `train` and `bench`.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal, cast

import typer

from pseudocal.app.cli_bench import bench, train
from pseudocal.app.cli_watch import labelled_lines, watch
from pseudocal.app.errors import INTERRUPTED, USAGE, VERDICT_CODES, explain
from pseudocal.app.job import DEFAULT_METHOD, ImageSettings, Job, Sampling, read_job
from pseudocal.app.label_files import split_synonyms
from pseudocal.app.labelling import label as write_labelling_page
from pseudocal.app.models.files import OutputType
from pseudocal.app.monitor_folder import LABELLING, is_monitor
from pseudocal.app.monitor_labels import label_monitor, refine_monitor_steps
from pseudocal.app.options import (
    AsJson,
    Device,
    Quiet,
    check_alone,
    cropping,
    data_option,
    epilog,
    fraction,
    image_option,
    method_option,
    model_option,
    names_in,
    normalisation,
    numbers,
    one_file,
    option,
    output_option,
    performance_option,
    resizing,
    saved_option,
    second_option,
    table_option,
    with_address,
    without_none,
    words,
)
from pseudocal.app.outputs import SAVED, collect_outputs, compare_reports, load_calibration, redraw
from pseudocal.app.outputs import apply as apply_to_file
from pseudocal.app.outputs import evaluate as evaluate_files
from pseudocal.app.pipeline import Steps, calibrate_steps, refine_steps, saved_steps
from pseudocal.app.pipeline import threshold as find_threshold
from pseudocal.app.progress import (
    print_result,
    score_lines,
    show_progress,
    summary,
    summary_lines,
)
from pseudocal.app.records import to_plain
from pseudocal.app.render import Result
from pseudocal.app.run import LABEL_TABLE, THRESHOLD, Run
from pseudocal.app.thresholds import stored_labels, threshold_lines
from pseudocal.arrays import InputError
from pseudocal.batches import DEFAULT_BATCH_SIZE
from pseudocal.calibrators import PseudoCal
from pseudocal.calibrators.calibration import versions
from pseudocal.calibrators.wording import count
from pseudocal.extras import MissingExtraError
from pseudocal.scaling import TemperatureScaling

# the options that may stand beside --job, those of two saved outputs, and those of a monitor
PRINTED = {"quiet", "as_json", "exit_code"}
JOB_SETTINGS = {"job_file", "other_model", "other_data", "out", "trust_model", *PRINTED}
SAVED_SETTINGS = {
    *("model", "second_opinion", "classes", "out", "output_type", "binary", "field"),
    *PRINTED,
}
MONITOR_LABEL_SETTINGS = {"target", "n", "classes", "trust_paths"}
MONITOR_REFINE_SETTINGS = {"target", "labels", "trust_model", "trust_paths", "device", *PRINTED}
OF_RUN = (
    f"; after pseudocal refine {{monitor}} labels.csv, use it with the run {{monitor}}/{LABELLING}"
)
DEMO_OUT = Path("demo-output")
TO_LABEL = "{page}: {n:,} to label. Open it in a browser, label, and save labels.csv"
AS_TABLE = "{table}: the same inputs as a table, to label elsewhere"
EXPECTED = (
    "Image size .* exceeds limit",  # from Pillow; our own limit counts the file as unreadable
    "X does not have valid feature names",  # from scikit-learn; columns were selected by name
    r"\d+ of \d+ labels are -1",  # ours, for arrays; labels of a file are classes by name or "?"
)


# ------------------------------------------------------------------------------ running a command


def command() -> int:
    """Run `pseudocal` as a process of its own."""
    code = main()
    # saves a tenth of a second: the garbage collector need not visit all objects at exit
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pseudocal`, turn any error into one line, and return the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    for message in EXPECTED:
        warnings.filterwarnings("ignore", message=message)
    _end_like_ctrl_c()
    try:
        return _run(with_address([each for each in arguments if each != "--debug"]))
    except BaseException as error:
        if debug or isinstance(error, SystemExit):
            raise
        code, line = explain(error)
        sys.stderr.write(f"pseudocal: {line}\n")
        return code


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments or ["--help"], prog_name="pseudocal", standalone_mode=False)
    except typer.Abort:
        code = INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):  # usage errors have it, of any copy of click
            raise
        sys.stderr.write(f"pseudocal: {' '.join(error.format_message().split())}\n")
        return USAGE
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return int(code or 0)


def _end_like_ctrl_c() -> None:
    """Make SIGTERM clean up as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


# ------------------------------------------------------------------------------ options

app = typer.Typer(
    help="Calibrate classifiers with few labels or none.",
    epilog=epilog("pseudocal calibrate model.onnx images/ -o out/"),
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(bench, name="bench")

# options that several commands have
OutputTypeOption = Annotated[
    OutputType | None, model_option("what the model returns", "--output-type")
]
SavedType = Annotated[OutputType | None, saved_option("what the file contains", "--output-type")]
SavedField = Annotated[str | None, saved_option(".npz: the array to use", "--field")]
SavedBinary = Annotated[bool, saved_option("one number per row, for two classes", "--binary")]
SavedInputs = Annotated[
    Path | None,
    saved_option(
        "the inputs to show, a table or a text file with one input per line",
        "--inputs",
        metavar="FILE",
    ),
]
SavedOut = Annotated[
    Path | None,
    saved_option(
        "folder for the results (default: the file name without its ending)", "--out", "-o"
    ),
]
Classes = Annotated[Path | None, data_option("text file of class names, one per line", "--classes")]
SamplingOption = Annotated[
    Sampling,
    data_option(
        "how the labelled inputs were drawn: stratified (chosen by pseudocal label) or random",
        "--sampling",
        show_default=True,
    ),
]
TrustPaths = Annotated[
    bool,
    option(
        "--trust-paths",
        help="read files outside OUT that run.json refers to, even if somebody else wrote OUT",
    ),
]
ExitCode = Annotated[
    bool,
    output_option(
        "exit with 0: apply, 10: already calibrated (by labels), 11: caution, 12: do not apply",
        "--exit-code",
    ),
]
RunOrOutputs = Annotated[
    Path,
    typer.Argument(
        metavar="OUT|OUTPUTS",
        help="folder that calibrate or watch wrote, or saved outputs of any model: .npy, .npz, "
        ".csv, .parquet, or .jsonl with logprobs",
    ),
]
SavedLogits = Annotated[
    Path,
    typer.Argument(
        help=".npy, .npz, .csv or .parquet of shape (n, classes), .jsonl with logprobs; arrays also "
        "(n, classes, height, width)"
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pseudocal {versions()['pseudocal']}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, option("--version", help="print the version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that come before the name of a command."""


# ------------------------------------------------------------------------------ calibrate


@app.command(
    epilog=epilog("pseudocal calibrate model.onnx images/ -o out/ --second-opinion other.onnx"),
    short_help="Calibrate a model on unlabelled data; write a report.",
)
def calibrate(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            help="ONNX, .pt2, TorchScript, skops, XGBoost, LightGBM, CatBoost, Hugging Face, "
            "hf:owner/name, state dict, or module:function"
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(
            help="folder or list of images, .npy, .npz, .csv, .parquet, or - to read paths from "
            "standard input; with --ray also a folder of .npy, .npz or .parquet shards, a pattern, "
            "or an address such as s3://..."
        ),
    ] = None,
    job_file: Annotated[
        Path | None,
        data_option("take all settings from a file, such as OUT/job.toml", "--job", metavar="FILE"),
    ] = None,
    other_data: Annotated[
        str | None,
        data_option(
            "with --job: use this data instead of that in the file", "--data", metavar="DATA"
        ),
    ] = None,
    other_model: Annotated[
        str | None,
        data_option(
            "with --job: use this model instead of that in the file", "--model", metavar="MODEL"
        ),
    ] = None,
    classes: Classes = None,
    ground_truth: Annotated[Path | None, data_option("true classes, for evaluation only")] = None,
    labels: Annotated[
        Path | None,
        data_option("labels (a CSV file) of the inputs chosen by pseudocal label", metavar="FILE"),
    ] = None,
    sampling: SamplingOption = "stratified",
    max_samples: Annotated[
        int | None, data_option("use at most this many inputs, drawn at random", min=2)
    ] = None,
    max_bad: Annotated[
        str, data_option("fraction of inputs that may be unreadable", show_default=True)
    ] = "1%",
    logits_tensor: Annotated[
        str | None, model_option("ONNX: the output with the logits", metavar="NAME")
    ] = None,
    output_type: OutputTypeOption = None,
    binary: Annotated[
        bool, model_option("the model returns one number per input, for two classes", "--binary")
    ] = False,
    architecture: Annotated[
        str | None, model_option("state dicts: resnet34, resnet50, resnet101, vit-b16")
    ] = None,
    trust_model: Annotated[
        bool,
        model_option(
            "allow code to run: .pt2 and TorchScript files, and modules that a job file names",
            "--trust-model",
        ),
    ] = False,
    size: Annotated[str | None, image_option("size of the input, 224 or HEIGHTxWIDTH")] = None,
    resize: Annotated[
        str | None, image_option("shorter side before the crop; or: crop, stretch", metavar="N")
    ] = None,
    crop: Annotated[
        str | None, image_option("size of the centre crop, 224 or HEIGHTxWIDTH")
    ] = None,
    crop_pct: Annotated[
        float | None, image_option("fraction left by the crop, as in timm: 0.875")
    ] = None,
    interpolation: Annotated[
        str | None, image_option("how pixels are resized: bilinear, bicubic, nearest, lanczos ...")
    ] = None,
    preprocess: Annotated[
        str | None,
        image_option(
            "imagenet, zero-one, minus-one-one, zero-255, or MEAN/STD after scaling to 0..1"
        ),
    ] = None,
    mean: Annotated[
        str | None, image_option("subtracted from each channel, such as 0.485,0.456,0.406")
    ] = None,
    std: Annotated[
        str | None, image_option("each channel is divided by this, such as 0.229,0.224,0.225")
    ] = None,
    layout: Annotated[
        Literal["nchw", "nhwc"] | None, image_option("channels first or last")
    ] = None,
    channel_order: Annotated[
        Literal["rgb", "bgr"] | None, image_option("order of the colour channels")
    ] = None,
    preprocess_check: Annotated[
        Literal["on", "off"],
        image_option("try other settings first; stop if one is clearly better", show_default=True),
    ] = "on",
    features: Annotated[str | None, table_option("the columns to use", metavar="A,B,C")] = None,
    text: Annotated[
        str | None, table_option("the column of texts, for a text model", metavar="COLUMN")
    ] = None,
    field: Annotated[str | None, table_option(".npz: the array to use", metavar="NAME")] = None,
    estimator: Annotated[
        Literal["auto", "mixup", "agreement"],
        method_option(
            "fit T on mixup samples or agreement with MODEL2; auto: agreement if usable",
            show_default=True,
        ),
    ] = "auto",
    lam: Annotated[
        float,
        method_option("mixing weight of the first input of a pair (lambda)", show_default=True),
    ] = DEFAULT_METHOD.lam,
    tolerance: Annotated[
        float | None, method_option("stop mixing at this standard error of log T")
    ] = None,
    predict: Annotated[
        Literal["all", "seen"],
        method_option("after an early stop (--tolerance), predict all inputs or only those seen"),
    ] = "all",
    pixels: Annotated[
        int, method_option("segmentation: pixels per image; 0: all", min=0, show_default=True)
    ] = 20_000,
    seed: Annotated[int, method_option("random seed", show_default=True)] = DEFAULT_METHOD.seed,
    second_opinion: Annotated[
        list[str] | None,
        second_option(
            "another model of the same classes, surrogate[:BACKBONE], zero-shot:FOLDER; repeatable",
            metavar="MODEL2",
        ),
    ] = None,
    second_size: Annotated[str | None, second_option("size of its images, if different")] = None,
    second_preprocess: Annotated[str | None, second_option("as --preprocess, if different")] = None,
    out: Annotated[Path | None, output_option("folder for the results", "--out", "-o")] = None,
    table: Annotated[
        Literal["csv", "parquet"] | None, output_option("format of the predictions", "--format")
    ] = None,
    keep_logits: Annotated[
        bool,
        output_option(
            "save logits in OUT (needed by label, refine, threshold and watch)",
            "--keep-logits/--no-logits",
        ),
    ] = True,
    quiet: Quiet = False,
    as_json: AsJson = False,
    exit_code: ExitCode = False,
    batch_size: Annotated[
        int | None,
        performance_option(
            f"inputs per forward pass (default: {DEFAULT_BATCH_SIZE}; large segmentation models: "
            "as many as fit in memory)",
            min=2,
        ),
    ] = None,
    device: Device = "cpu",
    workers: Annotated[
        int,
        performance_option("threads that read inputs, or workers of --ray; 0: one per core", min=0),
    ] = 0,
    ray: Annotated[
        str | None,
        performance_option("run on a Ray cluster, or on a new local one", metavar="[ADDRESS]"),
    ] = None,
) -> None:
    """Calibrate MODEL on unlabelled DATA; write a calibrated model, predictions and a report."""
    if job_file is None and (other_model is not None or other_data is not None):
        raise typer.BadParameter(
            "--model and --data need --job FILE; without it, pass MODEL and DATA as arguments"
        )
    if job_file is not None:
        check_alone(context, "--job", JOB_SETTINGS)
        job = read_job(job_file, model=other_model, data=other_data, out=out, trust=trust_model)
        steps = calibrate_steps(job)
    elif model is not None and data is None and Path(model).suffix.lower() in SAVED:
        check_alone(context, "saved outputs", SAVED_SETTINGS)
        folder = collect_outputs(
            model,
            Path(model).with_suffix("") if out is None else out,
            second_opinion=one_file(second_opinion),
            output_type=output_type,
            binary=binary,
            field=field,
            classes=names_in(classes),
        )
        steps = saved_steps(folder)
    elif model is None or data is None:
        raise typer.BadParameter("expected MODEL, DATA and --out, or --job FILE")
    elif out is None:
        raise typer.BadParameter("missing --out FOLDER, for example -o out/")
    else:
        images = resizing(resize) | cropping(size, crop) | normalisation(preprocess)
        images |= without_none(
            {
                "mean": numbers(mean),
                "std": numbers(std),
                "layout": layout,
                "order": channel_order,
                "crop_pct": crop_pct,
                "interpolation": interpolation,
            }
        )
        second_images = cropping(second_size) | normalisation(second_preprocess)
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
            second_opinion=tuple(second_opinion or ()),
            trust=trust_model,
            architecture=architecture,
            preprocessing=cast(ImageSettings, images),
            second_preprocessing=cast(ImageSettings, second_images),
            preprocess_check=preprocess_check == "on",
            logits_tensor=logits_tensor,
            output_type=output_type,
            binary=binary,
            features=words(features),
            text=text,
            field=field,
            classes=names_in(classes),
            ground_truth=ground_truth,
            device=device,
            workers=workers,
            batch_size=batch_size,
            max_samples=max_samples,
            max_bad=fraction(max_bad),
            predict=predict,
            table=table,
            keep_logits=keep_logits,
            labels=labels,
            sampling=sampling,
            ray=ray,
        )
        steps = calibrate_steps(job)
    _finish(steps, quiet=quiet, as_json=as_json, exit_code=exit_code)


def _finish(steps: Steps, *, quiet: bool, as_json: bool, exit_code: bool) -> None:
    """Run steps, print the result, and end with the exit code of its verdict if asked to."""
    result = show_progress(steps, quiet=quiet)
    print_result(summary(result), _result_lines(result), quiet=quiet, as_json=as_json)
    if exit_code:
        raise typer.Exit(VERDICT_CODES[result.calibration.verdict or "apply"])


def _result_lines(result: Result) -> Iterator[str]:
    yield from summary_lines(result)
    if result.threshold is not None:
        yield from threshold_lines(result.threshold, Run.open(result.out))


# ------------------------------------------------------------------------------ label and refine


@app.command(
    epilog=epilog("pseudocal label out/ -n 50"),
    short_help="Write a page for labelling a few inputs.",
)
def label(
    context: typer.Context,
    target: RunOrOutputs,
    n: Annotated[int, option("-n", help="inputs to label", min=1, show_default=True)] = 50,
    for_threshold: Annotated[
        str | None,
        option(
            metavar="ERROR",
            help="choose inputs for finding a threshold with at most this error, such as 5%",
        ),
    ] = None,
    classes: Classes = None,
    trust_paths: TrustPaths = False,
    out: SavedOut = None,
    inputs: SavedInputs = None,
    output_type: SavedType = None,
    binary: SavedBinary = False,
    field: SavedField = None,
) -> None:
    """Choose inputs to label, and write a page for the browser and a table to fill in."""
    lines = names_in(classes, synonyms=True)
    if is_monitor(target):
        check_alone(context, "a monitor", MONITOR_LABEL_SETTINGS, OF_RUN.format(monitor=target))
        page = label_monitor(target, n, classes=lines, trust_paths=trust_paths)
        typer.echo(TO_LABEL.format(page=page, n=n))
        typer.echo(AS_TABLE.format(table=page.parent / LABEL_TABLE))
        typer.echo(f"Next: pseudocal refine {target} labels.csv")
        return
    saved = {"inputs": inputs, "output_type": output_type, "binary": binary, "field": field}
    folder = _run_folder(target, out, saved, split_synonyms(lines)[0])
    most = None if for_threshold is None else fraction(for_threshold)
    page = write_labelling_page(
        folder, n, for_threshold=most, classes=lines, trust_paths=trust_paths
    )
    typer.echo(TO_LABEL.format(page=page, n=n))
    typer.echo(AS_TABLE.format(table=folder / LABEL_TABLE))
    if not Run.open(folder).record.classes:
        typer.echo("warning: no class names; pass --classes FILE")
    if for_threshold is None:
        typer.echo(f"Next: pseudocal refine {folder} labels.csv")
    else:
        typer.echo(f"Next: pseudocal threshold {folder} labels.csv --max-error {for_threshold}")


@app.command(
    epilog=epilog("pseudocal refine out/ labels.csv"),
    short_help="Recalibrate with a person's labels.",
)
def refine(
    context: typer.Context,
    target: RunOrOutputs,
    labels: Annotated[
        Path, typer.Argument(help="table with the columns file and label (for pixels also y and x)")
    ],
    classes: Classes = None,
    sampling: SamplingOption = "stratified",
    max_error: Annotated[
        str | None,
        option(help="also find the threshold with at most this error, such as 5%"),
    ] = None,
    trust_model: Annotated[
        bool,
        option("--trust-model", help="open .pt2 and TorchScript again: such files can run code"),
    ] = False,
    trust_paths: TrustPaths = False,
    out: SavedOut = None,
    inputs: SavedInputs = None,
    output_type: SavedType = None,
    binary: SavedBinary = False,
    field: SavedField = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    exit_code: ExitCode = False,
    device: Device = "cpu",
) -> None:
    """Recalibrate OUT with LABELS of about 50 inputs: temperature, model, predictions and report."""
    _check_order(target, labels)
    if is_monitor(target):
        check_alone(context, "a monitor", MONITOR_REFINE_SETTINGS, OF_RUN.format(monitor=target))
        measuring = refine_monitor_steps(
            target, labels, trust=trust_model, trust_paths=trust_paths, device=device
        )
        done = show_progress(measuring, quiet=quiet)
        lines = labelled_lines(target, done)
        print_result(to_plain(done.event), lines, quiet=quiet, as_json=as_json)
        if exit_code:
            raise typer.Exit(VERDICT_CODES[done.event.verdict or "apply"])
        return
    names = names_in(classes)
    saved = {"inputs": inputs, "output_type": output_type, "binary": binary, "field": field}
    if names and not target.is_file():
        raise InputError(
            f"{target} is a run folder, whose class names refine does not change: name them "
            f"with pseudocal label {target} --classes {classes}"
        )
    folder = _run_folder(target, out, saved, names)
    steps = refine_steps(
        folder,
        labels,
        sampling=sampling,
        max_error=None if max_error is None else fraction(max_error),
        trust=trust_model,
        trust_paths=trust_paths,
        device=device,
    )
    _finish(steps, quiet=quiet, as_json=as_json, exit_code=exit_code)


@app.command(
    epilog=epilog("pseudocal threshold out/ labels.csv --max-error 5%"),
    short_help="Accept confident predictions, with an error limit.",
)
def threshold(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="folder that calibrate wrote")],
    max_error: Annotated[
        str, option(help="fraction of the accepted predictions that may be wrong, such as 5%")
    ],
    labels: Annotated[
        Path | None,
        typer.Argument(
            help="labels of inputs chosen by label --for-threshold; without them, an estimate"
        ),
    ] = None,
    sampling: SamplingOption = "stratified",
    one_model: Annotated[
        bool, option("--one-model", help="rank by confidence only, without the second model")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the confidence above which at most ERROR of the predictions are wrong."""
    _check_order(out, labels)
    _check_exists(out)
    most = fraction(max_error)
    found = find_threshold(out, labels, max_error=most, sampling=sampling, one_model=one_model)
    if as_json:
        typer.echo(json.dumps(to_plain(found)))
        return
    typer.echo("\n".join(threshold_lines(found, Run.open(out))))
    known = 0 if labels is not None else stored_labels(out)
    if known:
        kept = f"{out / THRESHOLD} keeps the threshold from {count(known, 'label')}"
        typer.echo(f"not written: {kept}; delete the file to replace it")
        return
    typer.echo(f"{out / THRESHOLD}: the rule for a service; the predictions have a column accept")


def _check_exists(target: Path) -> None:
    """Refuse a name that leads nowhere."""
    if not target.exists():
        raise InputError(f"expected a run folder, got {target}: no such folder")


def _check_order(target: Path, labels: Path | None) -> None:
    """Refuse a labels file passed as the run, with the run passed as the labels."""
    if target.is_file() and labels is not None and labels.is_dir():
        raise InputError(
            f"expected a run folder, got the file {target}: pass the folder first, {labels} {target}"
        )


def _run_folder(
    target: Path, out: Path | None, saved: dict[str, Any], classes: tuple[str, ...]
) -> Path:
    """The run folder; outputs that were saved in a file become a run."""
    _check_exists(target)
    if target.is_file():
        folder = target.with_suffix("") if out is None else out
        return collect_outputs(target, folder, classes=classes, **saved)
    for name, value in {"out": out, **saved}.items():
        if value:
            raise InputError(f"expected a file of saved outputs, got {target}", setting=name)
    return target


# ------------------------------------------------------------------------------ watch

app.command(
    epilog=epilog("pseudocal watch monitor/ --baseline out/", "pseudocal watch monitor/ monday/"),
    short_help="Watch a deployed model; raise an alarm if it gets worse.",
)(watch)


# ------------------------------------------------------------------------------ saved outputs


@app.command(
    epilog=epilog("pseudocal evaluate logits.npy ground_truth.csv"),
    short_help="Score saved logits against ground truth.",
)
def evaluate(
    logits: SavedLogits,
    ground_truth: Annotated[
        Path,
        typer.Argument(
            help="classes: .npy, .csv, .parquet, or text with one per line; .npy of masks"
        ),
    ],
    calibration: Annotated[
        Path | None, option(help="calibration.json, to score before and after", metavar="FILE")
    ] = None,
    output_type: SavedType = None,
    binary: SavedBinary = False,
    field: SavedField = None,
    as_json: AsJson = False,
) -> None:
    """Score saved LOGITS against GROUND_TRUTH: ECE, NLL, Brier and accuracy with intervals."""
    saved: dict[str, Any] = {"output_type": output_type, "binary": binary, "field": field}
    rows = evaluate_files(logits, ground_truth, calibration, **saved)
    typer.echo(json.dumps(rows) if as_json else "\n".join(score_lines(rows)))


@app.command(epilog=epilog("pseudocal apply out/calibration.json logits.npy -o probabilities.npy"))
def apply(
    calibration: Annotated[Path, typer.Argument(help="calibration.json")],
    logits: SavedLogits,
    out: Annotated[
        Path,
        option("--out", "-o", help="file for the calibrated probabilities: .npy, .csv or .parquet"),
    ],
    output_type: SavedType = None,
    binary: SavedBinary = False,
    field: SavedField = None,
) -> None:
    """Turn saved LOGITS into calibrated probabilities."""
    loaded = load_calibration(calibration)
    saved: dict[str, Any] = {"output_type": output_type, "binary": binary, "field": field}
    shape = apply_to_file(loaded, logits, out, **saved)
    by = loaded.method
    if isinstance(loaded.scaling, TemperatureScaling):
        by = f"T = {loaded.temperature:.4f}"
    verdict = "" if loaded.verdict is None else f", verdict: {loaded.verdict}"
    typer.echo(f"{out}: probabilities of shape {shape}; {by}{verdict}")


@app.command(
    epilog=epilog("pseudocal report monday/ tuesday/ -o comparison.html"),
    short_help="Rewrite a report, or compare several.",
)
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="OUT...", help="folders that calibrate wrote")
    ],
    out: Annotated[
        Path | None, option("--out", "-o", help="page of a comparison (default: comparison.html)")
    ] = None,
) -> None:
    """Rewrite report.html of one OUT, or write one page that compares several."""
    if len(folders) == 1:
        if out is not None:
            raise InputError(f"expected two or more folders with --out, got {folders[0]} alone")
        typer.echo(redraw(folders[0]))
        return
    out = out or Path("comparison.html")
    for line in compare_reports(folders, out):
        numbers = f"T = {line.temperature}, confidence {line.confidence}, ECE {line.ece}"
        typer.echo(f"{line.name}: {line.verdict}, {numbers}")
    typer.echo(out)


# ------------------------------------------------------------------------------ training

app.command(
    epilog=epilog("pseudocal train emoji --source noto --target fluent -o runs/mcc"),
    short_help="Train a classifier that adapts to a target.",
)(train)


@app.command(
    epilog=epilog("pseudocal demo"),
    short_help="Try pseudocal on built-in emoji; no model is needed.",
)
def demo(
    out: Annotated[
        Path, option("--out", "-o", help="folder for all results", show_default=True)
    ] = DEMO_OUT,
    quiet: Annotated[bool, option("--quiet", "-q", help="print the result only")] = False,
) -> None:
    """Train on one vendor's emoji, adapt to another's, calibrate without labels, and compare."""
    try:
        import torch  # noqa: F401  everything the demo needs comes with the same extra

        from pseudocal.app.demo import Demo, lines_of, run_demo
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "demo") from error
    settings = Demo(out, quiet=quiet)
    for line in lines_of(settings, run_demo(settings)):
        typer.echo(line)
