"""The whole grid: features that many models share, then every model, then every comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pseudocal.files import OutputError
from pseudocal.lab.adapt.runs import torch_threads
from pseudocal.lab.bench.calibrators import COMPARED
from pseudocal.lab.bench.executors import Workers
from pseudocal.lab.bench.segmenters import check_segmentation
from pseudocal.lab.bench.stages import compare_calibrators, describe, forget_stages, is_compared, make_model
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.task import Suite, Task
from pseudocal.lab.bench.views import View, backbone_of, domains_of, has_frozen_backbone, view_features
from pseudocal.lab.data import check_same_classes

Tell = Callable[[str, int, int], None]  # what is going on, how many are done, of how many


@dataclass(frozen=True)
class FailedTask:
    """A task that could not be finished.

    Attributes:
        task: the task, or a member of the ensemble of one.
        error: what went wrong, in one line.

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
    """Do what is missing of a suite, and say which tasks, or members of their ensembles, failed.

    Args:
        suite: the tasks and the calibrators to compare on each.
        store: where everything is written.
        executor: `map`, or one of `pseudocal.lab.bench.executors`, which do several jobs at a time.
        redo: a stage that is done again, with those after it.
        progress: is told what is going on, how many jobs are done, and of how many.

    """
    store.save_suite(suite)
    models = with_members(suite.tasks, suite.calibrators)
    for task in models if redo else ():
        forget_stages(task, store, redo or "")
    missing = [task for task in models if not store.has_model(task)]
    waiting = [task for task in suite.tasks if not is_compared(task, suite.calibrators, store)]
    _check_data([*missing, *waiting], store)
    _all("features", shared_features(missing, waiting, suite.calibrators), partial(_compute, store), executor, progress)
    trainings = list(dict.fromkeys(task.training for task in missing))
    failed = {each.task: each.error for each in _all("models", trainings, partial(_model, store), executor, progress)}
    ready = [task for task in waiting if task.training not in failed]
    compare = partial(_compare, suite.calibrators, store)
    return [
        *(FailedTask(task, failed[task.training]) for task in models if task.training in failed),
        *_all("calibrations", ready, compare, executor, progress),
    ]


def with_members(tasks: Sequence[Task], calibrators: Sequence[str]) -> list[Task]:
    """All models that the tasks need: their own, and where calibrators ask for ensembles the other members."""
    ensembles = any(COMPARED[name].needs_ensemble for name in calibrators)
    return list(dict.fromkeys([*tasks, *(member for task in tasks if ensembles for member in task.members())]))


def _check_data(tasks: Sequence[Task], store: Store) -> None:
    """Refuse, before anything runs, settings that make no sense and data that are not there."""
    for task in {(task.data, task.source, task.target): task for task in tasks}.values():
        if task.segments:
            check_segmentation(task)
        else:
            check_same_classes(*domains_of(task, store.root))


def _all(
    what: str, jobs: Sequence[Any], do: Callable[[Any], FailedTask | None], executor: Workers, progress: Tell
) -> list[FailedTask]:
    failures = []
    progress(what, 0, len(jobs))
    for done, failure in enumerate(executor(do, jobs), start=1):
        failures += [failure] if failure else []
        progress(what, done, len(jobs))
    return failures


def _model(store: Store, task: Task) -> FailedTask | None:
    try:
        with limited(store.threads):
            make_model(task, store)
    except OutputError:  # the others could not be written either
        raise
    except Exception as error:  # whatever it is, it is written down and the others go on
        return FailedTask(task, describe(error))
    return None


def _compare(calibrators: Sequence[str], store: Store, task: Task) -> FailedTask | None:
    try:
        with limited(store.threads):
            compare_calibrators(task, calibrators, store)
    except OutputError:
        raise
    except Exception as error:
        return FailedTask(task, describe(error))
    return None


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """So many threads for torch and for NumPy's BLAS: sums over other numbers of threads end in other digits."""
    from threadpoolctl import threadpool_limits

    with torch_threads(threads), threadpool_limits(threads):
        yield


@dataclass(frozen=True)
class SharedFeatures:
    """The features of one view of one of a task's domains, which many tasks need.

    Attributes:
        task: one of these tasks.
        domain: "source" or "target".
        view: the images as they are, or mixed.

    """

    task: Task
    domain: Literal["source", "target"]
    view: View

    @property
    def key(self) -> tuple[Any, ...]:
        """What decides the features: the seed only where it draws the backbone's weights."""
        task, backbone = self.task, backbone_of(self.task.backbone, self.task.weights, self.task.seed)
        part = self.domain == "target" and task.scenario == "partial-set"
        drawn = None if backbone.pretrained else task.seed
        return (task.data, getattr(task, self.domain), part, task.backbone, task.weights, drawn, self.view)


def shared_features(models: Sequence[Task], tasks: Sequence[Task], calibrators: Sequence[str]) -> list[SharedFeatures]:
    """Each (backbone, domain, view) once, of tasks whose backbone is frozen."""
    hows = [COMPARED[name].synthesis for name in calibrators]
    shares = sorted({how.lam for how in hows if how is not None and how.strategy == "PseudoCal"})
    needed = [SharedFeatures(task, domain, View()) for task in models for domain in ("source", "target")]
    needed += [SharedFeatures(task, "target", View(lam, task.seed)) for task in tasks for lam in shares]
    frozen = [each for each in needed if not each.task.segments and has_frozen_backbone(each.task)]
    return list({each.key: each for each in frozen}.values())


def _compute(store: Store, job: SharedFeatures) -> None:
    """Compute features, unless they are there; where that fails, the tasks that need them fail too, and say why."""
    with limited(store.threads), suppress(Exception):
        source, target = domains_of(job.task, store.root)
        view_features(job.task, (source if job.domain == "source" else target).inputs, job.view)
