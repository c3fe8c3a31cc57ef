"""The files that the how-to pages use: two small models, digits as images, frames, reviews.

    python howto_files.py

writes about 20 files and folders to the current folder, from scikit-learn's digits and random
numbers. Run it in an empty folder. It takes some seconds. Labelling is a person's work; here the
ground truth is known, and

    python howto_files.py label calibrated/

fills in the table `calibrated/to-label.csv` and saves it as `labels.csv`, and

    python howto_files.py check calibrated/

compares the predictions with the ground truth.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import skops.io
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
TRUTH = Path("truth.csv")  # of every image, row, question and frame that is written
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COLOURS = np.array([(70, 130, 180), (110, 100, 100), (40, 120, 50)])  # sky, road, trees
LAYERS = ("sky", "road", "trees")


def main(words: list[str]) -> None:
    """Write all files, label those that a run asks about, or check its predictions."""
    if words[:1] == ["label"]:
        fill_in(Path(words[1]))
        return
    if words[:1] == ["check"]:
        check(Path(words[1]))
        return
    truth: dict[str, str] = {}
    write_images(truth)
    write_frames()
    write_reviews(truth)
    write_questions(truth)
    write_table(TRUTH, ["file", "label"], sorted(truth.items()))


def write_images(truth: dict[str, str]) -> None:
    """Two networks trained on clean digits; noisy digits; one week of a deployed model."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order] / 16, y[order]
    for seed, name in enumerate(("model", "other")):
        network = MLPClassifier((32,), max_iter=1000, random_state=seed).fit(x[:600], y[:600])
        save_network(network, Path(f"{name}.onnx"))
        outputs = network.predict_proba(with_noise(x[600:], 0.3))
        write_table(Path(f"{name}.csv"), list(NUMBERS), outputs)
    Path("classes.txt").write_text("\n".join(NUMBERS), encoding="utf-8")
    write_digits("images", x[600:], y[600:], 0.3, truth)
    write_digits("scans", x[600:], y[600:], 0.2, truth)
    write_digits("reference", x[600:1200], y[600:1200], 0.05, truth)
    days = [("monday", 1200, 0.05), ("tuesday", 1400, 0.05), ("wednesday", 1600, 0.4)]
    for day, start, noise in days:
        write_digits(day, x[start : start + 200], y[start : start + 200], noise, truth)


def write_digits(folder: str, x: Floats, y: Integers, noise: float, truth: dict[str, str]) -> None:
    """Digits of 8 x 8 pixels as images of 32 x 32, with noise."""
    Path(folder).mkdir(exist_ok=True)
    pixels = (255 * with_noise(x, noise)).astype(np.uint8).reshape(-1, 8, 8)
    for i, small in enumerate(pixels):
        name = f"{folder}-{i:04d}.png"
        Image.fromarray(small.repeat(4, axis=0).repeat(4, axis=1)).save(f"{folder}/{name}")
        truth[name] = NUMBERS[y[i]]


def with_noise(x: Floats, noise: float) -> Floats:
    """Add noise to values from 0 to 1."""
    noisy: Floats = x + np.random.default_rng(1).normal(0, noise, size=x.shape)
    return noisy.clip(0, 1)


def save_network(network: MLPClassifier, path: Path) -> None:
    """Save a network as ONNX, with images as its input; yours comes from torch or elsewhere."""
    weights: dict[str, Any] = {}
    for i in (0, 1):
        weights[f"weight{i}"] = network.coefs_[i]
        weights[f"bias{i}"] = network.intercepts_[i]
    nodes = [
        helper.make_node("AveragePool", ["image"], ["small"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["small"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weight0", "bias0"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "weight1", "bias1"], ["logits"]),
    ]
    save_graph(nodes, weights, ["n", 1, 32, 32], ["n", 10], path)


def save_graph(
    nodes: list[Any], weights: dict[str, Any], shape: list[Any], outputs: list[Any], path: Path
) -> None:
    """Save an ONNX graph from `image` to `logits`."""
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, outputs)
    constants = [
        numpy_helper.from_array(np.asarray(value, dtype=np.float32), name)
        for name, value in weights.items()
    ]
    graph = helper.make_graph(nodes, "network", [image], [logits], constants)
    opset = helper.make_opsetid("", 18)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)


def write_frames() -> None:
    """Frames of sky, road and trees at dusk, their masks, and a model trained on day frames."""
    rng = np.random.default_rng(2)
    day, day_masks = draw_frames(20, 1.0, rng)
    pixels = day.reshape(-1, 3) / 255
    model = LogisticRegression(C=100, max_iter=1000).fit(pixels, day_masks.ravel())
    weights = {"weight": model.coef_[:, :, None, None], "bias": model.intercept_}
    nodes = [helper.make_node("Conv", ["image", "weight", "bias"], ["logits"])]
    shape = ["n", 3, "height", "width"]
    save_graph(nodes, weights, shape, shape, Path("segmenter.onnx"))
    dusk, masks = draw_frames(60, 0.8, rng)
    for folder in ("frames", "masks"):
        Path(folder).mkdir(exist_ok=True)
    for i, (frame, mask) in enumerate(zip(dusk, masks, strict=True)):
        Image.fromarray(frame).save(f"frames/{i:03d}.png")
        Image.fromarray(mask.astype(np.uint8)).save(f"masks/{i:03d}.png")
    Path("layers.txt").write_text("\n".join(LAYERS), encoding="utf-8")


def draw_frames(
    n: int, light: float, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], Integers]:
    """Sky above, road below, trees between; every frame has its own light."""
    masks = np.zeros((n, 48, 64), dtype=np.int64)
    for mask in masks:
        horizon, left = rng.integers(12, 30), rng.integers(0, 40)
        mask[horizon:] = 1
        mask[horizon - 8 : horizon + 10, left : left + 24] = 2
    own_light = light * rng.uniform(0.8, 1.2, size=(n, 1, 1, 1))
    frames = own_light * COLOURS[masks] + rng.normal(0, 25, size=(*masks.shape, 3))
    return frames.clip(0, 255).astype(np.uint8), masks


