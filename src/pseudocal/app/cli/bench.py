"""`pseudocal bench`. Each command parses its options, calls the benchmark and prints the result."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pseudocal.app.cli.errors import INPUT
from pseudocal.app.cli.options import EPILOG, check_device, option
from pseudocal.app.cli.options import prefix as parse_prefix
from pseudocal.app.cli.outlook import Outlook
from pseudocal.app.cli.printing import told_of_building
from pseudocal.app.cli.training import Stages
from pseudocal.arrays import InputError, cores
from pseudocal.extras import MissingExtraError
from pseudocal.files import check_writable

if TYPE_CHECKING:
    from pseudocal.lab.bench import Suite, Task

bench = typer.Typer(help="The paper's comparison: run it, print it, draw it.", epilog=EPILOG)
SUITE = Annotated[str, typer.Argument(help="a built-in suite, or a TOML file")]
OUT = Annotated[Path, option("--out", "-o", help="folder for all results", show_default=True)]
QUICK = Annotated[bool, option("--quick", help="three pairs of domains, two methods, one seed")]
PLUGIN = Annotated[
    list[str] | None,
    option(help="Python file or module that registers calibrators, methods or data sets"),
]
DEFAULT_OUT = Path("runs/bench")


@bench.command(epilog=EPILOG, short_help="Run what is missing of a suite; a killed run resumes.")
def run(
    suite: SUITE,
    out: OUT = DEFAULT_OUT,
    seeds: Annotated[
        int | None, option(min=1, help="number of seeds [default: 1; ensembles train 3]")
    ] = None,
    repeats: Annotated[
        int | None,
        option(min=1, help="calibrations of each model, with new random pairs [default: 1]"),
    ] = None,
    quick: QUICK = False,
    backbone: Annotated[
        str | None, option(help="efficientnet-lite0, resnet50, vit-b16, ...")
    ] = None,
    weights: Annotated[
        str | None,
        option(help="weights of the backbone: a state dict, a folder, a hub id, or random"),
    ] = None,
    iterations: Annotated[int | None, option(min=1, help="training steps")] = None,
    batch: Annotated[
        int | None, option(min=1, help="inputs of each domain per training step")
    ] = None,
    lr: Annotated[float | None, option(help="learning rate at the start")] = None,
    precision: Annotated[
        Literal["single", "mixed"] | None, option(help="mixed: train in bfloat16")
    ] = None,
    root: Annotated[Path | None, option(help="folder of the data of the paper's suites")] = None,
    lists: Annotated[Path | None, option(help="folder of their list files [default: ROOT]")] = None,
    prefix: Annotated[
        str | None, option(metavar="OLD=NEW", help="how paths in lists begin, and begin here")
    ] = None,
    device: Annotated[str | None, option(help="cpu, cuda (a GPU per process), cuda:1 ...")] = None,
    workers: Annotated[int, option(min=0, help="processes; 0: one per core, or per GPU")] = 0,
    threads: Annotated[int, option(min=1, help="threads per process", show_default=True)] = 1,
    ray: Annotated[bool, option("--ray", help="run on Ray, on this machine")] = False,
    ray_address: Annotated[
        str | None, option(help="run on a Ray cluster that shares the folders")
    ] = None,
    redo: Annotated[
        Literal["train", "predict", "mixup", "calibrate", "score"] | None,
        option(help="run this stage and all later ones again"),
    ] = None,
    plugin: PLUGIN = None,
    quiet: Annotated[bool, option("--quiet", "-q", help="print errors only")] = False,
) -> None:
    """Run the missing tasks of SUITE; a killed run resumes where it stopped."""
    package = _package()
    asked = {
        "backbone": backbone,
        "weights": weights,
        "iterations": iterations,
        "batch": batch,
        "lr": lr,
    }
    changes = {
        name: value
        for name, value in (asked | {"precision": precision}).items()
        if value is not None
    }
    plugins = _load_plugins(plugin)
    chosen = _chosen(suite, seeds=seeds, repeats=repeats, quick=quick, **changes)
    check_writable(out)
    local = {"root": root, "lists": lists, "prefix": parse_prefix(prefix), "device": device}
    here = _of_file(suite) | {name: value for name, value in local.items() if value is not None}
    store = package.Store(out, threads=threads, plugins=plugins, **here)
    using = _executor(store.device, workers, ray=ray, address=ray_address)
    with told_of_building(quiet=quiet), Stages(quiet=quiet) as stages, using as executor:
        trained = len({task.training for task in chosen.tasks})
        read = all(task.checkpoint is not None for task in chosen.tasks)  # nothing is trained
        outlook = Outlook(trained, _processes(store.device, workers), quiet=quiet or read)

        def progress(what: str, done: int, total: int) -> None:
            if (what, done, quiet) == (
                "features",
                0,
                False,
            ):  # everything is checked, and nothing has run yet
                _tell_weights(chosen)
            outlook(what, done, total)
            if total:
                stages(SimpleNamespace(stage=what, done=done, total=total))

        failures = package.run(chosen, store, executor=executor, redo=redo, progress=progress)
    for failure in failures:
        task = failure.task
        typer.echo(
            f"{task.data} {task.pair} {task.method} seed {task.seed}: {failure.error}", err=True
        )
    if not quiet:
        failed = {failure.task for failure in failures}
        typer.echo(
            f"{out}: {len(set(chosen.tasks) - failed)} of {len(chosen.tasks)} tasks of {chosen.name} are done"
        )
    if failures:
        raise typer.Exit(INPUT)


@bench.command(epilog=EPILOG)
def table(
    suite: SUITE,
    out: OUT = DEFAULT_OUT,
    quick: QUICK = False,
    metric: Annotated[
        Literal["ece", "nll", "brier", "miou", "correspondence"] | None,
        option(
            help="one metric instead of the first three; miou for segmentation, correspondence of mixup samples"
        ),
    ] = None,
    by: Annotated[
        Literal["overall", "target", "task"], option(help="what the columns are", show_default=True)
    ] = "overall",
    form: Annotated[
        Literal["md", "latex", "csv"], option("--format", help="table format", show_default=True)
    ] = "md",
    plugin: PLUGIN = None,
) -> None:
    """Print the tables of the last run of SUITE."""
    package = _package()
    _load_plugins(plugin)
    from pseudocal.lab.bench.formats import FORMATS, comparisons
    from pseudocal.lab.bench.records import missing_scores, read_records
    from pseudocal.lab.bench.tables import compare_over_tasks, tables

    store = package.Store(out)
    found = store.load_suite(_name(suite, quick=quick))
    records = read_records(found, store)
    if not records:
        raise InputError(f"expected scores of {found.name} in {out}, got none: run it first")
    if metric in ("miou", "correspondence") and all(
        getattr(record, metric) is None for record in records
    ):
        raise InputError(
            f"expected a suite with scores of {metric}, got {found.name}, which has none"
        )
    for each in (metric,) if metric else ("ece", "nll", "brier"):
        parts = [FORMATS[form](part) for part in tables(found, records, each, by)]
        parts += (
            [comparisons(compare_over_tasks(records, each))]
            if form == "md" and "pseudocal" in found.calibrators and each != "correspondence"
            else []
        )
        typer.echo("\n\n".join(parts) + "\n")
    for line in missing_scores(found, store):
        typer.echo(line, err=True)


@bench.command(epilog=EPILOG)
def figures(
    suite: SUITE,
    out: OUT = DEFAULT_OUT,
    quick: QUICK = False,
    pair: Annotated[
        str | None, option(metavar="SOURCE:TARGET", help="tasks of this pair of domains only")
    ] = None,
    method: Annotated[str | None, option(help="tasks of this method only")] = None,
    folder: Annotated[
        Path | None, option("--to", help="folder for the figures [default: OUT/figures]")
    ] = None,
    form: Annotated[
        Literal["svg", "png"], option("--format", help="figure format", show_default=True)
    ] = "svg",
) -> None:
    """Draw the figures of the last run of SUITE."""
    package = _package()
    from pseudocal.lab.bench.figures import chosen_tasks, draw_figures

    store = package.Store(out)
    found = chosen_tasks(store.load_suite(_name(suite, quick=quick)), pair, method)
    paths = draw_figures(found, store, folder or out / "figures", form=form)
    if not paths:
        raise InputError(f"expected scores of {found.name} in {out}, got none: run it first")
    for path in paths:
        typer.echo(path)


@bench.command(epilog=EPILOG, short_help="Compare all calibrators on saved features and logits.")
def compare(
    folder: Annotated[
        Path,
        typer.Argument(help="folder with {src_train,src_val,tgt,mix}_{feature,output,label}.npy"),
    ],
    seed: Annotated[
        int, option(min=0, help="seed of baselines that draw samples", show_default=True)
    ] = 0,
    form: Annotated[
        Literal["md", "csv"], option("--format", help="table format", show_default=True)
    ] = "md",
) -> None:
    """Compare all calibrators that saved features, logits and labels suffice for."""
    _package()
    from pseudocal.lab.bench.calibrators import COMPARED
    from pseudocal.lab.bench.formats import saved_scores
    from pseudocal.lab.bench.saved_outputs import compare_outputs
    from pseudocal.lab.bench.suites import ALL

    found = compare_outputs(folder, seed=seed)
    typer.echo(saved_scores(found, form))
    for each in found:
        if each.error is not None:
            typer.echo(f"{COMPARED[each.calibrator].title}: {each.error}", err=True)
    if missing := [
        COMPARED[name].title for name in ALL if name not in {each.calibrator for each in found}
    ]:
        typer.echo(
            f"left out, since {folder} has not all that they need: {', '.join(missing)}", err=True
        )
    if "pseudocal" not in {each.calibrator for each in found}:
        typer.echo(
            "PseudoCal needs mix_output and mix_label: the logits of mixup samples, and their labels",
            err=True,
        )


@bench.command(name="list", epilog=EPILOG)
def list_suites() -> None:
    """List the built-in suites."""
    from pseudocal.lab.bench.suites import PLANS

    for name, plan in PLANS.items():
        tasks = plan.tasks()
        counts = {
            "pair": len({task.pair for task in tasks}),
            "method": len({task.method for task in tasks}),
        }
        size = ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for word, n in counts.items())
        typer.echo(f"{name:26}{size:24}{plan.about}")


def _load_plugins(names: list[str] | None) -> tuple[str, ...]:
    from pseudocal.lab.plugins import load_plugins

    return load_plugins(names or ())


def _chosen(suite: str, **settings: Any) -> Suite:
    from pseudocal.lab.bench.suite_file import read_suite
    from pseudocal.lab.bench.suites import built_in

    return (
        read_suite(Path(suite), **settings)
        if suite.endswith(".toml")
        else built_in(suite, **settings)
    )


def _starts_elsewhere(task: Task) -> bool:
    """Whether a task's backbone starts from weights that were chosen.

    Those of "default" are its own.
    """
    return task.checkpoint is None and task.weights != "default"


def _tell_weights(suite: Suite) -> None:
    """Say what the backbones start from.

    The names on the hub do not tell, and weights may be random.
    """
    from pseudocal.lab.adapt.weights import about_weights

    names = {"deeplab": "resnet101"}  # what a segmenter stands on
    chosen = [task for task in suite.tasks if _starts_elsewhere(task)]
    for name, weights in sorted(
        {(names.get(task.backbone, task.backbone), task.weights) for task in chosen}
    ):
        typer.echo(about_weights(name, weights), err=True)


def _of_file(suite: str) -> dict[str, Any]:
    """Where a suite's file says that its data is and that it runs."""
    from pseudocal.lab.bench.suite_file import read_local

    return read_local(Path(suite)) if suite.endswith(".toml") else {}


def _processes(device: str, workers: int) -> int:
    """Return how many jobs run at a time on this machine."""
    from pseudocal.lab.bench.executors import visible_gpus

    return workers or len(visible_gpus() if device == "cuda" else []) or cores()


def _executor(device: str, workers: int, *, ray: bool, address: str | None) -> Any:
    """Return what runs the jobs.

    On "cuda" each process has a GPU of its own, and Ray gives each job one.
    """
    from pseudocal.lab.bench.executors import Pool, Ray, visible_gpus

    if address is None:  # the GPUs of a cluster are elsewhere
        check_device(device)
    gpus = visible_gpus() if device == "cuda" else []
    processes = _processes(device, workers)
    if ray or address:
        return Ray(address, processes, gpus=int(device.startswith("cuda")))
    return Pool(processes, gpus) if processes > 1 else nullcontext(map)


def _name(suite: str, *, quick: bool) -> str:
    name = Path(suite).stem if suite.endswith(".toml") else suite
    return f"{name}-quick" if quick else name


def _package() -> Any:
    try:
        import pseudocal.lab.bench.grid
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "bench") from error
    return pseudocal.lab.bench
