"""Surrogates for the cases of `benchmarks/trust.py`, on features of a backbone other than the model's.

A model on EfficientNet-Lite0 gets a surrogate on EfficientNet-Lite2 and vice versa, also for the
corrupted emoji. Digits of 16 x 16 or 8 x 8 pixels and tasks with two classes get a surrogate on
their standardised columns. Features are computed once and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pseudocal.arrays import Labelled
from pseudocal.calibrators.agreement import Opinion, certain_errors
from pseudocal.calibrators.surrogate import Surrogate, SurrogateBatch, SurrogateSample
from pseudocal.lab.bench import Store, Task
from pseudocal.lab.bench.views import View, domains_of, has_frozen_backbone, view_features
from pseudocal.randomness import Streams, row_keys

FEW_COLUMNS = 1000
OTHER = {"efficientnet-lite0": "efficientnet-lite2", "efficientnet-lite2": "efficientnet-lite0"}


def surrogate_of(
    logits: np.ndarray,
    mixed: np.ndarray,
    partner: np.ndarray,
    features: Sequence[np.ndarray],
    seed: int = 0,
) -> Opinion:
    """What a surrogate says, from a model's logits and a backbone's features of inputs and of their mixup samples.

    Args:
        logits: The model's logits of the target.
        mixed: Its logits of mixup samples of each row with its partner.
        partner: The partner of each row.
        features: The features of the target, and those of the mixup samples.
        seed: The seed of the folds.

    """
    own, (real, of_mixup) = logits.argmax(axis=1), features
    keys = row_keys(Streams(seed), np.arange(len(own)))
    kept = np.flatnonzero(own != own[partner])
    kept = kept[certain_errors(mixed[kept].argmax(axis=1), [own[kept], own[partner[kept]]])]
    scaled = real.shape[1] < FEW_COLUMNS  # pixels or a table, not the features of a backbone
    surrogate = Surrogate(features=None if scaled else np.asarray)
    suspects = Labelled(
        of_mixup[kept],
        mixed[kept].argmax(axis=1),
        groups=np.stack([keys[kept], keys[partner[kept]]], axis=1),
    )
    batch_sample = SurrogateBatch(Labelled(real, own, groups=keys), suspects, surrogate)
    surrogate_samples = SurrogateSample.of(batch_sample)
    surrogate_samples.add(batch_sample)
    return surrogate_samples.opinion(logits.shape[1])


def features_for(task: Task, store: Store, view: View) -> np.ndarray:
    """Features of a task's target, or of its mixup samples, in a backbone that is not the model's."""
    images = domains_of(task, store)[1].inputs
    if has_frozen_backbone(task):
        return view_features(replace(task, backbone=OTHER[task.backbone]), images, view)
    return np.asarray(view.of(images)[np.arange(len(images))], np.float32).reshape(len(images), -1)
