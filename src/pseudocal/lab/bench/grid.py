"""Run a whole suite.

First the features that many models share, then every model, then every comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pseudocal.arrays import InputError
from pseudocal.files import OutputError
from pseudocal.lab.adapt.runs import torch_threads
from pseudocal.lab.bench.calibrators import (
    MixupVariant,
    find_compared,
    seed_of_repeat,
    with_repeats,
)
from pseudocal.lab.bench.executors import Workers
from pseudocal.lab.bench.segmentation_tasks import check_segmentation
from pseudocal.lab.bench.stages import (
    compare_calibrators,
    describe,
    forget_stages,
    is_compared,
    make_model,
)
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.task import Suite, Task
from pseudocal.lab.bench.views import (
    View,
    backbone_of,
    domains_of,
    has_frozen_backbone,
    view_features,
)
from pseudocal.lab.data import check_same_classes
from pseudocal.lab.plugins import load_plugins

# Takes the name of the phase, how many jobs are done, and the total.
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class FailedTask:
    """A task that could not be finished.

    Attributes:
        task: the task, or a member of a task's ensemble.
        error: the error in one line.

    """

    task: Task
    error: str


def run(
    suite: Suite,
    store: Store,
    *,
    executor: Workers = map,
    redo: str | None = None,
    progress: Tell = lambda what, done, total: None,
) -> list[FailedTask]:
    """Run the missing parts of a suite, and return the models and tasks that failed.

    Args:
        suite: the tasks, and the calibrators to compare on each.
        store: the output folder.
        executor: `map`, or one of `pseudocal.lab.bench.executors`, which run several jobs at a
            time.
        redo: the first stage to run again, with all later ones; None to run only what is missing.
        progress: called with the name of the phase, the number of jobs done, and the total.

    """
    load_plugins(store.plugins)
    store.save_suite(suite)
    calibrators = with_repeats(suite.calibrators, suite.repeats)
    models = with_members(suite.tasks, calibrators)
    for task in models:
        if store.is_outdated(task):
            forget_stages(task, store, "train")
        elif redo:
            forget_stages(task, store, redo)
    for task in dict.fromkeys([*models, *(task.training for task in models)]):
        store.sweep(task)
    missing = [task for task in models if not store.has_model(task)]
    waiting = [task for task in suite.tasks if not is_compared(task, calibrators, store)]
    check_data([*missing, *waiting], store)
    _all(
        "features",
        shared_features(missing, waiting, calibrators),
        partial(_compute, store),
        executor,
        progress,
    )
    trainings = list(dict.fromkeys(task.training for task in missing))
    failed = {
        each.task: each.error
        for each in _all("models", trainings, partial(_model, store), executor, progress)
    }
    ready = [task for task in waiting if task.training not in failed]
    compare = partial(_compare, calibrators, store)
    return [
        *(FailedTask(task, failed[task.training]) for task in models if task.training in failed),
        *_all("calibrations", ready, compare, executor, progress),
    ]


def with_members(tasks: Sequence[Task], calibrators: Sequence[str]) -> list[Task]:
    """List all models that the tasks need.

    Their own and, if a calibrator needs ensembles or a second model, the other members.
    """
    compared = [find_compared(name) for name in calibrators]
    ensembles = any(each.needs_ensemble or each.needs_second for each in compared)
    alone = [
        task.checkpoint
        for task in tasks
        if task.checkpoint is not None and "{seed}" not in task.checkpoint
    ]
    if ensembles and alone:
        raise InputError(
            f"expected {{seed}} in a checkpoint, for the members of an ensemble, got {alone[0]}"
        )
    models = list(tasks)
    if ensembles:
        models += [member for task in tasks for member in task.members()]
    return list(dict.fromkeys(models))


def check_data(tasks: Sequence[Task], store: Store) -> None:
    """Refuse invalid settings, missing data and missing weights before anything runs."""
    for task in {(task.data, task.source, task.target): task for task in tasks}.values():
        if task.segments:
            check_segmentation(task, store)
        else:
            check_same_classes(*domains_of(task, store))
    built = [task for task in tasks if not task.segments and task.checkpoint is None]
    for task in {(task.backbone, task.weights): task for task in built}.values():
        backbone_of(task.backbone, task.weights, task.seed)


def _all(
    what: str,
    jobs: Sequence[Any],
    do: Callable[[Any], FailedTask | None],
    executor: Workers,
    progress: Tell,
) -> list[FailedTask]:
    failures = []
    progress(what, 0, len(jobs))
    for done, failure in enumerate(executor(do, jobs), start=1):
        if failure is not None:
            failures.append(failure)
        progress(what, done, len(jobs))
    return failures


def _model(store: Store, task: Task) -> FailedTask | None:
    try:
        load_plugins(store.plugins)
        with limited(store.threads):
            make_model(task, store)
    except OutputError:  # the others could not be written either
        raise
    except Exception as error:  # whatever it is, it is written down and the others go on
        return FailedTask(task, describe(error))
    return None


def _compare(calibrators: Sequence[str], store: Store, task: Task) -> FailedTask | None:
    try:
        load_plugins(store.plugins)
        with limited(store.threads):
            compare_calibrators(task, calibrators, store)
    except OutputError:
        raise
    except Exception as error:
        return FailedTask(task, describe(error))
    return None


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Limit the threads of torch and of the BLAS of NumPy and SciPy.

    The last digits depend on the number of threads.
    """
    import scipy.linalg  # noqa: F401 - loads SciPy's own BLAS, so that it is limited too
    from threadpoolctl import threadpool_limits

    with torch_threads(threads), threadpool_limits(threads):
        yield


