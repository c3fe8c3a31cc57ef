"""The three steps, and the functions that users call.

    collect(model, data)          -> run           the only step that runs a model
    conclude(run, labels=None)    -> Calibration   a pure function of the run and a person's labels
    render(run, calibration)      -> files         predictions, report, calibrated model

`calibrate` is all three, `refine` the last two.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from pseudocal.app.collect import Models, collect, open_models, opinion_names, plan_run
from pseudocal.app.export import reopen_model, why_not_exported
from pseudocal.app.job import DEFAULT_METHOD, ImageSettings, Job, Note, Sampling, Tick
from pseudocal.app.label_files import read_labels
from pseudocal.app.models.files import OutputType
from pseudocal.app.monitor_folder import LABELLING, is_monitor
from pseudocal.app.publishing import publishing
from pseudocal.app.render import Result, render, render_threshold
from pseudocal.app.run import (
    CALIBRATION,
    COLLECTED,
    CONFIRMED_FILES,
    MODEL_FILES,
    OF_JOB,
    THRESHOLD,
    Run,
)
from pseudocal.app.thresholds import RunThreshold, stored_labels, threshold_of
from pseudocal.arrays import InputError
from pseudocal.calibrators import Calibration, PseudoCal, uncalibrated
from pseudocal.calibrators.calibration import refine_any_logits
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.labelled_accuracy import gap
from pseudocal.calibrators.labels import LabelSample
from pseudocal.calibrators.pseudocal import unmixed_calibration
from pseudocal.calibrators.refinement import measure_temperature
from pseudocal.calibrators.saved_outputs import calibrate_saved_outputs
from pseudocal.calibrators.trust import warn_if_unreliable
from pseudocal.calibrators.wording import Reason, ReasonCode, count
from pseudocal.files import own_file
from pseudocal.predictors import models_in
from pseudocal.scaling import TemperatureScaling

Done = TypeVar("Done")
Steps = Generator[Note | Tick, None, Result]


def conclude(
    run: Run, labels: LabelSample | None = None, *, in_use: float | None = None
) -> Calibration:
    """The calibration that follows from a run and, if there are any, from a person's labels.

    A temperature in use stays, unless the labels speak against it.
    """
    record = run.record
    evidence = run.evidence()
    if evidence is None:  # saved outputs: nothing was mixed
        settings = {"outputs": record.model.name, "seed": 0} | record.settings
        if record.second_models:
            calibration = calibrate_saved_outputs(run.logits, run.second_logits[0], settings)
        else:
            counts = {"pairs": 0, "mixup_samples": 0, "forward_passes": 0}
            calibration = replace(uncalibrated(), settings=settings, counts=counts)
    elif record.not_mixed is not None:
        settings = {"seed": record.method.seed} | record.settings
        why = Reason(ReasonCode(record.not_mixed))
        calibration = unmixed_calibration(evidence, settings, why)
    else:
        calibration = record.method.conclude(evidence, record.settings)
    trust = calibration.trust
    if record.data.assumed and trust is not None:
        trust = trust.doubted(Reason(ReasonCode.PREPROCESSING_ASSUMED))
    calibration = replace(calibration, trust=trust)
    if labels is not None:
        calibration = refine_any_logits(calibration, run.logits, labels, groups=run.groups)
    calibration = replace(calibration, versions=record.versions)
    if labels is None or in_use is None:
        return calibration
    return _keep_in_use(calibration, run, labels, in_use)


def _keep_in_use(
    calibration: Calibration, run: Run, labels: LabelSample, in_use: float
) -> Calibration:
    """The temperature in use, if labels leave it open and the new one does not reduce the gap."""
    measured = calibration.measured
    fitted = calibration.scaling
    if measured is None or not isinstance(fitted, TemperatureScaling):
        return calibration
    # T = 1 means that no temperature is in use yet
    if measured.verdict not in ("apply", "caution") or in_use in (1.0, fitted.temperature):
        return calibration
    kept = gap(float(confidences(run.logits, in_use).mean()), measured.accuracy)
    inside = measured.temperature.low <= in_use <= measured.temperature.high
    if not inside or abs(kept.value) > abs(measured.gap_after.value):
        return calibration
    judged = measure_temperature(run.logits, labels, in_use, groups=run.groups)
    numbers = {"temperature": in_use, "fitted": fitted.temperature}
    reasons = (*measured.reasons, Reason(ReasonCode.LABELS_KEEP_T, numbers))
    measured = replace(measured, reasons=reasons, gap_after=kept, error_after=judged.error_after)
    return replace(calibration, scaling=replace(fitted, temperature=in_use), measured=measured)


def calibrate_steps(job: Job, models: Models | None = None) -> Steps:
    """Collect, conclude and render, yielding notes and progress; returns the result."""
    names = opinion_names(job.second_opinion, job.data)
    job = replace(job, method=_for_runs(job.method), second_opinion=names)
    _check_output_folder(job)
    with publishing(job.out) as aside:
        if job.labels is None:
            yield from _warn_of_replaced_labels(job.out, "Pass --labels labels.csv")
        models = models or open_models(job)
        if job.ray is None:
            plan = plan_run(job, models)
            yield from plan.notes
            run = yield from collect(plan, aside)
        else:
            from pseudocal.app.collect_ray import collect_on_ray  # Ray, which few runs need

            run = yield from collect_on_ray(job, models, aside)
        labels = None if job.labels is None else read_labels(job.labels, run, job.sampling)
        calibration = conclude(run, labels)
        reason = why_not_exported(run, calibration, models[0])
        if reason is not None:
            yield Note(reason)
        kept = job.keep_logits
        result = render(
            run, calibration, aside, out=job.out, kept=kept, model=models[0], labels=labels
        )
        yield from _warn_of_removed_files(job.out, aside)
        if not kept:
            for name in set(COLLECTED) - set(OF_JOB):
                (aside / name).unlink(missing_ok=True)
    return result


def _check_output_folder(job: Job) -> None:
    """Refuse a monitor, and a folder where results would replace a model or mix with the data."""
    out = job.out.resolve()
    for model in (job.model, *models_in(job.second_opinion)):
        place = Path(model).resolve()
        if place.parent == out and place.name in MODEL_FILES:
            raise InputError(
                f"the results would replace the model {model}: choose another folder",
                setting="out",
            )
    if is_monitor(job.out):
        raise InputError(f"{job.out} is a monitor: choose another folder", setting="out")
    if Path(job.data).resolve() == out:
        raise InputError(
            f"the results would be written between the data in {job.data}: choose another folder",
            setting="out",
        )


def saved_steps(out: Path) -> Steps:
    """Conclude from two saved outputs, and render; returns the result."""
    with publishing(out, keep_run=True) as aside:
        run = Run.open(out)
        yield from _warn_of_replaced_labels(out, f"Run pseudocal refine {out} labels.csv")
        yield Note(f"{len(run.logits):,} {run.record.data.preparation}")
        result = render(run, conclude(run), aside, out=out)
        yield from _warn_of_removed_files(out, aside)
    return result


def _warn_of_replaced_labels(out: Path, how: str) -> Iterator[Note]:
    """Warn that a calibration from a person's labels is about to be replaced by one without.

    Args:
        out: the run folder.
        how: what to do to use the labels again.

    """
    try:
        measured = Calibration.load(own_file(out, CALIBRATION)).measured
    except (InputError, OSError):  # there is none, or it is damaged
        return
    if measured is not None:
        held = f"{out} held a calibration from {count(measured.labels, 'label')}"
        text = f"warning: {held}; this run replaces it. {how} to use them again."
        yield Note(text, always=True)


def _warn_of_removed_files(out: Path, aside: Path) -> Iterator[Note]:
    """Warn about what a service may use and the new results do not replace: model and threshold."""
    again = {THRESHOLD: ": find it again with pseudocal threshold, which comes last"}
    for name in (*CONFIRMED_FILES, THRESHOLD):
        if os.path.lexists(out / name) and not os.path.lexists(aside / name):
            yield Note(f"warning: removed {out / name}{again.get(name, '')}", always=True)


def _for_runs(method: PseudoCal) -> PseudoCal:
    """The method with the defaults of a run; what the user has chosen stays.

    Inputs are shuffled, so pairs within a batch are as good as any. A temperature that should not be
    applied is not written to any file.
    """
    return replace(
        method,
        pairing=method.pairing or "batch",
        on_unreliable=method.on_unreliable or "identity",
    )


def refine_steps(
    out: Path,
    labels: Path,
    *,
    sampling: Sampling = "stratified",
    max_error: float | None = None,
    in_use: float | None = None,
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> Steps:
    """Conclude again with a person's labels, and render; the same labels give the same bytes."""
    with publishing(out, keep_run=True) as aside:
        run = Run.open(out, trust_paths=trust_paths)
        given = read_labels(labels, run, sampling)
        if given.pool is not None:
            raise InputError(
                f"expected labels that represent all inputs, got labels drawn for a threshold in "
                f"{labels}: run pseudocal threshold {out} {labels}"
            )
        calibration = conclude(run, given, in_use=in_use)
        model = None
        if calibration.refused is None:
            model = reopen_model(run, trust=trust, device=device)
        if model is not None:
            reason = why_not_exported(run, calibration, model)
            if reason is not None:
                yield Note(reason)
        found = None if max_error is None else threshold_of(run, calibration, max_error, given)
        result = render(
            run, calibration, aside, out=out, model=model, labels=given, threshold=found
        )
        yield from _warn_of_removed_files(out, aside)
    return result


