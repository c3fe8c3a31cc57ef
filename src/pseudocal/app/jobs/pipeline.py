"""The jobs that write a folder of results.

A calibration from the names of a model and of data, and its refinement.

A `LocalRun` runs a calibration in this process, a `RayRun` on a cluster. Whether the model
classifies inputs or pixels is known from its first output. The pipeline is the same for all. A
refinement takes a person's answers and brings the folder up to date with what the calibration has
kept there; nothing is predicted again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.inputs.sets import opinion_names
from pseudocal.app.inputs.tables import read_array
from pseudocal.app.jobs.answers import refined_by
from pseudocal.app.jobs.job import JOB_FILE, DrawnBy, Job, Note, Result, Tick
from pseudocal.app.jobs.kept_target import KeptTarget, check_paths, image_tables
from pseudocal.app.jobs.local import Backend, LocalRun, Predicted, data_name, row_tables
from pseudocal.app.jobs.made_here import remove
from pseudocal.app.jobs.saved_outputs import standing
from pseudocal.app.jobs.setup import Models, open_models
from pseudocal.app.jobs.staging import PARTS, staged, write_job
from pseudocal.app.models.files import AsLogits, OutputType, kind_of, open_model
from pseudocal.app.models.hugging_face import MODEL_FOLDER
from pseudocal.app.models.model import OpenModel
from pseudocal.app.report import (
    AboutModel,
    ImageSummary,
    Report,
    RowSummary,
    report_of,
    timing_since,
    write_predictions,
    write_report,
)
from pseudocal.app.report.card import card_of
from pseudocal.app.report.predictions import Target
from pseudocal.arrays import InputError, Inputs
from pseudocal.calibrators import Calibration, Reason
from pseudocal.calibrators.evidence import Evidence
from pseudocal.calibrators.pseudocal import NO_MIXUP, unmixed_calibration
from pseudocal.calibrators.trust import warn_if_unreliable
from pseudocal.files import own_file
from pseudocal.skipped import one_line

PROBE_FILE = "probe.npy"
KEPT = ("logits.npy", "pixels.npz", PROBE_FILE, "target.json")  # what questions and answers need
MODEL_FILES = (
    MODEL_FOLDER,
    "model.onnx",
    "model.pt",
    "model.pt2",
)  # what a calibrated model may be written as
SAMPLED = "; figures from a sample of the pixels"
RUNTIMES = {
    "onnxruntime": "onnxruntime",
    "pillow": "PIL",
    "pyarrow": "pyarrow",
    "ray": "ray",
    "scikit-learn": "sklearn",
    "torch": "torch",
    "transformers": "transformers",
}


def calibrate(model: str | Path, data: str | Path, out: str | Path, **settings: Any) -> Result:
    """Calibrate a model on unlabelled data, and write a calibrated model, predictions and a report.

        result = calibrate("model.onnx", "images/", "out/", second_opinion="other.onnx")
        result.calibration.trust.verdict, result.report

    Args:
        model: a model file, a Hugging Face folder, `hf:owner/name`, or `module:function`.
        data: a folder or list of images, an array or a table.
        out: the folder for the results.
        settings: the other fields of `Job`, such as `second_opinion` or `method=PseudoCal(...)`.

    """
    named: dict[str, Any] = {"model": model, "data": data, "out": out}
    for name, value in named.items():
        if not isinstance(value, str | Path):
            kind = type(value).__name__
            raise InputError(
                f"expected {name} as a name, got {kind}: PseudoCal().fit takes what is in memory"
            )
    files = {
        key: Path(settings[key])
        for key in ("answers", "labels")
        if isinstance(settings.get(key), str)
    }
    result = _result_of(job_steps(Job(str(model), str(data), Path(out), **(settings | files))))
    if result.calibration.measured is None:  # answers outrank the label-free verdict
        warn_if_unreliable(result.calibration.trust)
    return result


def refine_out(
    out: Path | str,
    answers: Path | str,
    *,
    drawn_by: DrawnBy = "ask",
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> Result:
    """Bring what `calibrate` wrote up to date with a person's answers to the questions of `ask`.

        pseudocal.app.ask("out/", 50)                    # then somebody opens out/label.html
        result = pseudocal.app.refine("out/", "answers.csv")
        result.calibration.measured.accuracy, result.calibration.verdict

    Args:
        out: the folder that `calibrate` or `keep_outputs` wrote.
        answers: a table with the columns `file` and `label`, of pixels also `y` and `x`. A label is
            a class, "cannot tell" or "none of these".
        drawn_by: who drew the inputs that have an answer: "ask", or "random" if someone else did,
            at random.
        trust: whether the file of the model, which is written again, may run code.
        trust_paths: whether to read files that the folder names outside itself, if somebody else
            wrote it.
        device: where the model runs, to try what was written.

    """
    consent = {"trust": trust, "trust_paths": trust_paths}
    return _result_of(
        refine_steps(Path(out), Path(answers), drawn_by=drawn_by, device=device, **consent)
    )


def _result_of(steps: Generator[Note | Tick, None, Result]) -> Result:
    """Run a job to its end, and return its result; its notes and its progress are dropped."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def job_steps(job: Job, models: Models | None = None) -> Generator[Note | Tick, None, Result]:
    """Run a job step by step, and yield notes and progress for the caller to show.

    Args:
        job: what to do.
        models: the models of the job if they are open already.

    """
    started = time.monotonic()
    # the inputs are shuffled already, so pairs within a batch will do; a refused temperature
    # becomes T = 1
    job = replace(job, method=replace(job.method, pairing="batch", on_unreliable="identity"))
    in_parts = job.ray is not None and job.predict == "all" and job.answers is None
    with staged(job.out, keeps=(PARTS,) if in_parts else ()) as aside:
        run = _run(job, models, aside)
        yield from map(Note, run.setup.notes)
        with run.connected():
            evidence, record = yield from run.collect()
            calibration = _concluded(job, run.setup.unmixed, evidence, record)
            files, why_none = _export(job.outputs, run.setup.model, calibration, aside, run.probe())
            if job.answers is None or calibration.refused is None:  # else answers may bring one
                yield from map(Note, why_none)
            predicted: Predicted = yield from run.predict(calibration, evidence)
        calibration.save(aside / "calibration.json")
        write_job(run.setup, aside)
        report = report_of(
            predicted.summary,
            evidence.mixup_samples.labelled if evidence.mixup_samples.seen else NO_MIXUP,
            model=_about_model(job, run.setup.model, files),
            data=predicted.data,
            timing=timing_since(started),
        )
        _write_results(report, aside)
        result = Result(
            calibration,
            report,
            aside,
            None if predicted.predictions is None else Path(predicted.predictions),
        )
        if job.answers is not None:
            result = yield from _refined(
                aside, aside, job.answers, drawn_by=job.drawn_by, model=run.setup.model
            )
        if not job.keep_logits:
            for name in KEPT:
                (aside / name).unlink(missing_ok=True)
    return replace(
        result,
        out=job.out,
        predictions=None if result.predictions is None else job.out / result.predictions,
    )