@dataclass(frozen=True)
class SharedFeatures:
    """The features of one view of a domain, which many tasks share.

    Attributes:
        task: one of these tasks.
        domain: "source" or "target".
        view: the original images, or mixup samples of them.

    """

    task: Task
    domain: Literal["source", "target"]
    view: View

    @property
    def key(self) -> tuple[Any, ...]:
        """What the features depend on; the seed only if the backbone's weights are random."""
        task = self.task
        backbone = backbone_of(self.task.backbone, self.task.weights, self.task.seed)
        part = self.domain == "target" and task.scenario == "partial-set"
        drawn = None if backbone.pretrained else task.seed
        return (
            task.data,
            getattr(task, self.domain),
            part,
            task.backbone,
            task.weights,
            drawn,
            self.view,
        )


def shared_features(
    models: Sequence[Task], tasks: Sequence[Task], calibrators: Sequence[str]
) -> list[SharedFeatures]:
    """List each (backbone, domain, view) once, for tasks whose backbone is frozen."""
    mixed = set()  # the weight of the larger input, and the number of the repetition
    for each in map(find_compared, calibrators):
        variant = MixupVariant() if each.needs_second else each.mixup_variant
        if variant is not None and variant.strategy == "PseudoCal":
            mixed.add((variant.lam, each.repeat))
    needed = []
    for task in models:
        needed.append(SharedFeatures(task, "source", View()))
        needed.append(SharedFeatures(task, "target", View()))
    for task in tasks:
        needed += [
            SharedFeatures(task, "target", View(lam, seed_of_repeat(task.seed, repeat)))
            for lam, repeat in sorted(mixed)
        ]
    frozen = [each for each in needed if not each.task.segments and has_frozen_backbone(each.task)]
    return list({each.key: each for each in frozen}.values())


def _compute(store: Store, job: SharedFeatures) -> None:
    """Compute features unless they exist.

    If that fails, the tasks that need them fail too and report why.
    """
    with limited(store.threads), suppress(Exception):
        load_plugins(store.plugins)
        source, target = domains_of(job.task, store)
        domain = source if job.domain == "source" else target
        view_features(job.task, domain.inputs, job.view, store.device)
