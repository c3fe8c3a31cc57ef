"""The commands that train models: `pseudocal train`, and `pseudocal bench`, the paper's comparison."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pseudocal.app.errors import CALIBRATORS_FAILED, INPUT
from pseudocal.app.options import (
    AsJson,
    Device,
    Quiet,
    data_option,
    epilog,
    method_option,
    option,
    output_option,
    performance_option,
    without_none,
)
from pseudocal.app.progress import Stages, announce_building, print_result
from pseudocal.arrays import InputError, cores
from pseudocal.calibrators.wording import count
from pseudocal.extras import require
from pseudocal.files import check_writable

if TYPE_CHECKING:
    from pseudocal.lab.bench import Suite
    from pseudocal.lab.bench.records import Record
    from pseudocal.lab.bench.tables import By, TableMetric

DEFAULT_OUT = Path("runs/bench")

Root = Annotated[Path | None, data_option("folder of a benchmark's data")]
Lists = Annotated[Path | None, data_option("folder of its list files (default: ROOT)")]
Prefix = Annotated[
    str | None,
    data_option("replace OLD with NEW at the start of paths in lists", metavar="OLD=NEW"),
]
WEIGHTS = method_option("weights of the backbone: a state dict, folder or hub id, or random")


# ------------------------------------------------------------------------------ train


def train(
    dataset: Annotated[
        str, typer.Argument(help="digits, emoji, office-31, office-home, visda-2017, ...")
    ],
    source: Annotated[str, data_option("domain with labels")],
    target: Annotated[str, data_option("domain whose labels training never sees")],
    out: Annotated[
        Path,
        output_option("folder for the model and its outputs; a killed run resumes", "--out", "-o"),
    ],
    partial: Annotated[
        bool, data_option("target with a subset of the classes", "--partial")
    ] = False,
    root: Root = None,
    lists: Lists = None,
    prefix: Prefix = None,
    method: Annotated[
        str, method_option("source-only, mcc, bnm, cdan, atdoc, shot, ...", show_default=True)
    ] = "mcc",
    preset: Annotated[
        str | None, method_option("paper, official, ... (default: the data set's, or paper)")
    ] = None,
    backbone: Annotated[
        str | None, method_option("digits, efficientnet-lite0, resnet50, vit-b16, ...")
    ] = None,
    weights: Annotated[str, WEIGHTS] = "default",
    frozen: Annotated[
        bool | None,
        method_option(
            "freeze the backbone, or train it too (default: frozen if pretrained)",
            "--frozen/--end-to-end",
        ),
    ] = None,
    iterations: Annotated[int, method_option("training steps", min=1, show_default=True)] = 1000,
    batch: Annotated[
        int | None, method_option("inputs of each domain per step (default: the preset's)", min=1)
    ] = None,
    lr: Annotated[
        float | None, method_option("learning rate at the start (default: the preset's)")
    ] = None,
    seed: Annotated[int, method_option("random seed", show_default=True)] = 0,
    evaluate: Annotated[
        bool, output_option("also score on the target's labels, for evaluation only", "--evaluate")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    precision: Annotated[
        Literal["single", "mixed", "float16"],
        performance_option("precision of training; mixed: bfloat16 where safe"),
    ] = "single",
    device: Device = "cpu",
) -> None:
    """Train an adapted classifier on the SOURCE and the unlabelled TARGET domain of DATASET."""
    adapt = require("pseudocal.lab.adapt", "adapt")
    check_writable(out)
    check_device(device)
    changes = without_none({"batch": batch, "lr": lr})
    from pseudocal.lab.settings import preset_for

    preset = preset or preset_for(method, dataset)
    chosen = replace(adapt.training.find_preset(method, preset), **changes)
    place = without_none({"root": root, "lists": lists, "prefix": parse_prefix(prefix)})
    with announce_building(quiet=quiet):
        source_domain, target_domain = _domains(dataset, source, target, partial=partial, **place)
    if backbone is None:
        backbone = "digits" if dataset == "digits" else "efficientnet-lite0"
    if not quiet and weights != "default":
        typer.echo(adapt.weights.about_weights(backbone, weights), err=True)
    if backbone == "digits":  # such a small network gains nothing from threads
        require("torch", "adapt").set_num_threads(1)
    with Stages(quiet=quiet) as stages:
        settings = adapt.TrainingRun(
            out,
            iterations=iterations,
            seed=seed,
            device=device,
            frozen=frozen,
            precision=precision,
            progress=stages,
            evaluate=target_domain if evaluate else None,
        )
        trained = adapt.train(
            source_domain,
            target_domain.unlabelled(),
            settings,
            method=method,
            preset=chosen,
            backbone=adapt.Choice(backbone, weights),
        )
    result = {"model": str(trained.out), "target": str(trained.target), "seconds": trained.seconds}
    if trained.curve:
        last = trained.curve[-1]
        result |= {"target_accuracy": 1 - last.error, "target_nll": last.nll}
    print_result(result, training_lines(result), quiet=quiet, as_json=as_json)


def _domains(
    dataset: str, source: str, target: str, *, partial: bool, **place: Any
) -> tuple[Any, Any]:
    """Load the two domains; `place` says where a benchmark is."""
    from pseudocal.lab.data import load, partial_set

    domains = list(load(dataset, *dict.fromkeys((source, target)), **place).values())
    last = domains[-1]
    return domains[0], partial_set(dataset, last) if partial else last


def training_lines(result: dict[str, Any]) -> list[str]:
    """The lines to print after training.

    >>> training_lines({"model": "runs/a", "target": "runs/a/target.npz", "seconds": 3.2})
    ['runs/a: trained in 3 s', 'runs/a/target.npz: logits and features of the target']
    """
    lines = [f"{result['model']}: trained in {result['seconds']:.0f} s"]
    lines.append(f"{result['target']}: logits and features of the target")
    if "target_accuracy" in result:
        scores = f"accuracy {result['target_accuracy']:.1%}, NLL {result['target_nll']:.3f}"
        lines.append(f"target {scores} (labels used here only)")
    return lines


def parse_prefix(text: str | None) -> tuple[str, str] | None:
    """Parse how paths begin in a list, and how they begin here.

    >>> parse_prefix("/home/them/data=/data")
    ('/home/them/data', '/data')
    """
    if text is None:
        return None
    old, equals, new = text.partition("=")
    if not (old and equals):
        raise InputError(f"expected a prefix like OLD=NEW, got {text!r}")
    return (old, new)


def check_device(name: str) -> None:
    """Refuse a device that torch cannot use here."""
    torch = require("torch", "torch")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"expected a device like cpu, cuda or cuda:1, got {name!r}") from error
    gpus = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= gpus:
        raise InputError(f"expected a GPU that torch can use, got {name} with {gpus} of them")


# ------------------------------------------------------------------------------ bench

FAILED = "6 calibrators failed"

bench = typer.Typer(
    help="Run the paper's comparison; print and draw results.",
    epilog=epilog("pseudocal bench run digits --quick", more_codes=FAILED),
    rich_markup_mode="rich",
)
SUITE = Annotated[str, typer.Argument(help="a built-in suite, or a TOML file")]
OUT = Annotated[Path, option("--out", "-o", help="folder for all results", show_default=True)]
PLUGIN = Annotated[
    list[str] | None,
    method_option("Python file or module that registers calibrators, methods or data sets"),
]
QUICK = Annotated[bool, option("--quick", help="three pairs of domains, two methods, one seed")]
BY = Annotated[
    Literal["overall", "target", "task"], option(help="columns of the table", show_default=True)
]
FORM = Annotated[
    Literal["md", "latex", "csv"], option("--format", help="table format", show_default=True)
]


@bench.command(
    epilog=epilog("pseudocal bench run digits --quick", more_codes=FAILED),
    short_help="Run the missing tasks of a suite; a killed run resumes.",
)
def run(
    suite: SUITE,
    out: OUT = DEFAULT_OUT,
    quick: QUICK = False,
    redo: Annotated[
        Literal["train", "predict", "mixup", "calibrate", "score"] | None,
        option(help="run this stage and all later ones again"),
    ] = None,
    quiet: Annotated[bool, option("--quiet", "-q", help="print errors only")] = False,
    root: Root = None,
    lists: Lists = None,
    prefix: Prefix = None,
    seeds: Annotated[
        int | None, method_option("number of seeds (default: 1; ensembles train 3)", min=1)
    ] = None,
    repeats: Annotated[
        int | None, method_option("calibrations of each model, with new pairs (default: 1)", min=1)
    ] = None,
    plugin: PLUGIN = None,
    backbone: Annotated[
        str | None, method_option("efficientnet-lite0, resnet50, vit-b16, ...")
    ] = None,
    weights: Annotated[str | None, WEIGHTS] = None,
    iterations: Annotated[int | None, method_option("training steps", min=1)] = None,
    batch: Annotated[
        int | None, method_option("inputs of each domain per training step", min=1)
    ] = None,
    lr: Annotated[float | None, method_option("learning rate at the start")] = None,
    precision: Annotated[
        Literal["single", "mixed", "float16"] | None,
        performance_option("precision of training; mixed: bfloat16 where safe"),
    ] = None,
    device: Annotated[
        str | None, performance_option("cpu, cuda (a GPU per process), cuda:1 ...")
    ] = None,
    workers: Annotated[
        int, performance_option("processes; 0: one per core, or per GPU", min=0)
    ] = 0,
    threads: Annotated[
        int, performance_option("threads per process", min=1, show_default=True)
    ] = 1,
    ray: Annotated[
        str | None,
        performance_option(
            "run on a Ray cluster whose nodes share the folders, or on a new local one",
            metavar="[ADDRESS]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, performance_option("only print the estimated passes, memory and hours", "--dry-run")
    ] = False,
) -> None:
    """Run the missing tasks of SUITE; a killed run resumes where it stopped.

    Calibrators that failed are listed at the end, with exit code 6; failed tasks have code 3.
    """
    package = _package()
    from pseudocal.lab.bench.records import failed_calibrators

    changes = {
        "backbone": backbone,
        "weights": weights,
        "iterations": iterations,
        "batch": batch,
        "lr": lr,
        "precision": precision,
    }
    plugins = _load_plugins(plugin)
    changes = {"seeds": seeds, "repeats": repeats, "quick": quick} | without_none(changes)
    chosen, place = _suite(suite, **changes)
    check_writable(out)
    local = {"root": root, "lists": lists, "prefix": parse_prefix(prefix), "device": device}
    place |= without_none(local)
    store = package.Store(out, threads=threads, plugins=plugins, **place)
    if dry_run:
        from pseudocal.lab.bench import dry_run as outlook

        with announce_building(quiet=quiet):
            costs = outlook.dry_run(chosen, store)
        typer.echo("\n".join(outlook.dry_run_lines(costs, store.device)))
        return
    executor = _executor(store.device, workers, ray)
    with announce_building(quiet=quiet), Stages(quiet=quiet) as stages, executor as using:
        progress = BenchProgress(chosen, _processes(store.device, workers), stages, quiet=quiet)
        failures = package.run(chosen, store, executor=using, redo=redo, progress=progress)
    for failure in failures:
        task = failure.task
        name = f"{task.data} {task.pair} {task.method} seed {task.seed}"
        typer.echo(f"{name}: {failure.error}", err=True)
    if not quiet:
        done = len(set(chosen.tasks) - {failure.task for failure in failures})
        typer.echo(f"{out}: {done} of {len(chosen.tasks)} tasks of {chosen.name} are done")
    failed = failed_calibrators(chosen, store)
    for each in failed:
        typer.echo(each.line, err=True)
    if failed:
        words = count(sum(len(each.tasks) for each in failed), "calibration")
        typer.echo(f"{words} failed: tables show a dash and the reason", err=True)
    if failures:
        raise typer.Exit(INPUT)
    if failed:
        raise typer.Exit(CALIBRATORS_FAILED)


@bench.command(epilog=epilog("pseudocal bench table digits --quick"))
def table(
    suite: SUITE,
    out: OUT = DEFAULT_OUT,
    quick: QUICK = False,
    metric: Annotated[
        Literal["ece", "nll", "brier", "miou", "correspondence"] | None,
        option(
            help="one metric (default: ece, nll and brier); miou: segmentation, correspondence: "
            "mixup samples"
        ),
    ] = None,
    by: BY = "overall",
    form: FORM = "md",
    plugin: PLUGIN = None,
) -> None:
    """Print the tables of the last run of SUITE."""
    _load_plugins(plugin)
    from pseudocal.lab.bench.records import missing_scores, read_records

    store, found = _last_run(suite, out, quick)
    records = read_records(found, store)
    if not records:
        raise InputError(f"expected scores of {found.name} in {out}, got none: run it first")
    if metric in ("miou", "correspondence") and all(
        getattr(record, metric) is None for record in records
    ):
        raise InputError(
            f"expected a suite with scores of {metric}, got {found.name}, which has none"
        )
    _print_tables(found, records, metric, by, form)
    for line in missing_scores(found, store):
        typer.echo(line, err=True)


def _print_tables(
    suite: Suite, records: Sequence[Record], metric: TableMetric | None, by: By, form: str
) -> None:
    """Print the tables of one metric or of the usual three, with paired tests."""
    from pseudocal.lab.bench.calibrators import find_compared
    from pseudocal.lab.bench.formats import FORMATS, comparisons
    from pseudocal.lab.bench.records import changed_classes
    from pseudocal.lab.bench.tables import compare_over_tasks, tables

    metrics: tuple[TableMetric, ...] = (metric,) if metric else ("ece", "nll", "brier")
    for each in metrics:
        parts = [FORMATS[form](part) for part in tables(suite, records, each, by)]
        compared = "pseudocal" in suite.calibrators and each != "correspondence"
        if form != "csv" and compared:
            parts.append(comparisons(compare_over_tasks(records, each), form))
        typer.echo("\n\n".join(parts) + "\n")
    for name in changed_classes(records):
        title = find_compared(name).title
        typer.echo(f"{title} changes predicted classes, and so the accuracy", err=True)


@bench.command(epilog=epilog("pseudocal bench figures digits --quick"))
def figures(
    suite: SUITE,
    out: OUT = DEFAULT_OUT,
    quick: QUICK = False,
    pair: Annotated[
        str | None, option(help="tasks of this pair of domains only", metavar="SOURCE:TARGET")
    ] = None,
    method: Annotated[str | None, option(help="tasks of this method only")] = None,
    together: Annotated[
        str | None,
        option(metavar="NAMES", help="one reliability diagram of these: none,transcal,pseudocal"),
    ] = None,
    folder: Annotated[
        Path | None, option("--to", help="folder for the figures (default: OUT/figures)")
    ] = None,
    form: Annotated[
        Literal["svg", "png"], option("--format", help="figure format", show_default=True)
    ] = "svg",
) -> None:
    """Draw the figures of the last run of SUITE."""
    _package()
    from pseudocal.lab.bench.figures import chosen_tasks, draw_figures

    store, last = _last_run(suite, out, quick)
    found = chosen_tasks(last, pair, method)
    names = together.split(",") if together else ()
    paths = draw_figures(found, store, folder or out / "figures", form=form, together=names)
    if not paths:
        raise InputError(f"expected scores of {found.name} in {out}, got none: run it first")
    for path in paths:
        typer.echo(path)


@bench.command(epilog=epilog("pseudocal bench export emoji banks/emoji"))
def export(
    suite: SUITE,
    bank: Annotated[Path, typer.Argument(help="new folder for the outputs")],
    out: OUT = DEFAULT_OUT,
    quick: QUICK = False,
    plugin: PLUGIN = None,
) -> None:
    """Write the outputs of all tasks of SUITE as one folder, for `bench compare`."""
    _load_plugins(plugin)
    from pseudocal.lab.bench.bank import export_bank

    store, found = _last_run(suite, out, quick)
    export_bank(found, store, bank)
    typer.echo(f"{bank}: outputs of {len(found.tasks)} tasks of {found.name}")


@bench.command(
    epilog=epilog("pseudocal bench compare banks/emoji --calibrator tempscal", more_codes=FAILED),
    short_help="Compare calibrators on banks, or on saved features and logits.",
)
def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="banks, or folders with {src_train,src_val,tgt,mix}_{feature,output,label}.npy"
        ),
    ],
    calibrator: Annotated[
        list[str] | None,
        method_option("calibrator to compare (default: all); repeatable"),
    ] = None,
    plugin: PLUGIN = None,
    metric: Annotated[
        Literal["ece", "nll", "brier", "correspondence"] | None,
        option(help="one metric (default: ece, nll and brier)"),
    ] = None,
    by: BY = "overall",
    seed: Annotated[
        int,
        option(
            min=0, help="seed of baselines that draw samples, without a bank", show_default=True
        ),
    ] = 0,
    form: FORM = "md",
    workers: Annotated[int, performance_option("processes; 0: one per core", min=0)] = 0,
) -> None:
    """Compare calibrators on the outputs of many models: no images, no network."""
    plugins = _load_plugins(plugin)
    from pseudocal.lab.bench.bank import compare_banks, is_bank
    from pseudocal.lab.bench.calibrators import find_compared

    if len(folders) == 1 and not is_bank(folders[0]):
        _compare_single(folders[0], calibrator, seed, form)
        return
    with _executor("cpu", workers, None) as using:
        found = compare_banks(folders, calibrator or (), plugins=plugins, seed=seed, executor=using)
    _print_tables(found.suite, found.records, metric, by, form)
    if found.stored:
        titles = ", ".join(find_compared(name).title for name in found.stored)
        typer.echo(f"stored results, because these need the model: {titles}", err=True)
    if found.without_plugin:
        names = ", ".join(found.without_plugin)
        typer.echo(f"stored scores, because their --plugin is not given: {names}", err=True)
    for line in found.problems:
        typer.echo(line, err=True)
    if found.problems:
        raise typer.Exit(CALIBRATORS_FAILED)


def _compare_single(folder: Path, names: list[str] | None, seed: int, form: str) -> None:
    """Compare all calibrators that the saved outputs of one model suffice for."""
    from pseudocal.lab.bench.bank import check_names
    from pseudocal.lab.bench.calibrators import find_compared, plugin_names
    from pseudocal.lab.bench.formats import saved_scores
    from pseudocal.lab.bench.saved_outputs import compare_outputs
    from pseudocal.lab.bench.suites import ALL

    chosen = tuple(names or (*ALL, *plugin_names()))
    check_names(chosen)
    found = compare_outputs(folder, calibrators=chosen, seed=seed)
    typer.echo(saved_scores(found, form))
    for each in found:
        if each.error is not None:
            typer.echo(f"{find_compared(each.calibrator).title}: {each.error}", err=True)
    compared = {each.calibrator for each in found}
    missing = [find_compared(name).title for name in chosen if name not in compared]
    if missing:
        typer.echo(f"skipped, because {folder} lacks their inputs: {', '.join(missing)}", err=True)
    if "pseudocal" in chosen and "pseudocal" not in compared:
        typer.echo(
            "PseudoCal needs mix_output and mix_label: the logits of mixup samples, and their "
            "labels",
            err=True,
        )
    if any(each.error is not None for each in found):
        raise typer.Exit(CALIBRATORS_FAILED)


@bench.command(name="list", epilog=epilog("pseudocal bench list"))
def list_suites() -> None:
    """List the built-in suites."""
    from pseudocal.lab.bench.suites import PLANS

    for name, plan in PLANS.items():
        tasks = plan.tasks()
        pairs = count(len({task.pair for task in tasks}), "pair")
        methods = count(len({task.method for task in tasks}), "method")
        typer.echo(f"{name:26}{f'{pairs}, {methods}':24}{plan.about}")


def _load_plugins(names: list[str] | None) -> tuple[str, ...]:
    _package()
    from pseudocal.lab.plugins import load_plugins

    return load_plugins(names or ())


def _suite(name: str, **settings: Any) -> tuple[Suite, dict[str, Any]]:
    """A suite, and where its file says that its data is and that it runs."""
    from pseudocal.lab.bench.suite_file import read_local, read_suite
    from pseudocal.lab.bench.suites import built_in

    if name.endswith(".toml"):
        return read_suite(Path(name), **settings), read_local(Path(name))
    return built_in(name, **settings), {}


def _processes(device: str, workers: int) -> int:
    """Return how many jobs run at a time on this machine."""
    from pseudocal.lab.bench.executors import visible_gpus

    return workers or len(visible_gpus() if device == "cuda" else []) or cores()


def _executor(device: str, workers: int, ray: str | None) -> Any:
    """What runs the tasks; on "cuda" each of them has a GPU of its own."""
    from pseudocal.lab.bench.executors import Pool, Ray, visible_gpus

    address = None if ray == "local" else ray
    if address is None:  # the GPUs of a cluster are elsewhere
        check_device(device)
    processes = _processes(device, workers)
    if ray is not None:
        return Ray(address, processes, gpus=int(device.startswith("cuda")))
    gpus = visible_gpus() if device == "cuda" else []
    return Pool(processes, gpus) if processes > 1 else nullcontext(map)


def _last_run(suite: str, out: Path, quick: bool) -> tuple[Any, Suite]:
    """The store of all results, and the suite as it was run last."""
    store = _package().Store(out)
    name = Path(suite).stem if suite.endswith(".toml") else suite
    return store, store.load_suite(f"{name}-quick" if quick else name)


def _package() -> Any:
    require("pseudocal.lab.bench.grid", "bench")
    return require("pseudocal.lab.bench", "bench")


# ------------------------------------------------------------------------------ progress


class BenchProgress:
    """Shows how far a suite is.

    It says what its backbones start from and how many models will be trained, and after the first
    when the last will be.

    Args:
        suite: the suite.
        processes: how many models are trained at a time.
        stages: shows the phases.
        quiet: whether to say nothing.

    """

    def __init__(self, suite: Suite, processes: int, stages: Stages, *, quiet: bool) -> None:
        self._suite = suite
        self._processes = processes
        self._stages = stages
        self._quiet = quiet
        self._started = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show the progress of a phase."""
        if not self._quiet:
            if what == "features" and done == 0:
                self._tell_weights()  # everything is checked, and nothing has run yet
            if what == "models" and total:
                self._tell_models(done, total)
        if total:
            self._stages.show(what, done, total)

    def _tell_weights(self) -> None:
        """Say what the backbones start from: names do not tell, and weights may be random."""
        from pseudocal.lab.adapt.weights import about_weights

        names = {"deeplab": "resnet101"}  # what a segmenter stands on
        chosen = {
            (names.get(task.backbone, task.backbone), task.weights)
            for task in self._suite.tasks
            if task.checkpoint is None and task.weights != "default"
        }
        for name, weights in sorted(chosen):
            typer.echo(about_weights(name, weights), err=True)

    def _tell_models(self, done: int, total: int) -> None:
        tasks = self._suite.tasks
        if all(task.checkpoint is not None for task in tasks):
            return  # nothing is trained
        if done == 0:
            self._started = time.monotonic()
            sys.stderr.write(count_sentence(total, len({task.training for task in tasks})) + "\n")
        elif done == 1 and total > 1:
            rounds = math.ceil(total / self._processes) - 1  # after the first
            seconds = time.monotonic() - self._started
            sys.stderr.write(time_sentence(seconds, rounds, datetime.now()) + "\n")


def count_sentence(total: int, tasks: int) -> str:
    """Say how many models are to be trained.

    >>> count_sentence(252, 84), count_sentence(1, 84)
    ('252 models to train, 168 or more of them for ensembles only', '1 model to train')
    """
    more = f", {total - tasks} or more of them for ensembles only" if total > tasks else ""
    return f"{count(total, 'model')} to train{more}"


def time_sentence(seconds: float, rounds: int, now: datetime) -> str:
    """Say how long the first model took, and when the last of `rounds` more will be there.

    >>> time_sentence(60, 60, datetime(2024, 5, 1, 23, 30))
    'the first took 60 s: all models on 2 May at 00:30'
    """
    end = now + timedelta(seconds=seconds * rounds)
    day = "" if end.date() == now.date() else f" on {end.day} {end:%B}"
    return f"the first took {seconds:.0f} s: all models{day} at {end:%H:%M}"
