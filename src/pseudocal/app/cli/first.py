"""What the first answer of a model tells: whether all that was asked for can be done with it."""

from __future__ import annotations

from pseudocal.app.cli.job import Job, Work
from pseudocal.arrays import InputError, Logits


def check_answer(work: Work, logits: Logits) -> None:
    """Refuse now what could not be done at the end."""
    job, classes = work.job, logits.shape[1]
    check_names(job, classes)
    if logits.ndim == 2:
        if work.masks is not None:
            raise InputError(f"expected a label for each input, since the model gives it one class, got {job.labels}")
        if job.labels is not None:
            _check_labels(work, classes)
        return
    if job.save_logits:
        raise InputError("expected no --save-logits for a model that labels every pixel, whose logits are many, got it")
    if work.masks is not None:
        work.masks.check(work.order, classes)
    elif job.labels is not None:
        raise InputError(
            "expected a folder with a mask for each picture, or an .npy of masks (n, height, width), as --labels for a "
            f"model that labels every pixel, got {job.labels}"
        )


def check_names(job: Job, classes: int) -> None:
    """Refuse names of more or fewer classes than the model has."""
    if job.classes and len(job.classes) != classes:
        raise InputError(f"expected names of {classes} classes, got {len(job.classes)}")


def _check_labels(work: Work, classes: int) -> None:
    labels = work.labels[work.order]
    if labels.min() < 0 or labels.max() >= classes:
        low, high, path = labels.min(), labels.max(), work.job.labels
        raise InputError(f"expected labels from 0 to {classes - 1}, got {low} to {high} in {path}")
