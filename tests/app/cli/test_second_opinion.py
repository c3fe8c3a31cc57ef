"""`calibrate --second-opinion`.

The verdict and the estimate, on the console, as JSON and in the report.
"""

from __future__ import annotations

import html
import json
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration

CLASSES = 8


def read(out: Path) -> Calibration:
    return Calibration.load(out / "calibration.json")


@pytest.mark.parametrize("kind", ["onnx", "pt2", "torchscript", "callable", "module"])
def test_any_kind_of_model_is_a_second_opinion(
    kind, pseudocal, tabular, tabular_second, features, tmp_path
):
    for name in ("sklearn", kind):
        options = ("-o", tmp_path / name, "--second-opinion", tabular_second[name], "--trust-model")
        done = pseudocal("calibrate", tabular["onnx"], features, *options)
        assert done.code == 0, done.err
    one, other = read(tmp_path / kind).trust, read(tmp_path / "sklearn").trust
    assert one.verdict == other.verdict
    assert one.evidence == pytest.approx(other.evidence, abs=1e-4)
    assert one.score is not None


def test_it_changes_neither_what_is_recorded_nor_what_the_mixup_say(
    pseudocal, tabular, tabular_second, features, tmp_path
):
    for name, more in (("alone", ()), ("both", ("--second-opinion", tabular_second["onnx"]))):
        assert (
            pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / name, *more).code
            == 0
        )
    alone, both = (np.load(tmp_path / name / "logits.npy") for name in ("alone", "both"))
    np.testing.assert_array_equal(alone, both)
    alone, both = read(tmp_path / "alone"), read(tmp_path / "both")
    assert alone.temperature == alone.estimates["mixup"] == both.estimates["mixup"]
    assert alone.trust.verdict == "caution"
    assert both.settings["second_opinion"] == [tabular_second["onnx"]]


def test_with_one_the_temperature_is_that_of_the_agreement(
    pseudocal, tabular, tabular_second, features, tmp_path
):
    words = (
        "calibrate",
        tabular["onnx"],
        features,
        "-o",
        tmp_path / "out",
        "--second-opinion",
        tabular_second["onnx"],
    )
    found = {}
    for estimator in ("auto", "agreement", "mixup"):
        more = () if estimator == "auto" else ("--estimator", estimator)
        content = json.loads(pseudocal(*words, *more, "--json").out)
        found[estimator] = content["refused"] or content["temperature"]
        effects = content["effects"]
        used = "mixup" if estimator == "mixup" else "agreement"
        assert found[estimator] == effects[used]["temperature"]
        assert effects[used]["use"] == ("refused" if content["refused"] else "used")
        assert effects["none"]["temperature"] == 1.0
    assert found["auto"] == found["agreement"] != found["mixup"]


def test_several_second_opinions(
    ray, pseudocal, tabular, tabular_second, collapsed, features, tmp_path
):
    opinions = ("--second-opinion", tabular_second["onnx"], "--second-opinion", collapsed["onnx"])
    for name, more in (
        ("one", opinions[:2]),
        ("here", opinions),
        ("there", (*opinions, "--ray", "--workers", 1)),
    ):
        done = pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / name, *more)
        assert done.code == 0, done.err
    one, here, there = (read(tmp_path / name) for name in ("one", "here", "there"))
    assert here.settings["second_opinion"] == list(opinions[1::2])
    assert here.trust.estimated_accuracy != one.trust.estimated_accuracy
    assert there.trust.estimated_accuracy.value == pytest.approx(
        here.trust.estimated_accuracy.value, rel=1e-6
    )
    assert here.counts["mixup_samples"] == one.counts["mixup_samples"]
    assert here.counts["forward_passes"] >= one.counts["forward_passes"] + 400


