"""The memory of a calibration with many classes, whose logits are far larger than the inputs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.optimize  # noqa: F401  it is imported when first needed, and would count

from pseudocal import PseudoCal

MEMORY = 2**25
ROWS, CLASSES, BATCH = 12_000, 500, 32
BATCH_COPIES = 8  # logits of a batch, of its mixup samples and of second opinions, and their copies


def peak(work):
    """The most bytes that were allocated at a time while `work` ran."""
    tracemalloc.start()
    try:
        result = work()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(64, CLASSES)).astype(np.float32)
    others = weights + 0.3 * rng.normal(size=(64, CLASSES)).astype(np.float32)
    inputs = rng.normal(size=(ROWS, 64)).astype(np.float32)
    return (lambda x: x @ weights), (lambda x: x @ others), inputs


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.filterwarnings("ignore:this calibration")
def test_the_peak_of_many_classes_is_within_the_limit(models, second, stream):
    """The samples are full, and a copy of them in float64 would exceed the limit."""
    model, other, inputs = models
    data = [inputs[start : start + BATCH] for start in range(0, ROWS, BATCH)] if stream else inputs
    method = PseudoCal(memory=MEMORY)

    def fit():
        evidence = method.collect(
            model, data, second_opinion=other if second else None, batch_size=BATCH
        )
        return evidence, method.conclude(evidence)

    (evidence, calibration), most = peak(fit)
    kept = (
        sum(len(sample.labelled) for sample in (evidence.mixup_samples, evidence.real))
        * 4
        * CLASSES
    )
    assert kept > 0.6 * MEMORY
    assert calibration.temperature > 0
    assert most < 1.01 * MEMORY + BATCH_COPIES * 4 * BATCH * CLASSES  # and small arrays
