"""What every format of model files does: open, predict, export with a temperature, refuse damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app.models.files import NOT_EXPORTED, OPENERS, open_model

SHAPES = {
    **dict.fromkeys(("onnx", "pt2", "sklearn", "torchscript"), (5,)),
    "huggingface": (3, 16, 16),
}
ELSEWHERE = {
    "callable": "app/cli/test_calibrate.py",
    "catboost": "app/cli/test_catboost.py",
    "lightgbm": "app/cli/test_boosting.py",
    "state dict": "app/models/test_state_dicts.py",
    "surrogate": "app/cli/test_surrogate.py",
    "xgboost": "app/cli/test_boosting.py",
    "zero-shot": "app/cli/test_zero_shot.py",
}


def test_every_format_has_a_test():
    assert SHAPES.keys() | ELSEWHERE.keys() == OPENERS.keys()
    assert all((Path(__file__).parents[2] / name).is_file() for name in ELSEWHERE.values())


@pytest.fixture
def files(tabular, hub, tmp_path) -> dict[str, str]:
    """A copy of a model in each format."""
    found = {}
    for kind in SHAPES:
        given = Path(hub if kind == "huggingface" else tabular[kind])
        copy = tmp_path / given.name
        (shutil.copytree if given.is_dir() else shutil.copy)(given, copy)
        found[kind] = str(copy)
    return found


@pytest.mark.parametrize("kind", SHAPES)
def test_an_exported_file_gives_the_logits_divided_by_the_temperature(files, tmp_path, kind):
    x = np.random.default_rng(0).normal(size=(4, *SHAPES[kind])).astype(np.float32)
    model = open_model(files[kind], trust=True)
    logits = np.asarray(model.predict(x))
    assert (model.kind, logits.ndim, len(logits)) == (kind, 2, 4)
    assert (model.export is None) == (kind in NOT_EXPORTED)
    if model.export is not None:
        (tmp_path / "out").mkdir()
        [name] = model.export(2.0, tmp_path / "out", x)
        exported = open_model(str(tmp_path / "out" / name), trust=True)
        np.testing.assert_allclose(exported.predict(x), logits / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_damaged_file_is_refused(files, kind):
    path = Path(files[kind])
    largest = path if path.is_file() else path / "model.safetensors"
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    with pytest.raises(InputError, match=path.name):
        open_model(files[kind], trust=True)
