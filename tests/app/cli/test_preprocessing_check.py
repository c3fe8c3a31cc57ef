"""Wrong preprocessing is found before a run, right preprocessing and doubtful cases are not stopped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal.app import calibrate
from pseudocal.app.inputs import preprocessing_check
from pseudocal.app.inputs.preprocessing import NORMALISATIONS, Preprocessing
from pseudocal.app.inputs.preprocessing_check import (
    COST,
    Variant,
    WrongPreprocessingError,
    better_than_given,
    compare_variants,
    table_of,
    variants_of,
)
from pseudocal.app.inputs.sets import ImageSet
from pseudocal.app.job import read_job

Image = pytest.importorskip("PIL.Image")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SIDE = 8
CLASSES = 20
IMAGES = 2000
RIGHT = "minus-one-one"


def flat_templates() -> np.ndarray:
    """One image for each class, from 0 to 1, in the order of the pixels of a prepared image."""
    rng = np.random.default_rng(0)
    return rng.random((CLASSES, 3, SIDE, SIDE)).reshape(CLASSES, -1)


def save_network(path: Path) -> Path:
    """A network that compares images with a template of each class; trained on pixels of -1 to 1."""
    helper = onnx.helper
    templates = (2 * flat_templates() - 1).astype(np.float32)
    rng = np.random.default_rng(1)
    hidden = rng.normal(size=(templates.shape[1], 128)) / np.sqrt(templates.shape[1])
    encoded = np.tanh(2 * templates @ hidden)
    encoded /= np.linalg.norm(encoded, axis=1, keepdims=True)
    arrays = {
        "hidden": (2 * hidden).astype(np.float32),
        "head": (3 * encoded.T).astype(np.float32),
        "shape": np.array([-1, templates.shape[1]], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "hidden"], ["projected"]),
        helper.make_node("Tanh", ["projected"], ["encoded"]),
        helper.make_node("MatMul", ["encoded", "head"], ["logits"]),
    ]
    float_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "templates",
        [helper.make_tensor_value_info("x", float_type, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("logits", float_type, ["n", CLASSES])],
        [onnx.numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> tuple[Path, Path]:
    """A network, and a folder of noisy images of its classes."""
    root = tmp_path_factory.mktemp("world")
    images = root / "images"
    images.mkdir()
    rng = np.random.default_rng(2)
    templates = flat_templates().reshape(CLASSES, 3, SIDE, SIDE)
    for i in range(IMAGES):
        pixels = templates[i % CLASSES] + rng.normal(0, 0.2, (3, SIDE, SIDE))
        array = (255 * pixels.clip(0, 1)).astype(np.uint8).transpose(1, 2, 0)
        Image.fromarray(array).save(images / f"{i:04d}.png")
    return save_network(root / "network.onnx"), images


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--preprocess", "zero-one"], "--preprocess minus-one-one"),
        (["--preprocess", "zero-255"], "--preprocess minus-one-one"),
        ([], "--preprocess minus-one-one"),  # zero-one was assumed
        (
            ["--preprocess", RIGHT, "--channel-order", "bgr"],
            "--preprocess minus-one-one --channel-order rgb",
        ),
    ],
)
def test_wrong_preprocessing_stops_the_run_with_a_table_and_the_flag(
    pseudocal, world, tmp_path, words, flag
):
    network, images = world
    out = tmp_path / "out"
    done = pseudocal("calibrate", network, images, "-o", out, *words)
    assert done.code == 3
    message, header, *rows = done.err.strip().splitlines()
    assert f"with {flag} the predictions stand out more" in message
    assert "--preprocess-check off" in message
    assert header.split()[:3] == ["preprocessing", "images", "score"]
    assert any(row.split()[:2] == ["as", "given"] for row in rows)
    assert not out.exists()


def test_the_right_preprocessing_is_not_stopped(pseudocal, world, tmp_path):
    network, images = world
    words = ["--preprocess", RIGHT, "-o", tmp_path / "out"]
    done = pseudocal("calibrate", network, images, *words)
    assert done.code == 0, done.err
    assert re.search(
        r"^preprocessing check: no clearly better one found on \d+ images$", done.err, re.M
    )
    few = pseudocal("calibrate", network, images, *words, "--max-samples", "20")
    assert "preprocessing check: not possible (too few images" in few.err


def test_the_warning_about_assumed_preprocessing_stands_above_the_verdict(
    pseudocal, world, tmp_path
):
    network, images = world
    out = tmp_path / "out"
    done = pseudocal("calibrate", network, images, "-o", out, "--max-samples", "40")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("warning: Preprocessing was not specified; assumed: mean, std")
    assert sum("Preprocessing was not specified" in line for line in lines) == 1
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("Preprocessing was not specified") == 1
    assert page.index("Preprocessing was not specified") < page.index('id="recommendation"')
    assert lines[3].startswith("Recommendation: Specify the preprocessing and calibrate again, or ")
    assert lines[4].startswith("Reason: The preprocessing was assumed:")
    again = pseudocal("calibrate", "--job", out / "job.toml", "-o", tmp_path / "again")
    assert again.out.splitlines()[0] == lines[0]  # in job.toml it is still an assumption


def test_the_check_can_be_turned_off(pseudocal, world, tmp_path):
    network, images = world
    out = tmp_path / "out"
    words = ["--preprocess", "zero-one", "--preprocess-check", "off", "-o", out]
    done = pseudocal("calibrate", network, images, *words)
    assert done.code == 0, done.err
    assert read_job(out / "job.toml").preprocess_check is False


def test_a_second_model_is_asked_as_well(world, tmp_path):
    network, images = world
    settings: Any = {"normalisation": "zero-one"}
    with pytest.raises(WrongPreprocessingError, match="minus-one-one") as caught:
        calibrate(network, images, tmp_path, preprocessing=settings, second_opinion=str(network))
    assert "100%" in caught.value.table  # the agreement of a network with itself


def test_few_images_are_not_checked(world, tmp_path):
    network, images = world
    settings: Any = {"normalisation": "zero-one"}
    calibrate(network, images, tmp_path, preprocessing=settings, max_samples=40)


def test_the_check_costs_little_and_is_repeatable(world):
    _, images = world
    passes = []

    def predict(x: np.ndarray) -> np.ndarray:
        passes.append(len(x))
        return x.reshape(len(x), -1)[:, :CLASSES]

    files = sorted(images.iterdir())
    opened = ImageSet(files, images, Preprocessing((SIDE, SIDE)))
    budget = int(COST * 2 * IMAGES)
    found = [compare_variants(predict, opened, range(IMAGES), budget) for _ in range(2)]
    assert sum(passes) <= 2 * budget
    assert table_of(found[0]) == table_of(found[1])
    passes.clear()
    assert compare_variants(predict, opened, range(IMAGES), 60) == []
    assert passes == []


def test_unreadable_images_are_left_out(world, tmp_path):
    _, images = world
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no image")
    files = [damaged, *sorted(images.iterdir())]
    opened = ImageSet(files, tmp_path, Preprocessing((SIDE, SIDE)))
    found = compare_variants(lambda x: x.reshape(len(x), -1)[:, :9], opened, range(30), 200)
    assert {len(each.scores) for each in found} <= {8, 16, 24}


def test_segmentation_models_are_not_checked(world):
    _, images = world
    opened = ImageSet(sorted(images.iterdir()), images, Preprocessing((SIDE, SIDE)))
    assert compare_variants(lambda x: x, opened, range(IMAGES), 1000) == []


def test_variants_that_are_the_same_are_left_out():
    nearly = Preprocessing((224, 224), edge=256, mean=(0.498,), std=(0.502,))
    names = [each.name for each in variants_of(nearly)]
    assert f"{RIGHT}, RGB" not in names
    assert len(names) == len(set(names)) == 1 + 7 + 2
    wide = [each.flags for each in variants_of(Preprocessing((32, 48)))]
    assert [flags for flags in wide if "resize" in flags] == ["--resize stretch"]
    flags = {each.name: each.flags for each in variants_of(replace(nearly, order="bgr"))}
    assert flags["imagenet, RGB"] == "--preprocess imagenet --channel-order rgb"
    assert flags["imagenet, BGR"] == "--preprocess imagenet"


# ------------------------------------------------------------------------------ the decision


def variant(name: str, logits: np.ndarray, second: np.ndarray | None = None) -> Variant:
    made = Variant(name, "" if name == "as given" else f"--{name}", Preprocessing())
    made.logits.append(logits)
    if second is not None:
        made.second.append(second)
    return made


def peaked(height: float, classes: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(len(classes), 50))
    logits[np.arange(len(classes)), classes] += height
    return logits


SPREAD = np.arange(40) % 50


def test_a_variant_whose_predictions_stand_out_is_better():
    given = variant("as given", peaked(4, SPREAD))
    better = variant("better", peaked(9, SPREAD))
    assert better_than_given([better, given]) is better
    assert better_than_given([given, better]) is None
    scaled = variant("scaled", 100 * peaked(4, SPREAD))  # more confident, but the same predictions
    assert better_than_given([scaled, given]) is None


def test_larger_pixels_must_change_predictions():
    """A network without large biases only gets larger logits from pixels up to 255."""
    given = variant("as given", peaked(4, SPREAD))
    larger = variant("larger", peaked(9, SPREAD))
    larger.preprocessing = Preprocessing(std=(1 / 255,))
    assert better_than_given([larger, given]) is None
    other = variant("larger", peaked(9, (SPREAD + 1) % 50))
    other.preprocessing = larger.preprocessing
    assert better_than_given([other, given]) is other


def test_another_size_must_gain_more_than_another_normalisation():
    given = variant("as given", peaked(7.0, SPREAD))
    other = variant("other", peaked(7.4, SPREAD))
    assert better_than_given([other, given]) is None
    other.preprocessing = replace(given.preprocessing, mean=(0.5,), std=(0.5,))
    assert better_than_given([other, given]) is other


@pytest.mark.parametrize("reason", ["collapsed", "not confident", "disagrees"])
def test_what_speaks_against_a_variant(reason):
    given = variant("as given", peaked(4, SPREAD), SPREAD)
    other = variant("other", peaked(9, SPREAD), SPREAD)
    assert better_than_given([other, given]) is other
    if reason == "collapsed":
        other = variant("other", peaked(9, np.zeros_like(SPREAD)), np.zeros_like(SPREAD))
    elif reason == "not confident":
        other = variant("other", 0.01 * peaked(9, SPREAD), SPREAD)
    else:
        other = variant("other", peaked(9, SPREAD), SPREAD + 1)
    assert better_than_given([other, given]) is None


def test_names_of_the_command_line_are_those_of_the_variants():
    assert set(NORMALISATIONS) == {"imagenet", "minus-one-one", "zero-one", "zero-255"}
    assert preprocessing_check.MOST_IMAGES == 300