def refine_steps(
    out: Path,
    answers: Path,
    *,
    drawn_by: DrawnBy = "ask",
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> Generator[Note | Tick, None, Result]:
    """As `refine_out`, step by step. The same answers give the same files, to the last byte."""
    with staged(out, keeps=(JOB_FILE, "label.html", *KEPT)) as aside:
        check_paths(Target.load(out), out, trust_paths)
        result = yield from _refined(
            out, aside, answers, drawn_by=drawn_by, trust=trust, device=device
        )
    return replace(result, out=out, predictions=out / str(result.predictions))


def _refined(
    folder: Path,
    aside: Path,
    answers: Path,
    *,
    drawn_by: DrawnBy,
    model: OpenModel | None = None,
    trust: bool = False,
    device: str = "cpu",
) -> Generator[Note | Tick, None, Result]:
    """Refine what a calibration has left in a folder, and write what changes aside."""
    kept = KeptTarget.load(folder)
    done = standing(folder, kept.target)
    calibration, answered = refined_by(done.calibration, kept, answers, drawn_by)
    files: tuple[str, ...] = ()
    # write the model again if it was written, or if only a refusal or the lack of a temperature was
    # in the way
    held = done.model.files or done.calibration.refused or done.calibration.method == "none"
    if (
        held
        and calibration.refused is None
        and not kept.target.saved
        and kind_of(kept.target.model) != "callable"
    ):
        probe = np.array(read_array(own_file(folder, PROBE_FILE)))
        model = model or _opened_again(kept, probe, trust=trust, device=device)
        files, why_none = _export(kept.target.outputs, model, calibration, aside, probe)
        yield from map(Note, why_none)
    for name in set(MODEL_FILES) - set(files):  # of a calibration that was not published
        remove(aside / name)
    data = done.data
    summary: RowSummary | ImageSummary
    if kept.pixels is None:
        summary = RowSummary(calibration, kept.target.classes)
        tables = row_tables(summary, kept.logits, kept.target)
    else:
        summary = ImageSummary(calibration, kept.target.classes)
        tables = image_tables(summary, kept)
        data = replace(data, preparation=data.preparation.removesuffix(SAMPLED) + SAMPLED)
    kind = next(
        (kind for kind in ("csv", "parquet") if (folder / f"predictions.{kind}").exists()), None
    )
    name = write_predictions(aside, tables, kind=kind)
    calibration.save(aside / "calibration.json")
    report = report_of(
        summary, answered, model=replace(done.model, files=files), data=data, timing=done.timing
    )
    _write_results(report, aside)
    return Result(calibration, report, folder, Path(name))


def _opened_again(kept: KeptTarget, probe: Inputs, *, trust: bool, device: str) -> OpenModel:
    """The model of a calibration, which must still say what it said then."""
    target = kept.target
    meaning: dict[str, Any] = {"output_type": target.outputs, "binary": target.binary}
    model = open_model(
        target.model,
        trust=trust,
        typed=False,
        device=device,
        logits_tensor=target.output,
        **meaning,
    )
    try:
        said, then = kept.said_of(AsLogits(model.predict, **meaning)(probe))
    except InputError:
        raise
    except Exception as error:  # a model may raise anything about inputs that it does not take
        why = one_line(error)
        raise InputError(
            f"expected a model that takes the inputs of {PROBE_FILE}, got {target.model}: {why}"
        ) from error
    if said.shape != then.shape or not np.allclose(
        said, then, rtol=1e-3, atol=1e-3 * max(1.0, float(np.ptp(then)))
    ):
        raise InputError(
            f"expected the model that was calibrated, got {target.model}, which says {said[0]} of the first input "
            f"and not {then[0]}: calibrate it again"
        )
    return model


def _run(job: Job, models: Models | None, aside: Path) -> Backend:
    """Where the job runs."""
    if job.ray is None:
        return LocalRun(job, models or open_models(job), aside)
    from pseudocal.app.jobs.cluster import RayRun  # imports Ray, which a local job does not need

    return RayRun(job, models or open_models(job, device="cpu"), aside)


def _concluded(
    job: Job, unmixed: Reason | None, evidence: Evidence, record: dict[str, Any]
) -> Calibration:
    """Conclude the calibration, with all settings needed to repeat the job."""
    asked = {
        "model": job.model,
        "second_opinion": opinion_names(job.second_opinion, job.data),
        "data": data_name(job),
        "max_samples": job.max_samples,
    }
    if unmixed is None:
        calibration = job.method.conclude(evidence, record | asked)
    else:
        calibration = unmixed_calibration(
            evidence, {"seed": job.method.seed} | record | asked, unmixed
        )
    runtimes = {name: version(name) for name, module in RUNTIMES.items() if module in sys.modules}
    return replace(calibration, versions=calibration.versions | runtimes)


def _export(
    outputs: OutputType | None,
    model: OpenModel,
    calibration: Calibration,
    aside: Path,
    probe: Inputs,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the model with the temperature inside if the format allows it.

    Return its files, or why there are none.
    """
    if model.export is None or (calibration.method == "none" and calibration.measured is None):
        return (), ()
    if outputs == "probabilities" and model.kind != "onnx":
        return (), (
            f"no calibrated model is written: the {model.kind} returns probabilities, not logits",
        )
    if calibration.refused is not None:
        return (), (
            "no calibrated model is written: the temperature that was fitted should not be applied",
        )
    return tuple(model.export(calibration.temperature, aside, probe)), ()


def _write_results(report: Report, aside: Path) -> None:
    """Write the report, and the card of a model that has a folder of its own."""
    write_report(report, aside)
    if (aside / MODEL_FOLDER).is_dir():
        (aside / MODEL_FOLDER / "README.md").write_text(
            card_of(report), encoding="utf-8", errors="replace"
        )


def _about_model(job: Job, model: OpenModel, files: tuple[str, ...]) -> AboutModel:
    inside = model.kind == "onnx" and model.logits_tensor is None
    recipe = (
        "huggingface-text" if model.kind == "huggingface" and model.expects.text else model.kind
    )
    return AboutModel(
        name=job.model,
        title=Path(job.model).name,
        kind=model.kind,
        recipe="onnx-inside" if inside else recipe,
        output=model.logits_tensor,
        notes=model.notes,
        files=files,
    )
