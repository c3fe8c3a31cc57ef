"""New data of a monitor: batches with identities, and the models of the baseline that predict them.

A monitor names its models in a file. They are opened if this user wrote the file on this machine, or
with consent; code in model files needs consent each time (docs/reference/security.md).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.collect import Plan, collect, open_models, opinion_files, opinion_names, plan_run
from pseudocal.app.inputs.tables import check_regular, read_columns
from pseudocal.app.job import Job, Note, Tick, absolute, job_of, read_job
from pseudocal.app.monitor_folder import STATE, State
from pseudocal.app.outputs import collect_outputs, read_outputs
from pseudocal.app.periods import format_time, parse_every, period_starts, times_in
from pseudocal.app.run import JOB, Run, is_signature_of, is_signed, not_yours
from pseudocal.arrays import InputError
from pseudocal.calibrators.wording import count
from pseudocal.files import is_inside, own_file
from pseudocal.monitor import Signals
from pseudocal.predictors import models_in

UNREADABLE_SHOWN = 3  # names of skipped inputs in a note
MAX_BAD = 0.1  # fraction of a small batch that may be unreadable


# ------------------------------------------------------------------------------ models


def job_of_run(run: Run, trust_paths: bool) -> Job:
    """The settings of a run, as far as they apply to other data.

    `run.json` is signed and `job.toml` is not: both must name the same models.
    """
    path = own_file(run.folder, JOB)
    job = read_job(path, out=run.folder, trust=True)  # consent is asked for when models are opened
    job = replace(job, second_opinion=opinion_names(job.second_opinion, job.data))
    known = (run.record.model.name, *run.record.second_files)
    strange = [
        file
        for file in model_files(job)
        if not is_inside(file, run.folder) and not (is_signed(run.record) and file in known)
    ]
    if strange and not trust_paths:
        raise not_yours(path, strange[0])
    return replace(
        job,
        trust=False,
        job_file=None,
        data="",
        ground_truth=None,
        labels=None,
        ray=None,
        keep_logits=True,
        predict="all",
        max_bad=max(job.max_bad, MAX_BAD),
    )


def model_names(job: Job) -> list[str]:
    """The models of a job, as it names them."""
    return [job.model, *models_in(job.second_opinion)]


def stored_job(content: dict[str, Any]) -> Job:
    """The settings of the baseline as the state has them, for other data."""
    return job_of({**content, "data": ""})


def model_files(job: Job) -> list[str]:
    """The models of a job; of surrogates and the like, their files."""
    return [absolute(job.model), *opinion_files(models_in(job.second_opinion))]


def fingerprints_of(job: Job) -> dict[str, str]:
    """The SHA-256 of each model that is a file."""
    return {name: _hash_of_file(Path(name)) for name in model_files(job) if Path(name).is_file()}


def check_consent(folder: Path, state: State, trust_paths: bool) -> None:
    """Refuse to open the models of a monitor that somebody else wrote."""
    if state.job is None or trust_paths:
        return
    names = model_names(stored_job(state.job))
    if not is_signature_of(names, state.signature):
        raise not_yours(folder, names[0])


# ------------------------------------------------------------------------------ batches


@dataclass(frozen=True)
class Part:
    """A batch that is not counted yet."""

    identity: str  # its identity
    time: str  # its time
    # the numbers of its inputs in the order in which they came; None for all, in any order
    rows: NDArray[np.intp] | None = None


class ModelSource:
    """Inputs that the models of the baseline predict."""

    def __init__(
        self, data: str, state: State, folder: Path, column: str | None, trust: bool, device: str
    ) -> None:
        self.data = data
        self._column = column  # of times, which is no feature
        job = stored_job(state.job or {})
        # a monitor names its models in a file, so code that it names needs consent
        job_file = folder / STATE
        self._job = replace(job, data=data, trust=trust, job_file=job_file, device=device)
        for name in state.fingerprints:
            if not Path(name).is_file():
                raise InputError(f"the model {name} is not there any more: move it back")
        for name, known in state.fingerprints.items():
            if _hash_of_file(Path(name)) != known:
                raise InputError(
                    f"the model {name} has changed since the baseline: put the original model back "
                    "there and deploy the calibrated copy under another path, or calibrate again and "
                    "restart the monitor",
                    setting="baseline",
                    value="OUT",
                )
        self._notes_said = False

    @cached_property
    def _plan(self) -> Plan:
        """The models and the data, open."""
        models = open_models(self._job)
        job = replace(self._job, preprocess_check=False)  # the baseline decided
        if self._column is not None and not job.features and not models[0].expects.columns:
            names = [name for name in read_columns(Path(self.data)) if name != self._column]
            job = replace(job, features=tuple(names))
        return plan_run(job, models)

    def parts(self, every: str | None, now: datetime) -> tuple[list[Part], int]:
        """The batches of the data, and how many inputs have to wait for the end of a period.

        Args:
            every: the length of a period; None for one batch.
            now: the time of the call.

        """
        if every is None or self._column is None:
            return [Part(_identity_of_inputs(self._plan), format_time(now))], 0
        period = parse_every(every)
        times = times_in(Path(self.data), self._column)
        starts = period_starts(times, period)
        found = []
        waiting = 0
        for start in np.unique(starts):
            rows = np.flatnonzero(starts == start)
            begin = start.astype(datetime).replace(tzinfo=UTC)
            if begin + period > now:
                waiting += len(rows)
                continue
            in_order = rows[np.argsort(times[rows], kind="stable")]
            time = format_time(begin)
            found.append(Part(identity_of("period", every, time), time, in_order))
        return found, waiting

    def collect(self, part: Part, folder: Path) -> Generator[Note | Tick, None, Run]:
        """Predict a batch with the models of the baseline."""
        opened = self._plan
        if part.rows is not None:
            opened = replace(opened, order=opened.order[np.isin(opened.order, part.rows)])
        opened = replace(opened, job=replace(opened.job, out=folder))
        if not self._notes_said:  # all batches have the same models
            yield from dict.fromkeys(opened.notes)
            self._notes_said = True
        try:
            run = yield from collect(opened, folder)
        except InputError as error:
            if error.setting != "max_bad":
                raise
            raise InputError(f"{error.message}; remove such files from {self.data}") from error
        bad = run.record.data.unreadable
        if bad:
            shown = ", ".join(name for name, _ in bad[:UNREADABLE_SHOWN])
            more = ", ..." if len(bad) > UNREADABLE_SHOWN else ""
            yield Note(f"{count(len(bad), 'input')} could not be read: {shown}{more}")
        return run

    def names(self) -> list[str]:
        """The names of all inputs."""
        inputs = self._plan.inputs
        return [inputs.name(i) for i in range(len(inputs))]


class OutputsSource:
    """Outputs that another program has saved."""

    def __init__(self, path: Path, state: State) -> None:
        check_regular(path, "a file of outputs, as the baseline was")
        self.data = str(path)
        self._path = path
        self._state = state

    def parts(self, every: str | None, now: datetime) -> tuple[list[Part], int]:
        """The file is one batch."""
        if every is not None:
            raise InputError("saved outputs have no column of times: pass one file per batch")
        identity = identity_of("outputs", _hash_of_file(self._path))
        return [Part(identity, format_time(now))], 0

    def collect(self, part: Part, folder: Path) -> Generator[Note | Tick, None, Run]:
        """Take the outputs as a run."""
        collect_outputs(self._path, folder, classes=self._state.classes, **self._state.saved)
        yield Tick("reading", 1, 1, "files")
        return Run.open(folder)

    def names(self) -> list[str]:
        """The numbers of the rows."""
        saved = read_outputs(self._path, self._state.saved.get("field"))
        return [str(i) for i in range(len(saved.array))]


Source = ModelSource | OutputsSource


# ------------------------------------------------------------------------------ identities


def identity_of(*parts: Any) -> str:
    """A name for content: the same content has the same name."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.tobytes() if isinstance(part, np.ndarray) else str(part).encode()
        digest.update(f"{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _identity_of_inputs(opened: Plan) -> str:
    """The identity of a batch: the content of its files, whatever they are called."""
    inputs = opened.inputs
    files = [inputs.image_file(i) for i in range(len(inputs))]
    if files and all(file is not None for file in files):
        hashes = sorted(_hash_of_file(file) for file in files if file is not None)
        return identity_of("images", *hashes)
    return identity_of("rows", _hash_of_file(Path(opened.job.data)))


def _hash_of_file(path: Path) -> str:
    """The SHA-256 of a file; of one that cannot be read, of its name."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:  # the batch counts it as unreadable
        return hashlib.sha256(os.fsencode(path)).hexdigest()


def arrays_of(run: Run) -> list[NDArray[Any]]:
    """The logits of all models of a run."""
    return [np.asarray(run.logits), *(np.asarray(each) for each in run.second_logits)]


# ------------------------------------------------------------------------------ signals


def second_of(run: Run) -> NDArray[Any] | None:
    """The logits of the first second model; None without one.

    Batches of saved outputs come without a second model, so that of their baseline does not count.
    """
    if run.record.saved or not run.record.second_models:
        return None
    return np.asarray(run.second_logits[0])


def signals_of(run: Run) -> Signals:
    """The signals of a run."""
    return Signals.of(np.asarray(run.logits), second_of(run))


def agreement_of(run: Run) -> float | None:
    """How often the second model agrees; None without one."""
    second = second_of(run)
    if second is None:
        return None
    return float((second.argmax(axis=1) == run.logits.argmax(axis=1)).mean())


def check_rows_only(run: Run) -> None:
    """Refuse a segmentation model: its pixels are not independent."""
    if run.pixels is not None:
        raise InputError(
            f"{run.folder} is of a segmentation model, which cannot be watched yet: use "
            "pseudocal.monitor with one mean signal per image"
        )
