"""`pseudocal calibrate`: the same answer for every kind of file, and files that can be used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pseudocal import Calibration, PseudoCal, softmax

PREPARED = ("--size", "16", "--resize", "stretch", "--mean", "0.5,0.4,0.3", "--std", "0.2,0.25,0.3")


def temperature(out: Path) -> float:
    return Calibration.load(out / "calibration.json").temperature


def table(out: Path) -> dict[str, list]:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(out / "predictions.parquet").to_pydict()


@pytest.fixture
def at_hub(pseudocal, hub, image_files, tmp_path) -> Path:
    assert pseudocal("calibrate", hub, image_files, "-o", tmp_path / "hub").code == 0
    return tmp_path / "hub"


@pytest.mark.parametrize("kind", ["onnx", "pt2", "torchscript", "callable", "module"])
def test_vision_models_of_any_kind_agree(kind, pseudocal, vision, at_hub, image_files, tmp_path):
    done = pseudocal(
        "calibrate", vision[kind], image_files, "-o", tmp_path / kind, "--trust-model", *PREPARED
    )
    assert done.code == 0, done.err
    assert temperature(tmp_path / kind) == pytest.approx(temperature(at_hub), rel=1e-4)


@pytest.mark.parametrize("kind", ["onnx", "pt2", "torchscript", "callable", "module"])
def test_tabular_models_of_any_kind_agree(kind, pseudocal, tabular, features, tmp_path):
    for name in ("sklearn", kind):
        done = pseudocal(
            "calibrate", tabular[name], features, "-o", tmp_path / name, "--trust-model"
        )
        assert done.code == 0, done.err
    assert temperature(tmp_path / kind) == pytest.approx(
        temperature(tmp_path / "sklearn"), rel=1e-4
    )


def test_the_temperature_is_the_one_of_the_library_but_for_the_pairs(
    pseudocal, classifier, tabular, features, tmp_path
):
    pseudocal("calibrate", tabular["sklearn"], features, "-o", tmp_path / "out")
    by_library = PseudoCal().fit(classifier, np.load(features).astype(np.float64))
    low, high = by_library.interval
    assert low < temperature(tmp_path / "out") < high


def test_calibrated_onnx_gives_the_calibrated_probabilities_in_plain_onnxruntime(
    pseudocal, vision, image_files, tmp_path
):
    import onnxruntime

    from pseudocal.app.inputs.preprocessing import Preprocessing
    from pseudocal.app.inputs.sets import open_images

    pseudocal("calibrate", vision["onnx"], image_files, "-o", tmp_path / "out", *PREPARED)
    calibration = Calibration.load(tmp_path / "out" / "calibration.json")
    preprocessing = Preprocessing(
        (16, 16), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), resize="stretch"
    )
    inputs = open_images(str(image_files), preprocessing)
    x = np.stack([inputs.read(i) for i in range(len(inputs))])
    session = onnxruntime.InferenceSession(tmp_path / "out" / "unconfirmed-model.onnx")
    (after,) = session.run(["logits"], {"x": x})
    logits = np.load(tmp_path / "out" / "logits.npy")
    np.testing.assert_allclose(softmax(after), calibration.probabilities(logits), atol=1e-5)


def test_calibrated_torch_files_divide(pseudocal, tabular, features, tmp_path):
    import warnings

    import torch

    x = torch.as_tensor(np.load(features))
    for kind, name in (("pt2", "unconfirmed-model.pt2"), ("torchscript", "unconfirmed-model.pt")):
        pseudocal("calibrate", tabular[kind], features, "-o", tmp_path / kind, "--trust-model")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            load = (
                torch.jit.load
                if kind == "torchscript"
                else (lambda path: torch.export.load(path).module())
            )
            after = load(tmp_path / kind / name)(x).detach().numpy()
        logits = np.load(tmp_path / kind / "logits.npy")
        np.testing.assert_allclose(
            after * temperature(tmp_path / kind), logits, rtol=1e-4, atol=1e-5
        )


def test_hugging_face_gets_a_folder_that_loads_as_it_is(
    pseudocal, at_hub, hub, image_files, monkeypatch
):
    import torch
    from transformers import AutoModelForImageClassification

    from pseudocal.app.models.hugging_face import open_hugging_face

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    x = np.load(at_hub / "probe.npy")
    with torch.inference_mode():
        model = AutoModelForImageClassification.from_pretrained(at_hub / "unconfirmed-model")
        after = model(pixel_values=torch.as_tensor(x)).logits.softmax(dim=1).numpy()
    calibration = Calibration.load(at_hub / "calibration.json")
    probed = json.loads((at_hub / "run.json").read_text())["probe"]
    before = np.load(at_hub / "logits.npy")[probed]
    np.testing.assert_allclose(after, calibration.probabilities(before), atol=1e-5)
    assert model.config.pseudocal_temperature == calibration.temperature
    own = open_hugging_face(hub).expects.preprocessing
    assert open_hugging_face(at_hub / "unconfirmed-model").expects.preprocessing == own
    card = (at_hub / "unconfirmed-model" / "README.md").read_text()
    index = json.loads(card.split("model-index: ")[1].splitlines()[0])
    assert index[0]["results"][0]["metrics"][0]["value"] == pytest.approx(
        calibration.temperature, abs=1e-6
    )
    assert "Verdict: " in card
    assert "Recommendation: Label 50 inputs before you deploy. " in card
    usage = json.loads((at_hub / "report.json").read_text())["usage"]
    assert 'from_pretrained("unconfirmed-model")' in usage
    assert (
        pseudocal("calibrate", hub, image_files, "-o", at_hub, "--seed", 1).code == 0
    )  # replaces the folder
    assert json.loads((at_hub / "unconfirmed-model" / "pseudocal.json").read_text())[
        "temperature"
    ] == temperature(at_hub)


def test_a_folder_called_model_that_is_not_ours_stays(pseudocal, tabular, features, tmp_path):
    (tmp_path / "out" / "model").mkdir(parents=True)
    (tmp_path / "out" / "model" / "mine.txt").write_text("mine")
    done = pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / "out")
    assert (done.code, "there is a folder of that name" in done.err) == (4, True)
    assert (tmp_path / "out" / "model" / "mine.txt").read_text() == "mine"


def test_predictions_hold_every_input_in_the_order_of_the_data(
    pseudocal, tabular, features, classifier, tmp_path
):
    done = pseudocal("calibrate", tabular["sklearn"], features, "-o", tmp_path / "out", "--json")
    rows, logits = table(tmp_path / "out"), np.load(tmp_path / "out" / "logits.npy")
    expected = classifier.predict_proba(np.load(features).astype(np.float64))
    assert rows["file"] == [str(i) for i in range(400)]
    assert rows["class"] == expected.argmax(axis=1).tolist()
    np.testing.assert_allclose(rows["confidence_before"], expected.max(axis=1), rtol=1e-5)
    after = (
        Calibration.load(tmp_path / "out" / "calibration.json").probabilities(logits).max(axis=1)
    )
    np.testing.assert_allclose(rows["confidence_after"], after, rtol=1e-5)
    assert json.loads(done.out)["used"] == 400
    assert len(rows["top"][0]) == 3


def test_an_early_stop_still_predicts_every_input_once(pseudocal, tabular, features, tmp_path):
    calls = []
    import sys

    honest = sys.modules["tabular_model"].predict
    vars(sys.modules["tabular_model"])["counted"] = lambda x: calls.append(len(x)) or honest(x)
    common = ("--tolerance", "0.2", "--batch-size", "20", "--json")
    done = pseudocal(
        "calibrate", "tabular_model:counted", features, "-o", tmp_path / "all", *common
    )
    result = json.loads(done.out)
    assert result["used"] == 400
    assert sum(calls) == 400 + result["mixup_samples"] < 600
    seen = pseudocal(
        "calibrate",
        "tabular_model:counted",
        features,
        "-o",
        tmp_path / "s",
        *common,
        "--predict",
        "seen",
    )
    assert json.loads(seen.out)["used"] < 200
    assert json.loads(seen.out)["temperature"] == result["temperature"]


def test_max_samples_uses_so_many(pseudocal, tabular, features, tmp_path):
    done = pseudocal(
        "calibrate",
        tabular["onnx"],
        features,
        "-o",
        tmp_path / "out",
        "--max-samples",
        "50",
        "--json",
    )
    assert json.loads(done.out)["used"] == 50
    assert len(table(tmp_path / "out")["file"]) == 50


def test_same_seed_same_bytes(pseudocal, tabular, features, tmp_path):
    for name in "ab":
        pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / name, "--seed", "3")
    first, second = ((tmp_path / name / "calibration.json").read_bytes() for name in "ab")
    assert first == second


def test_a_list_of_paths_and_standard_input_are_the_folder(
    pseudocal, hub, image_files, at_hub, tmp_path, monkeypatch
):
    import io

    paths = sorted(p for p in image_files.rglob("*") if p.is_file())
    (tmp_path / "list.txt").write_text("\n".join(map(str, paths)))
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, paths))))
    for data in (tmp_path / "list.txt", "-"):
        assert pseudocal("calibrate", hub, data, "-o", tmp_path / "out").code == 0
        assert temperature(tmp_path / "out") == temperature(at_hub)


def test_tables_are_arrays(pseudocal, tabular, features, tmp_path):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    x = np.load(features).astype(np.float64)
    columns = pa.table({f"f{i}": x[:, i] for i in range(5)} | {"name": ["a"] * len(x)})
    pyarrow.csv.write_csv(columns, tmp_path / "x.csv")
    pyarrow.parquet.write_table(columns, tmp_path / "x.parquet")
    np.savez(tmp_path / "x.npz", x=x, other=x[:, :2])
    pseudocal("calibrate", tabular["sklearn"], features, "-o", tmp_path / "out")
    expected = temperature(tmp_path / "out")
    chosen = ("--features", "f0,f1,f2,f3,f4", "--field", "x")
    for name in ("x.csv", "x.parquet", "x.npz"):
        done = pseudocal(
            "calibrate", tabular["sklearn"], tmp_path / name, "-o", tmp_path / "out", *chosen
        )
        assert done.code == 0, done.err
        assert temperature(tmp_path / "out") == pytest.approx(expected, rel=1e-6)


def test_labels_add_measurements(pseudocal, tabular, classifier, features, tmp_path):
    labels = classifier.predict(np.load(features).astype(np.float64))
    labels[::4] = (labels[::4] + 1) % 3
    np.save(tmp_path / "y.npy", labels)
    (tmp_path / "y.csv").write_text(
        "file,label\n" + "\n".join(f"{i},{y}" for i, y in reversed(list(enumerate(labels))))
    )
    (tmp_path / "y.txt").write_text("\n".join(map(str, labels)))
    results = []
    for name in ("y.npy", "y.csv", "y.txt"):
        done = pseudocal(
            "calibrate",
            tabular["onnx"],
            features,
            "-o",
            tmp_path / "out",
            "--ground-truth",
            tmp_path / name,
            "--json",
        )
        assert done.code == 0, done.err
        results.append(json.loads(done.out))
    assert results[0]["metrics"] == results[1]["metrics"] == results[2]["metrics"]
    accuracy = results[0]["metrics"][3]
    assert accuracy["before"]["value"] == accuracy["after"]["value"] == 0.75
    assert accuracy["change"]["value"] == 0
    without = pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / "bare", "--json")
    assert json.loads(without.out)["temperature"] == results[0]["temperature"]


def test_a_second_run_replaces_the_first_and_touches_nothing_else(
    pseudocal, tabular, features, tmp_path
):
    out = tmp_path / "out"
    pseudocal("calibrate", tabular["onnx"], features, "-o", out, "--format", "csv")
    (out / "notes.txt").write_text("mine")
    pseudocal("calibrate", tabular["pt2"], features, "-o", out, "--trust-model")
    expected = {
        "calibration.json",
        "unconfirmed-model.pt2",
        "notes.txt",
        "predictions.parquet",
        "report.html",
        "report.json",
    }
    assert set(os.listdir(out)) == expected | {
        "evidence.npz",
        "job.toml",
        "logits.npy",
        "probe.npy",
        "run.json",
    }
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_quiet_says_nothing(pseudocal, tabular, features, tmp_path):
    done = pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / "out", "--quiet")
    assert done == (0, "", "")


def test_what_is_assumed_is_said(pseudocal, vision, image_files, tmp_path):
    done = pseudocal("calibrate", vision["onnx"], image_files, "-o", tmp_path / "out")
    assert "assumed, not given: mean, std, resize" in done.err
    assert "input 'x' (?, 3, 16, 16)" in done.err


def test_resizing_is_not_assumed_of_images_that_have_the_size_of_the_model(
    pseudocal, vision, tmp_path
):
    from PIL import Image

    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for i in range(40):
        pixels = rng.integers(0, 256, size=(16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i:02d}.png")
    command = ("calibrate", vision["onnx"], tmp_path / "images", "-o", tmp_path / "out")
    assert "assumed, not given: mean, std\n" in pseudocal(*command).err
    Image.new("RGB", (20, 16)).save(tmp_path / "images" / "00.png")
    assert "assumed, not given: mean, std, resize\n" in pseudocal(*command).err


def test_report_draws_the_page_again(pseudocal, tabular, features, tmp_path):
    pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / "out")
    first = (tmp_path / "out" / "report.html").read_text()
    (tmp_path / "out" / "report.html").unlink()
    assert pseudocal("report", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "report.html").read_text() == first
    (tmp_path / "out" / "report.json").write_text('{"format": "pseudocal-report"}')
    done = pseudocal("report", tmp_path / "out")
    assert done.code == 3
    assert (tmp_path / "out" / "report.html").read_text() == first