def run_steps(steps: Generator[Note | Tick, None, Done]) -> Done:
    """Run steps to their end, and return the result; notes and progress are dropped."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            done: Done = end.value
            return done


def calibrate(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    second_opinion: str | Sequence[str] | None = None,
    method: PseudoCal = DEFAULT_METHOD,
    classes: Sequence[str] = (),
    ground_truth: str | Path | None = None,
    labels: str | Path | None = None,
    sampling: Sampling = "stratified",
    preprocessing: ImageSettings | None = None,
    second_preprocessing: ImageSettings | None = None,
    preprocess_check: bool = True,
    features: Sequence[str] | None = None,
    text: str | None = None,
    field: str | None = None,
    logits_tensor: str | None = None,
    output_type: OutputType | None = None,
    binary: bool = False,
    architecture: str | None = None,
    trust: bool = False,
    batch_size: int | None = None,
    max_samples: int | None = None,
    max_bad: float = 0.01,
    predict: Literal["all", "seen"] = "all",
    table: Literal["csv", "parquet"] | None = None,
    keep_logits: bool = True,
    device: str = "cpu",
    workers: int = 0,
    ray: str | None = None,
) -> Result:
    """Calibrate a model on unlabelled data, and write a calibrated model, predictions and a report.

        result = calibrate("model.onnx", "images/", "out/", second_opinion="other.onnx")
        result.calibration.verdict, result.report

    Args:
        model: a model file, a Hugging Face folder, `hf:owner/name`, or `module:function`.
        data: a folder or list of images, an array or a table; with `ray` also files of rows, a
            pattern or an address.
        out: the folder for the results.
        second_opinion: another model of the same classes, named like `model`, or several of them;
            "surrogate" or "surrogate:BACKBONE" for a surrogate of the model's own predictions,
            "zero-shot:FOLDER" for a CLIP or SigLIP that is told the class names.
        method: the settings of the calibration.
        classes: the class names; empty for those of the model.
        ground_truth: the true classes, a file or a folder of masks, for evaluation only.
        labels: a file of labels that a person gave to the inputs of the labelling page.
        sampling: how these inputs were drawn: "stratified" by `label`, or "random" by someone else.
        preprocessing: how images are prepared, as far as the model does not say.
        second_preprocessing: the same for second models, where it differs from the model and their
            files do not say.
        preprocess_check: whether to try other ways to prepare images first, and to stop if one is
            clearly better.
        features: the columns of a table to use; None for all.
        text: the column of texts of a table, for a model that takes texts; None for `text`.
        field: the name of the array to use if an .npz file holds several.
        logits_tensor: the model output that holds the logits; None if there is only one.
        output_type: whether the model returns "logits" or "probabilities"; None for logits, refused
            if they look like probabilities.
        binary: whether the model returns one number per input, for the second of two classes.
        architecture: the network of a state dict, such as "resnet50".
        trust: whether the files of the models may run code.
        batch_size: inputs per forward pass; None for the default, or for a segmentation model as
            many as fit into memory.
        max_samples: the largest number of inputs to use, drawn at random.
        max_bad: the fraction of inputs that may be unreadable.
        predict: after an early stop, predict "all" inputs or only those already "seen".
        table: the format of the predictions; None for parquet if pyarrow is installed.
        keep_logits: whether to keep the run, which `label` and `refine` need.
        device: the device the models run on: "cpu", "cuda", "cuda:1", ...
        workers: the number of threads that read inputs, or of workers of a cluster; 0 for one per
            core.
        ray: the address of a Ray cluster, or "local" to start one on this machine.

    """
    for name, value in {"model": model, "data": data, "out": out}.items():
        if not isinstance(value, str | Path):
            raise InputError(
                f"{name} is a {type(value).__name__}, not a name: PseudoCal().fit takes what is in "
                "memory"
            )
    job = Job(
        model=str(model),
        data=str(data),
        out=Path(out),
        method=method,
        second_opinion=tuple(models_in(second_opinion)),
        trust=trust,
        architecture=architecture,
        preprocessing=preprocessing or {},
        second_preprocessing=second_preprocessing or {},
        preprocess_check=preprocess_check,
        logits_tensor=logits_tensor,
        output_type=output_type,
        binary=binary,
        features=None if features is None else tuple(features),
        text=text,
        field=field,
        classes=tuple(classes),
        ground_truth=None if ground_truth is None else Path(ground_truth),
        device=device,
        workers=workers,
        batch_size=batch_size,
        max_samples=max_samples,
        max_bad=max_bad,
        predict=predict,
        table=table,
        keep_logits=keep_logits,
        labels=None if labels is None else Path(labels),
        sampling=sampling,
        ray=ray,
    )
    result = run_steps(calibrate_steps(job))
    if result.calibration.measured is None:  # labels outrank the label-free verdict
        warn_if_unreliable(result.calibration.trust)
    return result


def refine(
    out: str | Path,
    labels: str | Path,
    *,
    sampling: Sampling = "stratified",
    max_error: float | None = None,
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> Result:
    """Recalibrate a run with a person's labels.

        pseudocal.app.label("out/", 50)                  # then somebody opens out/label.html
        result = pseudocal.app.refine("out/", "labels.csv")
        result.calibration.measured.accuracy, result.calibration.verdict

    Args:
        out: the folder that `calibrate` or `collect_outputs` wrote.
        labels: a table with the columns `file` and `label`, of pixels also `y` and `x`. A label is
            a class, "cannot tell" or "none of these".
        sampling: how these inputs were drawn: "stratified" by `label`, or "random" by someone else.
        max_error: the fraction of the accepted predictions that may be wrong, to find the threshold
            as well; None to find none.
        trust: whether the file of the model, which is exported again, may run code.
        trust_paths: whether to read files that the folder names outside itself, if somebody else
            wrote it.
        device: where the model runs, to check what was exported.

    """
    steps = refine_steps(
        Path(out),
        Path(labels),
        sampling=sampling,
        max_error=max_error,
        trust=trust,
        trust_paths=trust_paths,
        device=device,
    )
    return run_steps(steps)


def threshold(
    out: Path | str,
    labels: Path | str | None = None,
    *,
    max_error: float,
    sampling: Sampling = "stratified",
    one_model: bool = False,
) -> RunThreshold:
    """Find the confidence above which at most `max_error` of the predictions are wrong.

        pseudocal.app.label("out/", 100, for_threshold=0.05)    # then somebody opens out/label.html
        found = pseudocal.app.threshold("out/", "labels.csv", max_error=0.05)
        found.basis, found.confidence, found.coverage

    It writes `threshold.json`, and the predictions again with a column `accept`. An estimate without
    labels does not replace a threshold from labels: nothing is written then.

    Args:
        out: the folder that `calibrate` or `collect_outputs` wrote.
        labels: a table of labels, as `refine` takes it, or of inputs that `label` drew with
            `for_threshold`. None for an estimate.
        max_error: the fraction of the accepted predictions that may be wrong.
        sampling: how the inputs were drawn, if the table does not say so: "stratified" by `label`,
            or "random" by someone else.
        one_model: whether to rank by confidence alone, though the run has a second model.

    """
    out = Path(out)
    if is_monitor(out):
        raise InputError(f"{out} is a monitor, not a run: use {out / LABELLING}")
    with publishing(out) as aside:
        run = Run.open(out)
        given = None if labels is None else read_labels(Path(labels), run, sampling)
        calibration = run.calibration_in_force()
        found = threshold_of(run, calibration, max_error, given, one_model=one_model)
        if given is not None or not stored_labels(out):
            render_threshold(run, calibration, found, aside)
    return found
