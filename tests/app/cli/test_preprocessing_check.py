"""Wrong preprocessing is found before a run, right preprocessing and doubtful cases are not stopped."""

from __future__ import annotations

import math
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
    MOST_IMAGES,
    ROUND,
    Budget,
    Variant,
    WrongPreprocessingError,
    better_than_given,
    check_preprocessing,
    compare_variants,
    information,
    normalisations_of,
    resized_of,
    standing_out,
    table_of,
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
    assert f"with {flag} the predictions are more distinct" in message
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
    assert "preprocessing check: not possible (too few images)\n" in few.err


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


@pytest.mark.parametrize("two", [False, True])
def test_the_check_costs_a_small_part_of_the_run_and_is_repeatable(world, monkeypatch, two):
    """Passes of each model, decoded and resized images: each at most this part of the run's."""
    _, images = world
    counts = {"first": 0, "second": 0, "decoded": 0, "resized": 0}

    def counted(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            counts[name] += len(arguments[0]) if name in ("first", "second") else 1
            return function(*arguments)

        return call

    def predict(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), -1)[:, :CLASSES]

    monkeypatch.setattr(ImageSet, "decoded", counted("decoded", ImageSet.decoded))
    monkeypatch.setattr(Preprocessing, "fit", counted("resized", Preprocessing.fit))
    opened = ImageSet(sorted(images.iterdir()), images, Preprocessing((SIDE, SIDE)))
    second = (counted("second", predict), lambda first: first) if two else None
    tables = []
    for _ in range(2):
        counts.update(dict.fromkeys(counts, 0))
        budget = Budget.of_run(IMAGES, 2 * IMAGES)
        found = compare_variants(counted("first", predict), opened, range(IMAGES), budget, second)
        tables.append(table_of(found))
        assert 0 < counts["first"] <= COST * 2 * IMAGES
        assert counts["second"] == (counts["first"] if two else 0)
        assert 0 < counts["decoded"] <= counts["resized"] <= COST * IMAGES
    assert tables[0] == tables[1]
    assert Budget.of_run(10**6, 10**7).prepared == MOST_IMAGES == 300
    counts.update(dict.fromkeys(counts, 0))
    few = Budget(passes=8 * ROUND - 1, prepared=100)
    assert compare_variants(counted("first", predict), opened, range(IMAGES), few) == []
    assert counts["first"] == counts["decoded"] == 0


ENOUGH = Budget(1000, 300)


def test_unreadable_images_are_left_out(world, tmp_path):
    _, images = world
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no image")
    files = [damaged, *sorted(images.iterdir())]
    opened = ImageSet(files, tmp_path, Preprocessing((SIDE, SIDE)))
    found = compare_variants(
        lambda x: x.reshape(len(x), -1)[:, :9], opened, range(30), Budget(200, 300)
    )
    assert found
    assert {each.images for each in found} <= {8, 16, 24}


def test_segmentation_models_and_two_classes_are_not_checked(world):
    _, images = world
    opened = ImageSet(sorted(images.iterdir()), images, Preprocessing((SIDE, SIDE)))
    rows = range(IMAGES)
    found = check_preprocessing(lambda x: x, opened, rows, 2 * IMAGES)
    assert found == "not possible (a segmentation model)"
    found = check_preprocessing(lambda x: x.reshape(len(x), -1)[:, :2], opened, rows, 2 * IMAGES)
    assert found == "not possible (two classes)"


def test_an_undecided_race_over_few_images_is_inconclusive(world):
    _, images = world
    opened = ImageSet(sorted(images.iterdir()), images, Preprocessing((SIDE, SIDE)))

    def predict(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), -1)[:, :9]  # colours differ, other normalisations change nothing

    variants = len(normalisations_of(opened.preprocessing))
    for rounds, found in ((1, "inconclusive: tried on 8 images only"), (2, "no clearly better")):
        passes = math.ceil(rounds * ROUND * variants / COST)
        said = check_preprocessing(predict, opened, range(round(rounds * ROUND / COST)), passes)
        assert said.startswith(found)


def test_ways_to_resize_race_only_if_the_normalisation_is_clear(world):
    network, images = world
    session = pytest.importorskip("onnxruntime").InferenceSession(str(network))

    def predict(x: np.ndarray) -> np.ndarray:
        logits: np.ndarray = session.run(None, {"x": x})[0]
        return logits

    right = preprocessing_check.normalised(Preprocessing((SIDE, SIDE)), RIGHT, "rgb")
    for given, names in (
        (right, {"as given", "stretched", "margin"}),
        (Preprocessing((SIDE, SIDE)), {"as given", f"{RIGHT}, RGB"}),
    ):
        opened = ImageSet(sorted(images.iterdir()), images, given)
        found = compare_variants(predict, opened, range(IMAGES), replace(ENOUGH))
        assert names <= {each.name for each in found}


def test_variants_that_are_the_same_are_left_out():
    nearly = Preprocessing((224, 224), edge=256, mean=(0.498,), std=(0.502,))
    names = [each.name for each in normalisations_of(nearly)]
    assert f"{RIGHT}, RGB" not in names
    assert len(names) == len(set(names)) == 1 + 7
    assert [each.name for each in resized_of(nearly)] == ["as given", "stretched", "no margin"]
    wide = [each.flags for each in resized_of(Preprocessing((32, 48)))]
    assert wide == ["", "--resize stretch"]
    flags = {each.name: each.flags for each in normalisations_of(replace(nearly, order="bgr"))}
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
    worse = variant("worse", peaked(2, SPREAD))
    assert better_than_given([given, worse]) is None
    dropped = variant("dropped out", peaked(9, SPREAD[:16]))  # fewer images
    assert better_than_given([given, dropped]) is None
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


def test_both_scores_must_agree():
    """A collapsed network stands out, one that guesses is informative: neither alone is enough."""
    mixed = peaked(4, SPREAD)
    given = variant("as given", mixed)
    collapsed = peaked(9, np.zeros_like(SPREAD))
    assert standing_out(collapsed).mean() > standing_out(mixed).mean()
    assert information(collapsed).mean() < information(mixed).mean()
    assert better_than_given([variant("collapsed", collapsed), given]) is None
    assert better_than_given([given, variant("collapsed", collapsed)]) is None


def test_nothing_is_named_while_two_others_are_in_the_race():
    given = variant("as given", peaked(2, SPREAD))
    better = variant("better", peaked(6, SPREAD))
    assert better_than_given([better, given]) is better
    assert better_than_given([variant("other", peaked(5, SPREAD)), better, given]) is None


def test_variants_with_the_same_logits_run_once(world, tmp_path):
    """Of grey images the order of colours makes no difference, so the other variant is found."""
    network, images = world
    grey = tmp_path / "grey"
    grey.mkdir()
    for i, file in enumerate(sorted(images.iterdir())[:200]):
        with Image.open(file) as image:
            image.convert("L").convert("RGB").save(grey / f"{i:03d}.png")
    session = pytest.importorskip("onnxruntime").InferenceSession(str(network))
    given = Preprocessing((SIDE, SIDE))
    opened = ImageSet(sorted(grey.iterdir()), grey, given)
    found = compare_variants(
        lambda x: np.asarray(session.run(None, {"x": x})[0]), opened, range(200), replace(ENOUGH)
    )
    most = {each.name for each in found if each.images == found[0].images}
    assert not {f"{RIGHT}, RGB", f"{RIGHT}, BGR"} <= most


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
