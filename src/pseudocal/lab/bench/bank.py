"""A bank: the saved outputs of all tasks of a suite as one folder, without models or images.

    BANK/bank.json            the tasks and calibrators of the suite; written last
    BANK/tasks/.../           for each task, files of its folder in the store
        source_val.npz        logits, features, labels of held-out source rows
        source_train.npz      features of the source rows that were trained on
        target.npz            logits, features
        target_labels.npy     for the oracle and the metrics
        mixup/NAME.npz        logits and labels of mixup samples
        mixup/estimates.json  what a second model and a surrogate say of the accuracy
        calibrations/NAME     results of calibrators that need the model itself, such as MC-Dropout
        scores.json           scores of calibrators from plugins, for readers without the plugin

The other members of a task's ensemble have a folder with `target.npz`. A bank is read as a `Store`,
by the code that `bench run` fits and scores with, so the scores are identical. It may come
from anyone: it has arrays and JSON only, pickles are refused, and nothing outside of the folder is
read.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS
from pseudocal.files import is_inside, load_json, replacing, save_json
from pseudocal.lab.bench.calibrators import (
    compared_names,
    find_compared,
    is_built_in,
    is_known,
    plugin_names,
    sees_labels,
    with_repeats,
)
from pseudocal.lab.bench.executors import Workers
from pseudocal.lab.bench.grid import limited, with_members
from pseudocal.lab.bench.records import Record, unique
from pseudocal.lab.bench.saved_outputs import compare_outputs, read_outputs
from pseudocal.lab.bench.stages import describe
from pseudocal.lab.bench.stages.calibrate import (
    Fitted,
    fit_calibrator,
    is_outdated,
    results_of,
)
from pseudocal.lab.bench.stages.mixup import estimates_path
from pseudocal.lab.bench.stages.score import fit_with_labels, load_fitted, score_fitted
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.suites import ALL
from pseudocal.lab.bench.task import Suite, Task
from pseudocal.lab.plugins import load_plugins

LIST = "bank.json"
SCORES = "scores.json"
FORMAT = "pseudocal bank"
FORMAT_VERSION = 1
OUTPUTS = ("source_val.npz", "source_train.npz", "target.npz", "target_labels.npy")
NOT_IN_A_BANK = {"model", "members", "head", "target_inputs"}  # parts of `Material`


# ------------------------------------------------------------------------------ export


def export_bank(suite: Suite, store: Store, bank: Path) -> None:
    """Copy the outputs of all tasks of a suite into a new folder.

    Args:
        suite: the suite, as it was run into the store.
        store: the output folder of the run.
        bank: the new folder.

    """
    if any(task.segments for task in suite.tasks):
        raise InputError(
            f"expected a suite of classifiers, got {suite.name}: the logits of every pixel are "
            "too large to store"
        )
    if bank.exists() and (not bank.is_dir() or any(bank.iterdir())):
        raise InputError(f"expected a new or empty folder, got {bank}")
    missing = [task for task in suite.tasks if not store.scores(task)]
    if missing:
        raise InputError(
            f"expected all tasks of {suite.name} in {store.out}, got no scores of "
            f"{missing[0].pair} {missing[0].method} seed {missing[0].seed}: run it first"
        )
    names = with_repeats(suite.calibrators, suite.repeats)
    into = Store(bank)
    for task in suite.tasks:
        for name in unique(_files_of(task, names, store)):
            _copy(store.folder(task) / name, into.folder(task) / name)
        of_plugins = {
            name: scores
            for name, scores in store.scores(task).items()
            if _is_of_plugin(name, suite)
        }
        if of_plugins:
            save_json(into.folder(task) / SCORES, of_plugins)
    for task in with_members(suite.tasks, names):
        if task not in suite.tasks:
            _copy(store.folder(task) / "target.npz", into.folder(task) / "target.npz")
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "suite": suite.to_dict()}
    save_json(bank / LIST, content)


def _is_of_plugin(name: str, suite: Suite) -> bool:
    """Whether a calibrator of a suite, or a repetition of it, is a plugin's."""
    base = _without_repeat(name)
    return base in suite.calibrators and not is_built_in(base)


def _files_of(task: Task, names: Sequence[str], store: Store) -> Iterator[str]:
    """List the files of a task's folder that a bank needs, some of which may be absent."""
    yield from OUTPUTS
    folder = store.folder(task)
    for name in names:
        compared = find_compared(name)
        if compared.mixup_variant is not None:
            yield f"mixup/{name}.npz"
        elif compared.needs_second:
            yield estimates_path(task, name, store).relative_to(folder).as_posix()
        elif needs_model(name):
            yield from (f"calibrations/{name}.{suffix}" for suffix in ("json", "npy", "code"))


def _copy(source: Path, target: Path) -> None:
    if source.exists():  # source-free tasks have no source, and calibrators may have failed
        with replacing(target) as aside:
            shutil.copyfile(source, aside)