def test_the_verdict_is_printed_and_in_the_json(
    pseudocal, tabular, tabular_second, features, tmp_path
):
    words = (
        "calibrate",
        tabular["onnx"],
        features,
        "-o",
        tmp_path / "out",
        "--second-opinion",
        tabular_second["onnx"],
    )
    said, content = pseudocal(*words).out, json.loads(pseudocal(*words, "--json").out)
    trust = read(tmp_path / "out").trust
    assert content["verdict"] == trust.verdict
    assert content["reasons"] == [str(reason) for reason in trust.reasons]
    estimate = trust.estimated_accuracy
    assert content["estimated_accuracy"] == {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
    }
    assert f"verdict: {trust.verdict}\n" in said
    assert all(f"  {reason}\n" in said for reason in trust.reasons)
    assert f"estimated accuracy: {trust.estimated_accuracy.value:.0%}, 90% interval" in said
    assert str(trust.reasons[0]) in html.unescape((tmp_path / "out" / "report.html").read_text())


def test_the_temperature_can_come_from_the_agreement(
    pseudocal, tabular, tabular_second, features, tmp_path
):
    words = (
        "calibrate",
        tabular["onnx"],
        features,
        "-o",
        tmp_path / "out",
        "--estimator",
        "agreement",
    )
    alone = pseudocal(*words)
    assert alone.code == 3
    assert "expected a second opinion" in alone.err
    assert not (tmp_path / "out").exists()
    assert pseudocal(*words, "--second-opinion", tabular_second["onnx"]).code == 0
    calibration = read(tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["confidence"]["mean_after"] == pytest.approx(
        calibration.trust.estimated_accuracy.value, abs=1e-4
    )


@pytest.fixture
def lost(tmp_path) -> tuple[str, str, Path]:
    """Two models that are right and sure of every real input, and know little of what lies between."""

    def model(seed):
        guess = 50 * np.random.default_rng(seed).normal(size=(CLASSES, CLASSES))
        return lambda x: np.where(
            (x == np.round(x)).all(axis=1, keepdims=True), 5 * x, 3 * x + 5 * np.sin(x @ guess)
        )

    holder = ModuleType("lost_between")
    holder.first, holder.second = model(0), model(1)  # type: ignore[attr-defined]
    sys.modules["lost_between"] = holder
    np.save(tmp_path / "x.npy", 2 * np.eye(CLASSES)[np.arange(2000) % CLASSES])
    return "lost_between:first", "lost_between:second", tmp_path / "x.npy"


def test_a_bad_verdict_is_no_error_and_no_warning(pseudocal, lost, tmp_path):
    first, second, data = lost
    words = (
        "calibrate",
        first,
        data,
        "-o",
        tmp_path / "out",
        "--second-opinion",
        second,
        "--estimator",
        "mixup",
    )
    done = pseudocal(*words)
    assert done.code == 0
    assert "Warning" not in done.err
    assert "verdict: do not apply\n" in done.out
    assert read(tmp_path / "out").refused > 1.5
    assert "Do not apply" in (tmp_path / "out" / "report.html").read_text()
    content = json.loads(pseudocal(*words, "--json").out)
    assert (content["temperature"], content["interval"]) == (1.0, [None, None])
    assert content["refused"] == read(tmp_path / "out").refused
    assert content["confidence"]["before"] == content["confidence"]["after"]
    assert pseudocal("report", tmp_path / "out").code == 0
    assert "T = 1 replaces" in (tmp_path / "out" / "report.html").read_text()


def test_a_second_opinion_on_other_inputs_or_classes_is_refused(
    pseudocal, vision, tabular, hub, image_files, features, tmp_path
):
    words = ("calibrate", vision["onnx"], image_files, "-o", tmp_path / "out", "--second-opinion")
    shape = pseudocal(*words, tabular["onnx"])
    assert (shape.code, "takes inputs of shape (5,), not images" in shape.err) == (3, True)
    assert not (tmp_path / "out").exists()

    named = tmp_path / "named"
    shutil.copytree(hub, named)
    config = json.loads((named / "config.json").read_text())
    config["id2label"] = {i: f"kind {i}" for i in config["id2label"]}
    config["label2id"] = {f"kind {i}": int(i) for i in config["id2label"]}
    (named / "config.json").write_text(json.dumps(config))
    other = pseudocal(
        "calibrate", hub, image_files, "-o", tmp_path / "out", "--second-opinion", named
    )
    assert (other.code, "the class 'kind 0', and not the class 'LABEL_0'" in other.err) == (
        3,
        True,
    )


@pytest.fixture(scope="module")
def channels_last(hub, tmp_path_factory) -> Path:
    """The network of `hub` as ONNX that takes values from 0 to 255, channels last, and halves the image itself."""
    import torch
    from transformers import ResNetForImageClassification

    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = ResNetForImageClassification.from_pretrained(hub).eval()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.nn.functional.avg_pool2d(x.permute(0, 3, 1, 2) / 255, 2)
            mean, std = (
                torch.tensor(v)[:, None, None] for v in ([0.5, 0.4, 0.3], [0.2, 0.25, 0.3])
            )
            return self.model(pixel_values=(x - mean) / std).logits

    path = tmp_path_factory.mktemp("other") / "other.onnx"
    names: dict[str, Any] = {
        "input_names": ["x"],
        "output_names": ["logits"],
        "dynamic_axes": {"x": {0: "n"}, "logits": {0: "n"}},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Other(), (torch.zeros(2, 32, 32, 3),), path, dynamo=False, **names)
    return path


def test_each_model_gets_the_images_as_it_wants_them(
    pseudocal, vision, hub, channels_last, image_files, tmp_path
):
    prepared = ("--resize", "stretch", "--mean", "0.5,0.4,0.3", "--std", "0.2,0.25,0.3")
    one = ("calibrate", vision["onnx"], image_files, "--size", 16, *prepared)
    for name, second in (("same", hub), ("other", channels_last)):
        more = ("--second-preprocess", "0/0.00392156862745") if name == "other" else ()
        done = pseudocal(*one, "-o", tmp_path / name, "--second-opinion", second, *more)
        assert done.code == 0, done.err
    assert (
        "for the second opinion: stretched to 32 x 32, bilinear, pixels / 255, mean 0, std 0.003922, nhwc"
        in done.err
    )
    alone = pseudocal(*one, "-o", tmp_path / "alone")
    assert alone.code == 0, alone.err
    before, logits = (np.load(tmp_path / name / "logits.npy") for name in ("alone", "other"))
    np.testing.assert_allclose(
        logits, before, rtol=1e-5, atol=1e-5
    )  # the second view does not touch the first
    assert read(tmp_path / "same").trust.evidence["agreement"] == 1.0  # it is the same network
    assert read(tmp_path / "other").trust.evidence["agreement"] > 0.9  # of slightly other pixels
    wrong = pseudocal(*one, "-o", tmp_path / "wrong", "--second-opinion", channels_last)
    assert wrong.code == 0, (
        wrong.err
    )  # almost black: nothing can know that it takes values up to 255
    assert read(tmp_path / "wrong").trust.evidence["agreement"] < 0.9
    own = pseudocal(
        "calibrate", vision["onnx"], image_files, "-o", tmp_path / "own", "--second-opinion", hub
    )
    assert own.code == 0, own.err
    assert (
        "for the second opinion: stretched to 16 x 16, bilinear, pixels / 255, mean (0.5, 0.4, 0.3)"
        in own.err
    )


@pytest.mark.slow
def test_on_a_cluster_with_images_as_each_wants_them(
    ray, pseudocal, vision, hub, image_files, tmp_path
):
    for name, more in (("here", ()), ("there", ("--ray", "--workers", 1))):
        options = ("-o", tmp_path / name, "--second-opinion", hub, "--batch-size", 20)
        done = pseudocal("calibrate", vision["onnx"], image_files, *options, *more)
        assert done.code == 0, done.err
    here, there = read(tmp_path / "here"), read(tmp_path / "there")
    assert there.temperature == pytest.approx(here.temperature, rel=1e-5)
    assert there.trust.evidence == pytest.approx(here.trust.evidence, rel=1e-4)


def test_on_a_cluster(ray, pseudocal, tabular, tabular_second, features, tmp_path):
    for name, more in (("here", ()), ("there", ("--ray", "--workers", 1))):
        options = ("--second-opinion", tabular_second["onnx"], "--estimator", "agreement")
        done = pseudocal(
            "calibrate", tabular["onnx"], features, "-o", tmp_path / name, *options, *more
        )
        assert done.code == 0, done.err
    here, there = read(tmp_path / "here"), read(tmp_path / "there")
    assert there.temperature == pytest.approx(here.temperature, rel=1e-6)
    assert there.trust.evidence == pytest.approx(here.trust.evidence)
    assert there.trust.verdict == here.trust.verdict