def write_reviews(truth: dict[str, str]) -> None:
    """A model trained on reviews of films, and reviews of restaurants."""
    rng = np.random.default_rng(3)
    texts, moods = draw_reviews(600, ("film", "plot", "cast", "ending"), 0.55, rng)
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=100)).fit(texts, moods)
    skops.io.dump(model, "sentiment.skops")
    texts, moods = draw_reviews(500, ("soup", "waiter", "table", "wine"), 0.3, rng)
    names = [f"review-{i:03d}" for i in range(len(texts))]
    truth.update(zip(names, moods, strict=True))
    write_table(Path("reviews.csv"), ["file", "text"], zip(names, texts, strict=True))
    rows = [[name, *row] for name, row in zip(names, model.predict_proba(texts), strict=True)]
    write_table(Path("probabilities.csv"), ["file", *model.classes_], rows)


def draw_reviews(
    n: int, things: tuple[str, ...], fitting: float, rng: np.random.Generator
) -> tuple[list[str], list[str]]:
    """Three sentences each; some of their words say the opposite of the review."""
    praise = ("great", "lovely", "superb", "fine")
    blame = ("dull", "awful", "poor", "cold")
    texts, moods = [], []
    for _ in range(n):
        good = rng.random() < 0.5
        sentences = []
        for thing in rng.choice(things, 3, replace=False):
            words = praise if good == (rng.random() < 0.5 + fitting / 2) else blame
            sentences.append(f"The {thing} was {rng.choice(words)}.")
        texts.append(" ".join(sentences))
        moods.append("positive" if good else "negative")
    return texts, moods


def write_questions(truth: dict[str, str]) -> None:
    """Sums with four options, and log-probabilities drawn at random: no language model ran."""
    rng = np.random.default_rng(5)
    lines = []
    for i in range(400):
        a, b = rng.integers(10, 90, size=2)
        right = int(rng.integers(4))
        options = [str(a + b + 10 * (j - right)) for j in range(4)]
        logits = rng.normal(0, 1, size=4)
        logits[right] += 1
        logprobs = 2.5 * logits - np.log(np.exp(2.5 * logits).sum())
        question = f"What is {a} + {b}?"
        line = {"id": f"q{i}", "question": question, "options": options}
        lines.append(json.dumps(line | {"logprobs": logprobs.round(3).tolist()}))
        truth[f"q{i}"] = "ABCD"[right]
    Path("choices.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def fill_in(out: Path) -> None:
    """What a person does with the labelling page."""
    if (out / "labelling").exists():  # of a monitor
        out = out / "labelling"
    with (out / "to-label.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with TRUTH.open(newline="", encoding="utf-8") as file:
        truth = {row["file"]: row["label"] for row in csv.DictReader(file)}
    for row in rows:
        if "y" in row:
            mask = np.asarray(Image.open(Path("masks") / row["file"]))
            row["label"] = LAYERS[mask[int(row["y"]), int(row["x"])]]
        else:
            row["label"] = truth[name_of(row["file"])]
    write_table(Path("labels.csv"), list(rows[0]), (row.values() for row in rows))


def check(out: Path) -> None:
    """Print how many predictions are wrong, of all and of the accepted ones."""
    with TRUTH.open(newline="", encoding="utf-8") as file:
        truth = {row["file"]: row["label"] for row in csv.DictReader(file)}
    rows = predictions_in(out)
    accepted = [row for row in rows if str(row["accept"]).lower() == "true"]
    for name, kept in (("all", rows), ("accepted", accepted)):
        wrong = sum(row["class_name"] != truth[row["file"]] for row in kept)
        print(f"{name} predictions: {wrong / len(kept):.1%} wrong")


def predictions_in(out: Path) -> list[dict[str, Any]]:
    """The table of predictions: Parquet if pyarrow is installed, else CSV."""
    if (out / "predictions.csv").exists():
        with (out / "predictions.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    import pyarrow.parquet

    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(out / "predictions.parquet").to_pylist()
    return rows


def name_of(file: str) -> str:
    """The name in the ground truth: texts go by row, and a monitor puts the time first."""
    if file.isdigit():
        return f"review-{int(file):03d}"
    return Path(file.split(" ")[-1]).name


def write_table(path: Path, columns: list[str], rows: Any) -> None:
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