def needs_model(name: str) -> bool:
    """Whether a calibrator needs the model or images, which a bank does not have.

    >>> [needs_model(name) for name in ("transcal", "mc-dropout", "pseudocal", "ensemble")]
    [False, True, False, False]

    Args:
        name: the name, as a suite has it.

    """
    compared = find_compared(name)
    if compared.mixup_variant is not None:  # a bank has the mixup samples
        return False
    if compared.estimator:
        return compared.estimator == "pseudocal-released"
    entry = CALIBRATORS.get(compared.calibrator)
    return entry is not None and bool(NOT_IN_A_BANK & set(entry.parts))


# ------------------------------------------------------------------------------ compare


@dataclass(frozen=True)
class BankComparison:
    """The scores of calibrators on banks.

    Attributes:
        suite: all tasks, and the calibrators that were compared.
        records: the scores, in the order of the suite.
        problems: what failed and why, one line each.
        stored: calibrators whose results were read rather than fitted.
        without_plugin: calibrators of plugins that are not loaded, whose scores were read.

    """

    suite: Suite
    records: tuple[Record, ...]
    problems: tuple[str, ...]
    stored: tuple[str, ...]
    without_plugin: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """A task of a bank, and the calibrators to compare on it."""

    bank: Path
    task: Task
    calibrators: tuple[str, ...]  # with repetitions
    plugins: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The result of one calibrator on one task: scores, or why there are none."""

    task: Task
    calibrator: str
    record: Record | None = None
    error: str = ""
    stored: bool = False


def is_bank(folder: Path) -> bool:
    """Whether a folder is a bank rather than the saved outputs of one model."""
    return (folder / LIST).is_file()


def load_bank(folder: Path) -> Suite:
    """Read the list of a bank, which may come from anyone.

    Args:
        folder: the bank.

    """
    path = folder / LIST
    content = load_json(path, "the list of a bank")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"expected the list of a bank, got {path}, which is another file")
    if content.get("format_version") != FORMAT_VERSION:
        given = content.get("format_version")
        raise InputError(f"expected format version {FORMAT_VERSION} in {path}, got {given!r}")
    try:
        suite = Suite.from_dict(content["suite"])
        tasks = [Store(folder).folder(task) for task in suite.tasks]
        odd = [name for name in suite.calibrators if set(name) & set("/\\")]
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"expected a suite in {path}, got {describe(error)}") from error
    if odd:
        raise InputError(f"expected names of calibrators in {path}, got {odd[0]!r}")
    for place in [*tasks, *(each for each in folder.rglob("*") if each.is_symlink())]:
        if not is_inside(place, folder):
            raise InputError(f"expected all files in {folder}, got {place}, which is elsewhere")
    return suite


def compare_banks(
    folders: Sequence[Path],
    calibrators: Sequence[str] = (),
    *,
    plugins: tuple[str, ...] = (),
    seed: int = 0,
    executor: Workers = map,
) -> BankComparison:
    """Fit and score calibrators on all tasks of several folders.

    Args:
        folders: banks, or folders with the saved outputs of one model each.
        calibrators: their names; by default those of the banks and of plugins.
        plugins: Python files and modules that register calibrators.
        seed: the seed of baselines that draw samples, for folders that are no banks.
        executor: `map`, or a pool of processes.

    """
    load_plugins(plugins)
    suites = {folder: load_bank(folder) for folder in folders if is_bank(folder)}
    singles = [folder for folder in folders if folder not in suites]
    if not calibrators:
        calibrators = unique(name for suite in suites.values() for name in suite.calibrators)
        calibrators = unique([*(calibrators or ALL), *plugin_names()])
    check_names(calibrators, [name for suite in suites.values() for name in suite.calibrators])
    jobs = [
        Job(folder, task, with_repeats(names, suite.repeats), plugins)
        for folder, suite in suites.items()
        for names in [[each for each in calibrators if is_known(each) or each in suite.calibrators]]
        for task in suite.tasks
    ]
    twice = [task for task, count in Counter(job.task for job in jobs).items() if count > 1]
    if twice:
        raise InputError(
            f"expected other tasks in each bank, got {twice[0].pair} {twice[0].method} seed "
            f"{twice[0].seed} in two of them: compare these banks one by one"
        )
    found = [each for outcomes in executor(compare_task, jobs) for each in outcomes]
    for folder in singles:
        found += compare_single(folder, calibrators, seed)
    tasks = unique([*(job.task for job in jobs), *(each.task for each in found)])
    found.sort(key=lambda each: tasks.index(each.task))  # a pool returns tasks in any order
    suite = Suite(
        ", ".join([*(suite.name for suite in suites.values()), *map(str, singles)]),
        tuple(tasks),
        tuple(calibrators),
        repeats=max((each.repeats for each in suites.values()), default=1),
    )
    stored = [each.calibrator for each in found if each.stored]
    return BankComparison(
        suite,
        tuple(each.record for each in found if each.record is not None),
        tuple(_problems(found)),
        tuple(unique(name for name in stored if is_known(name))),
        tuple(unique(name for name in stored if not is_known(name))),
    )


def check_names(calibrators: Sequence[str], stored: Sequence[str] = ()) -> None:
    """Refuse unknown calibrators.

    Args:
        calibrators: names, with settings or without.
        stored: further names, which the suites of banks have.

    """
    known = unique([*compared_names(), *stored])
    for name in calibrators:
        if not is_known(name) and name not in stored:
            raise InputError(f"expected calibrators among {', '.join(known)}, got {name!r}")


def compare_task(job: Job) -> list[Outcome]:
    """Fit and score calibrators on one task of a bank."""
    load_plugins(job.plugins)
    store = Store(job.bank)
    task = job.task
    with limited(store.threads):
        try:
            read_outputs(store.folder(task), ("src_train", "src_val", "tgt"))  # checks them
        except InputError as error:
            names = unique(_without_repeat(name) for name in job.calibrators)
            return [Outcome(task, name, error=describe(error)) for name in names]
        return [each for name in job.calibrators for each in _outcomes(task, name, store)]


def _outcomes(task: Task, name: str, store: Store) -> list[Outcome]:
    """Compare a calibrator; without its plugin, read the scores of all its repetitions."""
    if is_known(name):
        return [_compare(task, name, store)]
    try:
        return _stored_scores(task, name, store)
    except Exception as error:  # of a bank whose files are wrong
        return [Outcome(task, name, error=describe(error))]


def _stored_scores(task: Task, name: str, store: Store) -> list[Outcome]:
    path = store.folder(task) / SCORES
    stored = load_json(path, "scores") if path.is_file() else {}
    runs = {run: stored[run] for run in stored if _without_repeat(run) == name}
    if not runs:
        raise InputError(f"expected the plugin of {name!r}, got none: name its file with --plugin")
    found = []
    for run, scores in runs.items():
        if any(not isinstance(value, int | float | None) for value in scores.values()):
            raise InputError(f"expected numbers as scores of {run!r} in {path}, got others")
        record = Record(task, name, **scores, repeat=find_compared(run).repeat)
        found.append(Outcome(task, name, record, stored=True))
    return found


def _compare(task: Task, name: str, store: Store) -> Outcome:
    base = _without_repeat(name)
    try:
        path = _stored(task, name, store)
        fitted = load_fitted(path) if path is not None else _fit(task, name, store)
        scored = score_fitted(task, name, fitted, store)
    except Exception as error:  # of a plugin, or of a bank whose files are wrong
        return Outcome(task, base, error=describe(error))
    repeat = find_compared(name).repeat
    record = Record(task, base, **scored.metrics, temperature=scored.temperature, repeat=repeat)
    return Outcome(task, base, record, stored=path is not None)


def _without_repeat(name: str) -> str:
    return name.split(", repeat=")[0]


def _stored(task: Task, name: str, store: Store) -> Path | None:
    """Find the result of a calibrator that needs the model."""
    folder = store.folder(task)
    if is_outdated(folder, name):
        raise InputError(
            "expected the plugin that the bank was exported with, got an edited one, and it needs "
            "the model: use bench run"
        )
    return next((path for path in results_of(folder, name) if path.is_file()), None)


def _fit(task: Task, name: str, store: Store) -> Fitted:
    if needs_model(name):
        raise InputError(
            "expected a model, got a bank, which has outputs only: after bench run, export it "
            "again with the same --plugin"
        )
    if sees_labels(name):
        return fit_with_labels(task, name, store)
    return fit_calibrator(task, name, store)


def compare_single(folder: Path, calibrators: Sequence[str], seed: int) -> list[Outcome]:
    """Fit and score calibrators on the saved outputs of one model; skip those that lack data.

    Args:
        folder: the folder.
        calibrators: names of calibrators.
        seed: the seed of baselines that draw samples.

    """
    task = Task("saved", "source", folder.as_posix(), method="saved")
    found = []
    with limited(1):
        scores = compare_outputs(folder, calibrators=calibrators, seed=seed)
    for each in scores:
        if each.error is None:
            metrics = dict(each.metrics)
            record = Record(task, each.calibrator, **metrics, temperature=each.temperature)  # type: ignore[arg-type]
            found.append(Outcome(task, each.calibrator, record))
        else:
            found.append(Outcome(task, each.calibrator, error=each.error))
    return found


def _problems(found: Sequence[Outcome]) -> Iterator[str]:
    """Say what failed; an error that a calibrator repeats on many tasks is said once."""
    failed: dict[tuple[str, str], list[Task]] = {}
    for each in found:
        if each.record is None:
            failed.setdefault((each.calibrator, each.error), []).append(each.task)
    for (name, error), tasks in failed.items():
        first = f"{tasks[0].pair} {tasks[0].method} seed {tasks[0].seed}"
        more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
        yield f"{first}{more}: no {find_compared(name).title}: {error}"
