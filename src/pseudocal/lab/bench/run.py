"""The whole grid: features that many share, then every model, then every comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pseudocal.lab.adapt.loop import torch_threads
from pseudocal.lab.bench import segmented, segmenters
from pseudocal.lab.bench.domains import domains_of
from pseudocal.lab.bench.executors import Executor, in_process
from pseudocal.lab.bench.stages import calibrate_and_score, describe, forget, has_model, is_compared, train_and_predict
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.synthesis import SYNTHESES
from pseudocal.lab.bench.task import Suite, Task
from pseudocal.lab.bench.views import View, backbone_of, features, is_frozen
from pseudocal.lab.data import check_same_classes

Progress = Callable[[str, int, int], None]  # what is going on, how many are done, of how many


@dataclass(frozen=True)
class Failure:
    """A task that could not be finished."""

    task: Task
    error: str


@dataclass(frozen=True)
class Runner:
    """How tasks of one kind are run: what is shared by many, a model, a comparison. All of it is on disk afterwards."""

    what: str  # what is shared, as progress calls it
    check: Callable[[Task, Store], Any]
    shared: Callable[[Sequence[Task], Sequence[Task], Sequence[str]], list[Any]]  # of models, tasks, calibrators
    prepare: Callable[[Any, Store], None]
    model: Callable[[Task, Store], None]
    has_model: Callable[[Task, Store], bool]
    compare: Callable[[Task, Sequence[str], Store], None]
    is_compared: Callable[[Task, Sequence[str], Store], bool]
    forget: Callable[[Task, Store, str], None]


def run(
    suite: Suite,
    store: Store,
    *,
    executor: Executor = in_process,
    redo: str | None = None,
    progress: Progress = lambda what, done, total: None,
) -> list[Failure]:
    """Do what is missing of a suite, and say which tasks, or members of their ensembles, failed."""
    store.save_suite(suite)
    for task in with_members(suite.tasks, suite.calibrators) if redo else ():
        RUNNERS[task.runner].forget(task, store, redo or "")
    failures: dict[Task, Failure] = {}
    for name, runner in RUNNERS.items():
        tasks = [task for task in suite.tasks if task.runner == name]
        models = [task for task in with_members(tasks, suite.calibrators) if not runner.has_model(task, store)]
        open_tasks = [task for task in tasks if not runner.is_compared(task, suite.calibrators, store)]
        for task in {(task.data, task.source, task.target): task for task in [*models, *open_tasks]}.values():
            runner.check(task, store)
        jobs = runner.shared(models, open_tasks, suite.calibrators)
        _all(runner.what, jobs, partial(_prepare, name, store), executor, progress)
        for failure in _all("models", models, partial(_model, name, store), executor, progress):
            failures[failure.task] = failure
        ready = [task for task in open_tasks if task not in failures]
        compare = partial(_compare, name, suite.calibrators, store)
        for failure in _all("calibrations", ready, compare, executor, progress):
            failures[failure.task] = failure
    return list(failures.values())


def with_members(tasks: Sequence[Task], calibrators: Sequence[str]) -> list[Task]:
    """All models that the tasks need: their own, and where calibrators ask for ensembles the other members."""
    together = {"ensemble", *(name for name, how in SYNTHESES.items() if how.together)}
    members = [m for task in tasks for m in task.members()] if together & set(calibrators) else []
    return list(dict.fromkeys([*tasks, *members]))


def _all(
    what: str, items: Sequence[Any], do: Callable[[Any], Failure | None], executor: Executor, progress: Progress
) -> list[Failure]:
    failures = []
    progress(what, 0, len(items))
    for done, failure in enumerate(executor(do, items), start=1):
        failures += [failure] if failure else []
        progress(what, done, len(items))
    return failures


def _prepare(runner: str, store: Store, job: Any) -> None:
    """Compute what is shared. Where that fails, whoever needs it will fail too, and write down why."""
    with limited(store.threads), suppress(Exception):
        RUNNERS[runner].prepare(job, store)


def _model(runner: str, store: Store, task: Task) -> Failure | None:
    return _tried(task, store, lambda: RUNNERS[runner].model(task, store))


def _compare(runner: str, calibrators: Sequence[str], store: Store, task: Task) -> Failure | None:
    return _tried(task, store, lambda: RUNNERS[runner].compare(task, calibrators, store))


def _tried(task: Task, store: Store, do: Callable[[], None]) -> Failure | None:
    try:
        with limited(store.threads):
            do()
    except Exception as error:  # whatever it is, it is written down and the others go on
        return Failure(task, describe(error))
    return None


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """So many threads for torch and for NumPy's BLAS: sums over other numbers of threads end in other digits."""
    from threadpoolctl import threadpool_limits

    with torch_threads(threads), threadpool_limits(threads):
        yield


@dataclass(frozen=True)
class Shown:
    """A view of one of a task's domains, whose features many tasks need."""

    task: Task
    domain: str  # "source" or "target"
    view: View


def shown(models: Sequence[Task], tasks: Sequence[Task], calibrators: Sequence[str]) -> list[Shown]:
    """Each (backbone, domain, view) once."""
    needed = [Shown(task, "source", View()) for task in models]
    needed += [Shown(task, "target", View(kind)) for task in models for kind in ("real", "flipped")]
    shares = sorted({SYNTHESES[n].lam for n in calibrators if n in SYNTHESES and SYNTHESES[n].strategy == "PseudoCal"})
    needed += [Shown(task, "target", View("mixed", lam, task.seed)) for task in tasks for lam in shares]
    return list({_features_of(each): each for each in needed if is_frozen(each.task)}.values())


def _features_of(each: Shown) -> tuple[Any, ...]:
    """What decides the features: the seed only where it draws the backbone's weights."""
    task, backbone = each.task, backbone_of(each.task.backbone, each.task.weights, each.task.seed)
    part = each.domain == "target" and task.scenario == "partial-set"
    drawn = None if backbone.pretrained else task.seed
    return (task.data, getattr(task, each.domain), part, task.backbone, task.weights, drawn, each.view)


def prepare(job: Shown, store: Store) -> None:
    """Compute the features of a view, unless they are there."""
    source, target = domains_of(job.task, store.root)
    features(job.task, (source if job.domain == "source" else target).inputs, job.view)


def check(task: Task, store: Store) -> None:
    """Refuse, before anything runs, data that are not there."""
    check_same_classes(*domains_of(task, store.root))


# A kind of task with other data and other stages has an entry of its own here; as long as it writes `scores.json`,
# tables know no difference.
RUNNERS: dict[str, Runner] = {
    "classification": Runner(
        what="features",
        check=check,
        shared=shown,
        prepare=prepare,
        model=train_and_predict,
        has_model=has_model,
        compare=calibrate_and_score,
        is_compared=is_compared,
        forget=forget,
    ),
    "segmentation": Runner(
        what="segmenters",
        check=segmenters.check,
        shared=segmenters.shared,
        prepare=segmenters.train,
        model=segmenters.ensure_model,
        has_model=segmenters.has_model,
        compare=segmented.calibrate_and_score,
        is_compared=is_compared,
        forget=segmenters.forget,
    ),
}
