"""`label` and `refine` for a segmentation model: pixels are labelled, and the run is enough."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pseudocal import Calibration, LabelSample, rows_to_label
from pseudocal.app import Run, pixels
from pseudocal.app.pixels import Frame, PixelSample, pixels_each

HEIGHT, WIDTH = 24, 32
PREPARED = ("--size", f"{HEIGHT}x{WIDTH}", "--resize", "stretch", "--batch-size", 8)


def predict(x: Any) -> Any:
    """Three classes by colour, at half the size of the input, far too sure of themselves."""
    n, _, height, width = x.shape
    return 50 * x.reshape(n, 3, height // 2, 2, width // 2, 2).mean(axis=(3, 5))


@pytest.fixture
def frames(tmp_path, monkeypatch) -> Path:
    """Thirty images of 48 x 64, twice the size that the model takes, of patches of 8 x 8.

    And their masks.
    """
    model = ModuleType("segmenter_by_colour")
    model.predict = predict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, model.__name__, model)
    rng = np.random.default_rng(1)
    for i in range(30):
        colours = rng.uniform(30, 225, size=(6, 8, 3))
        mask = (colours / 20 + rng.gumbel(size=colours.shape)).argmax(axis=-1).astype(np.uint8)
        mask[0, 0] = 255
        for kind, array in (("images", colours.astype(np.uint8)), ("masks", mask)):
            (tmp_path / kind).mkdir(exist_ok=True)
            Image.fromarray(array.repeat(8, 0).repeat(8, 1)).save(tmp_path / kind / f"={i:02}.png")
    return tmp_path


@pytest.fixture
def out(pseudocal, frames) -> Path:
    done = pseudocal(
        "calibrate",
        "segmenter_by_colour:predict",
        frames / "images",
        "-o",
        frames / "out",
        *PREPARED,
    )
    assert done.code == 0, done.err
    return frames / "out"


def template(out: Path) -> list[dict[str, str]]:
    with (out / "to-label.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def labelled(out: Path, masks: Path, path: Path) -> Path:
    """Label the pixels of `label` from the masks."""
    rows = template(out)
    for row in rows:
        label = np.asarray(Image.open(masks / row["file"].lstrip("'")))[
            int(row["y"]), int(row["x"])
        ]
        row["label"] = "cannot tell" if label == 255 else str(label)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["file", "y", "x", "label"])
        writer.writeheader()
        writer.writerows(rows)
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_pixels_are_labelled_and_refine_does_what_the_library_says(pseudocal, frames, out):
    import pyarrow.parquet

    before, first = (
        Calibration.load(out / "calibration.json"),
        pyarrow.parquet.read_table(out / "predictions.parquet"),
    )
    assert pseudocal("label", out, "-n", 60).code == 0
    rows = template(out)
    assert (
        max(np.unique([row["file"] for row in rows], return_counts=True)[1]) <= 4
    )  # few of one image
    kept = Run.open(out)
    asked = rows_to_label(kept.logits, 60, groups=kept.pixels.image)
    spots = [[int(row["y"]), int(row["x"])] for row in rows]
    assert spots == np.stack([kept.pixels.y[asked], kept.pixels.x[asked]], axis=1).tolist()
    file = labelled(out, frames / "masks", frames / "labels.csv")
    done = pseudocal("refine", out, file)
    assert done.code == 0, done.err
    masks = [np.asarray(Image.open(frames / "masks" / name)) for name in kept.record.names]
    labels = np.array(
        [masks[kept.pixels.image[row]][kept.pixels.y[row], kept.pixels.x[row]] for row in asked]
    )
    labels, order = np.where(labels == 255, -1, labels.astype(int)), np.argsort(asked)
    expected = before.refined(
        kept.logits, LabelSample(asked[order], labels[order]), groups=kept.pixels.image
    )
    after = Calibration.load(out / "calibration.json")
    assert (after.temperature, after.measured) == (expected.temperature, expected.measured)
    count = int((labels >= 0).sum())
    assert f"measured on {count} labelled pixels" in done.out
    assert f"Verdict, measured on {count} labels" in (out / "report.html").read_text()
    table = pyarrow.parquet.read_table(out / "predictions.parquet")
    for name in ("file", "class", "class_fraction", "confidence_before", "fractions"):
        assert table[name] == first[name]
    rows_of = [
        kept.logits[kept.pixels.image == i] for i in range(30)
    ]  # all of them: the maps are small
    expected_after = [after.probabilities(rows).max(axis=1).mean() for rows in rows_of]
    np.testing.assert_allclose(table["confidence_after"].to_numpy(), expected_after, rtol=1e-5)


def test_twice_gives_the_same_files_and_one_go_too(pseudocal, frames, out):
    pseudocal("label", out, "-n", 40)
    file = labelled(out, frames / "masks", frames / "labels.csv")
    start = content(out)
    results = []
    for _ in range(2):
        assert pseudocal("refine", out, file).code == 0
        results.append(content(out))
    assert results[0] == results[1]
    assert results[0].keys() == start.keys()
    assert all(
        start[name] == results[0][name]
        for name in ("logits.npy", "pixels.npz", "probe.npy", "run.json")
    )
    words = ("segmenter_by_colour:predict", frames / "images", "-o", frames / "both", *PREPARED)
    assert pseudocal("calibrate", *words, "--labels", file).code == 0
    both = content(frames / "both")
    differ = {name for name in both if both[name] != results[0][name]}
    assert differ <= {
        "report.html",
        "report.json",
        "job.toml",
        "run.json",
    }  # they say when they were made, and what was asked
    assert pseudocal("calibrate", *words, "--labels", file, "--no-logits").code == 0
    left = set(content(frames / "both"))
    assert set(both) - left == {
        "evidence.npz",
        "logits.npy",
        "pixels.npz",
        "probe.npy",
        "run.json",
    }


def test_masks_for_evaluation_are_measured_again_on_the_pixels_that_were_kept(pseudocal, frames):
    out, masks = frames / "out", frames / "masks"
    words = (
        "segmenter_by_colour:predict",
        frames / "images",
        "-o",
        out,
        *PREPARED,
        "--ground-truth",
        masks,
    )
    done = pseudocal("calibrate", *words)
    assert done.code == 0, done.err
    before = {
        row["metric"]: row for row in json.loads((out / "report.json").read_text())["metrics"]
    }
    pseudocal("label", out, "-n", 60)
    done = pseudocal("refine", out, labelled(out, masks, frames / "labels.csv"), "--json")
    after = {row["metric"]: row for row in json.loads(done.out)["metrics"]}
    assert after["accuracy"]["before"]["value"] == pytest.approx(
        before["accuracy"]["before"]["value"], abs=0.1
    )
    assert after["ece"]["after"]["value"] < after["ece"]["before"]["value"] - 0.1
    report = json.loads((out / "report.json").read_text())
    assert len(report["maps"]) == 6
    assert all(one["correct"].startswith("data:image/png") for one in report["maps"])
    assert report["data"]["preparation"].endswith("; figures from a sample of the pixels")


def test_what_is_kept_does_not_grow_and_every_image_counts_the_same(pseudocal, frames, monkeypatch):
    monkeypatch.setattr(pixels, "PIXELS_MEMORY", 30 * 3 * 4 * 20)
    assert pixels_each(30, 3) == 20
    words = ("segmenter_by_colour:predict", frames / "images", "-o", frames / "out", *PREPARED)
    assert pseudocal("calibrate", *words).code == 0
    kept = Run.open(frames / "out")
    assert np.bincount(kept.pixels.image).tolist() == [20] * 30
    for seed in (1, 2):  # the pixels depend on the logits alone
        assert pseudocal("calibrate", *words, "--seed", seed).code == 0
        assert Run.open(frames / "out").row_names == kept.row_names
    assert pseudocal("label", frames / "out", "-n", 20).code == 0
    file = labelled(frames / "out", frames / "masks", frames / "labels.csv")
    assert pseudocal("refine", frames / "out", file).code == 0


def test_what_is_wrong_with_labels_of_pixels(pseudocal, frames, out):
    pseudocal("label", out, "-n", 10)
    good = labelled(out, frames / "masks", frames / "labels.csv").read_text().splitlines()
    before = content(out)
    for line, said in (
        (
            "'=00.png,1000,3,1",
            'line 12: "\'=00.png (y 1000, x 3)", which is no pixel that was kept of the target',
        ),
        (good[3], "line 12: "),
    ):
        (frames / "bad.csv").write_text("\n".join([*good, line]) + "\n")
        done = pseudocal("refine", out, frames / "bad.csv")
        assert (done.code, said in done.err) == (3, True), done.err
    (frames / "bad.csv").write_text("file,label\n=00.png,1\n")
    for words in (
        ("refine", out, frames / "bad.csv"),
        (
            "calibrate",
            "segmenter_by_colour:predict",
            frames / "images",
            "-o",
            out,
            *PREPARED,
            "--labels",
            frames / "bad.csv",
        ),
    ):
        done = pseudocal(*words)
        assert (done.code, "expected the columns file, y, x and label" in done.err) == (3, True), (
            done.err
        )
    (frames / "bad.csv").write_text("\n".join([good[0], *good[8:]]))
    assert "do not represent the rest" in pseudocal("refine", out, frames / "bad.csv").err
    assert pseudocal("refine", out, frames / "bad.csv", "--sampling", "random").code == 0
    assert before["logits.npy"] == content(out)["logits.npy"]
    np.savez(
        out / "pixels.npz",
        **(dict(np.load(out / "pixels.npz")) | {"image": np.zeros(3, dtype=int)}),
    )
    done = pseudocal("refine", out, frames / "labels.csv")
    assert (done.code, "has image as int64 of shape (3,)" in done.err) == (3, True)


def test_frames_of_an_array_are_shown_too(pseudocal, frames):
    np.save(
        frames / "x.npy",
        np.stack(
            [
                np.asarray(Image.open(p)).transpose(2, 0, 1) / 255
                for p in sorted((frames / "images").iterdir())
            ]
        ),
    )
    done = pseudocal(
        "calibrate",
        "segmenter_by_colour:predict",
        frames / "x.npy",
        "-o",
        frames / "out",
        "--batch-size",
        8,
    )
    assert done.code == 0, done.err
    assert pseudocal("label", frames / "out", "-n", 5).code == 0
    page = (frames / "out" / "label.html").read_text()
    assert page.count('"crop": "data:image') == 5
    kept = Run.open(frames / "out")
    assert (kept.pixels.y.max(), kept.pixels.x.max()) == (23, 31)  # of the model's own map


def test_two_logits_within_one_pixel_of_an_image_are_labelled_once():
    image = np.random.default_rng(0).normal(size=(2, 8, 8))
    frame = Frame(0, 0, 4, 4)
    kept = PixelSample.of(image, 0, most=500, frame=frame)
    assert len(kept.at) == len(set(zip(kept.y.tolist(), kept.x.tolist(), strict=True))) == 16
    assert kept.pixels.tolist() == [64]


def test_a_person_labels_pixels_in_a_browser(browser, pseudocal, frames, out):
    assert pseudocal("label", out, "-n", 4).code == 0
    for size in ({"width": 1200, "height": 800}, {"width": 390, "height": 844}):
        tab = browser.new_page(viewport=size)
        tab.goto((out / "label.html").as_uri())
        assert tab.locator("#prompt").text_content() == "What is at the mark?"
        for name in ("image", "crop"):
            shown = tab.locator(f"#{name}")
            assert shown.evaluate("e => e.decode().then(() => e.naturalWidth)") > 100
            assert shown.bounding_box()["width"] > 100
        assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
        for key in ("0", "1", "2", "?"):
            tab.keyboard.press(key)
        with tab.expect_download() as download:
            tab.locator("#save").click()
        download.value.save_as(frames / "labels.csv")
        tab.close()
    rows = list(csv.DictReader((frames / "labels.csv").read_text().splitlines()))
    assert [row["label"] for row in rows] == ["0", "1", "2", "cannot tell"]
    assert [(row["file"], row["y"], row["x"]) for row in rows] == [
        (r["file"], r["y"], r["x"]) for r in template(out)
    ]
    assert pseudocal("refine", out, frames / "labels.csv").code == 0
