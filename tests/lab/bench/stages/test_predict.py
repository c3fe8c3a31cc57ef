from __future__ import annotations

from dataclasses import replace

import pytest

from pseudocal.lab.bench import Store, run
from pseudocal.lab.bench.stages import predict as predict_stage


@pytest.mark.parametrize(
    "number", [0, 2]
)  # a head on frozen features, and a network trained as a whole
def test_what_training_wrote_is_used_and_is_what_the_model_says(
    tiny, cache, tmp_path, content_of, monkeypatch, number
):
    suite, store = (
        replace(tiny, tasks=tiny.tasks[number : number + 1], calibrators=("tempscal",)),
        Store(tmp_path),
    )
    with monkeypatch.context() as patch:
        patch.setattr(predict_stage, "load_classifier", None)  # nothing is predicted again
        assert run(suite, store) == []
    before = content_of(tmp_path)
    assert run(suite, store, redo="predict") == []
    assert content_of(tmp_path) == before
