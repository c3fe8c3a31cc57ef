"""`pseudocal calibrate` on segmentation model.

Every kind of file, the report, masks for evaluation.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from pseudocal import Calibration

PREPARED = (
    "--size",
    "16x16",
    "--resize",
    "stretch",
    "--mean",
    "0.5",
    "--std",
    "0.25",
    "--layout",
    "nchw",
)


@pytest.fixture(scope="session")
def network():
    """Three classes by colour, at half the size of the input; far too sure of itself."""
    import torch

    torch.manual_seed(0)
    conv = torch.nn.Conv2d(3, 3, 1)
    with torch.no_grad():
        conv.weight.copy_(6 * torch.eye(3)[:, :, None, None])
        conv.bias.zero_()
    return torch.nn.Sequential(torch.nn.AvgPool2d(2), conv).eval()


@pytest.fixture(scope="session")
def segmenters(network, tmp_path_factory) -> dict[str, Path]:
    import torch
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    folder = tmp_path_factory.mktemp("segmenters")
    example = torch.zeros(2, 3, 16, 16)
    batch = torch.export.Dim("batch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(network, example).save(folder / "net.pt")
        torch.export.save(
            torch.export.export(network, (example,), dynamic_shapes=({0: batch},)),
            folder / "net.pt2",
        )
        torch.onnx.export(
            network,
            (example,),
            folder / "net.onnx",
            dynamo=True,
            dynamic_shapes=({0: batch},),
            verbose=False,
        )
    torch.manual_seed(0)
    config = SegformerConfig(
        num_labels=3,
        depths=[1, 1, 1, 1],
        hidden_sizes=[4, 8, 8, 8],
        decoder_hidden_size=8,
        num_attention_heads=[1, 1, 1, 1],
    )
    config.id2label = {0: "road", 1: "car", 2: "sky"}
    model = SegformerForSemanticSegmentation(config).eval()
    with torch.no_grad():
        model.decode_head.classifier.weight.mul_(30)
    model.save_pretrained(folder / "segformer")
    settings = {
        "size": {"height": 32, "width": 32},
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }
    (folder / "segformer" / "preprocessor_config.json").write_text(json.dumps(settings))
    return {
        k: folder / v
        for k, v in {
            "onnx": "net.onnx",
            "pt2": "net.pt2",
            "torchscript": "net.pt",
            "hub": "segformer",
        }.items()
    }


@pytest.fixture(scope="session")
def patches(tmp_path_factory) -> Path:
    """40 images of four patches each, and masks that say which colour a patch is nearest to."""
    folder = tmp_path_factory.mktemp("patches")
    rng = np.random.default_rng(1)
    for i in range(40):
        colours = rng.uniform(30, 225, size=(2, 2, 3))
        image_file = colours.repeat(8, axis=0).repeat(8, axis=1) + rng.normal(
            0, 10, size=(16, 16, 3)
        )
        mask = (
            (colours + rng.gumbel(0, 60, size=colours.shape))
            .argmax(axis=-1)
            .astype(np.uint8)
            .repeat(8, 0)
            .repeat(8, 1)
        )
        mask[0] = 255
        for kind, array in (
            ("images", np.clip(image_file, 0, 255).astype(np.uint8)),
            ("masks", mask),
        ):
            (folder / kind).mkdir(exist_ok=True)
            Image.fromarray(array).save(folder / kind / f"{i:02}.png")
    return folder


def calibrated(pseudocal, model, patches, out, *options):
    done = pseudocal("calibrate", model, patches / "images", "-o", out, "--batch-size", 8, *options)
    assert done.code == 0, done.err
    return Calibration.load(out / "calibration.json"), json.loads((out / "report.json").read_text())


@pytest.mark.parametrize("kind", ["onnx", "torchscript", "pt2"])
def test_a_calibrated_segmenter_divides_by_t(
    kind, pseudocal, segmenters, network, patches, tmp_path
):
    import torch

    from pseudocal.app.models.files import open_model

    found, _ = calibrated(
        pseudocal, segmenters[kind], patches, tmp_path / kind, "--trust-model", *PREPARED
    )
    assert found.temperature > 1.5
    written = next(
        path for path in (tmp_path / kind).iterdir() if path.name.startswith("unconfirmed-model.")
    )
    x = np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype(np.float32)
    with torch.no_grad():
        before = network(torch.from_numpy(x)).numpy()
    after = open_model(str(written), trust=True).predict(x)
    np.testing.assert_allclose(after, before / found.temperature, rtol=1e-3, atol=1e-4)


def test_predictions_and_report_are_of_images(pseudocal, segmenters, patches, tmp_path):
    import pyarrow.parquet

    found, content = calibrated(pseudocal, segmenters["onnx"], patches, tmp_path / "out", *PREPARED)
    table = pyarrow.parquet.read_table(tmp_path / "out" / "predictions.parquet").to_pydict()
    assert sorted(table["file"]) == [f"{i:02}.png" for i in range(40)]
    assert np.allclose(np.sum(table["fractions"], axis=1), 1)
    assert np.mean(table["confidence_after"]) < np.mean(table["confidence_before"])
    assert content["confidence"]["mean_after"] == pytest.approx(
        np.mean(table["confidence_after"]), rel=1e-4
    )
    assert found.scaling.groups < 40
    assert found.settings["pixels_per_image"] == 20_000
    html = (tmp_path / "out" / "report.html").read_text()
    assert (
        html.count("confidence before</figcaption>")
        == html.count("confidence after</figcaption>")
        == 6
    )
    assert "By class" in html
    assert "pairs of images" in html
    facts = {fact["code"]: fact["values"] for fact in content["facts"]}
    assert facts["few_images"]["pairs"] == 40
    assert content["trust"]["verdict"] == "caution"
    assert "Without labels, consistent errors of a segmentation model cannot be detected." in html
    assert "fraction of pixels" in html
    assert "fraction of inputs" not in html
    assert "of 2,560 pixels. The mean" in html  # 40 maps of 8 x 8
    assert "only another model" not in html
    assert pseudocal("report", tmp_path / "out").code == 0


def test_masks_are_for_evaluation_alone(pseudocal, segmenters, patches, tmp_path):
    plain, _ = calibrated(pseudocal, segmenters["onnx"], patches, tmp_path / "a", *PREPARED)
    masked, content = calibrated(
        pseudocal,
        segmenters["onnx"],
        patches,
        tmp_path / "b",
        *PREPARED,
        "--ground-truth",
        patches / "masks",
    )
    assert masked.scaling == plain.scaling
    rows = {row["metric"]: row for row in content["metrics"]}
    assert rows["accuracy"]["change"]["value"] == 0
    assert rows["ece"]["after"]["value"] < rows["ece"]["before"]["value"]
    assert (
        rows["ece"]["before"]["high"] - rows["ece"]["before"]["low"] > 0.05
    )  # of 40 images, not of 9,600 pixels
    assert all(row["ece_before"] is not None for row in content["classes"])
    assert all(row["ece_after"] is not None for row in content["classes"])
    html = (tmp_path / "b" / "report.html").read_text()
    assert "right or wrong</figcaption>" in html
    assert "Reliability before calibration (pixels)" in html


def test_a_segformer_folder_with_fewer_pixels(pseudocal, segmenters, patches, tmp_path):
    found, content = calibrated(
        pseudocal, segmenters["hub"], patches, tmp_path / "out", "--pixels", 10
    )
    assert found.settings["pixels_per_image"] == 10
    assert found.scaling.rows <= 400
    assert {row["name"] for row in content["classes"]} <= {"road", "car", "sky"}
    assert "SemanticSegmentation" in content["usage"]
    config = json.loads((tmp_path / "out" / "unconfirmed-model" / "config.json").read_text())
    assert config["pseudocal_temperature"] == found.temperature


@pytest.fixture
def counted(network, monkeypatch) -> list[int]:
    """The sizes of the batches that the network was asked about, as `counted_segmenter:model`."""
    import torch

    sizes: list[int] = []

    def model(x):
        sizes.append(len(x))
        with torch.no_grad():
            return network(torch.as_tensor(x)).numpy()

    holder = ModuleType("counted_segmenter")
    vars(holder)["model"] = model
    monkeypatch.setitem(sys.modules, "counted_segmenter", holder)
    return sizes


@pytest.fixture
def refused(pseudocal, counted, patches, tmp_path):
    """Asserts what is said of labels for a segmenter, and how often it ran before that."""

    def refused(said: str, *options: object, batches: int) -> None:
        out = tmp_path / "out"
        images = ("counted_segmenter:model", patches / "images", "-o", out, "--batch-size", 8)
        done = pseudocal("calibrate", *images, *PREPARED, *options)
        assert done.code == 3
        assert said in done.err
        assert len(counted) == batches
        assert not out.exists()
        counted.clear()

    return refused


@pytest.fixture
def masks(patches, tmp_path) -> Path:
    """A copy that may be spoilt."""
    return shutil.copytree(patches / "masks", tmp_path / "masks")


def test_labels_that_cannot_be_used_are_refused_before_the_model_runs(
    refused, patches, masks, tmp_path
):
    refused("nowhere: no such file", "--ground-truth", tmp_path / "nowhere", batches=0)
    refused("one integer per pixel", "--ground-truth", patches / "images", batches=0)
    np.save(tmp_path / "few.npy", np.zeros((39, 16, 16), np.uint8))
    refused(
        "expected masks of shape (40, height, width), got (39,",
        "--ground-truth",
        tmp_path / "few.npy",
        batches=0,
    )
    np.save(tmp_path / "real.npy", np.zeros((40, 16, 16)))
    refused(
        "masks that are integers, got dtype float64",
        "--ground-truth",
        tmp_path / "real.npy",
        batches=0,
    )
    cut = ("--ground-truth", masks, "--resize", "crop")
    refused("are cropped; pass --resize stretch", *cut, "--size", "16x20", batches=0)
    Image.new("L", (16, 32)).save(masks / "03.png")
    found = f"the mask {masks / '03.png'} has 32 x 16 pixels, its image 16 x 16"
    refused(found, "--ground-truth", masks, batches=0)
    (masks / "02.png").write_text("no image")
    refused(
        f"{masks / '02.png'} is not a mask in a known format",
        "--ground-truth",
        masks,
        batches=0,
    )
    for i in (3, 7, 11, 20):
        (masks / f"{i:02}.png").unlink()
    three = ", ".join(str(masks / name) for name in ("03.png", "07.png", "11.png"))
    refused(
        f"4 of 40 images have no mask: {three}",
        "--ground-truth",
        masks,
        batches=0,
    )


def test_what_depends_on_the_model_is_refused_after_its_first_batch_and_mixup(
    refused, masks, tmp_path
):
    (tmp_path / "a.csv").write_text("file,label\n00.png,1\n")
    refused("expected the columns file, y, x and label", "--labels", tmp_path / "a.csv", batches=2)
    names = tmp_path / "names.txt"
    names.write_text("road\nsky\n")
    refused("there are 2 class names, and the model has 3 classes", "--classes", names, batches=2)
    names.write_text("road\n" * 40)
    refused(
        "the model predicts every pixel: pass a folder with a mask per image",
        "--ground-truth",
        names,
        batches=2,
    )
    many = np.zeros((40, 16, 16), np.uint8)
    many[5, 4, 7] = 9
    np.save(tmp_path / "many.npy", many)
    said = f"expected labels from 0 to 2 or the ignored one, got 9 at (4, 7) in mask 5 of {tmp_path / 'many.npy'}"
    refused(said, "--ground-truth", tmp_path / "many.npy", batches=2)
    Image.fromarray(many[5]).save(masks / "31.png")
    refused(f"got 9 at (4, 7) in {masks / '31.png'}", "--ground-truth", masks, batches=2)


def test_masks_in_which_all_is_ignored_measure_nothing(pseudocal, segmenters, patches, tmp_path):
    ignored = tmp_path / "ignored.npy"
    np.save(ignored, np.full((40, 16, 16), 255, dtype=np.uint8))
    images = (segmenters["onnx"], patches / "images", "-o", tmp_path / "out")
    done = pseudocal("calibrate", *images, *PREPARED, "--ground-truth", ignored)
    assert done.code == 3
    assert "all pixels of 40 masks are ignored (255) (--ground-truth)" in done.err
    assert not (tmp_path / "out").exists()


def test_a_crop_that_cuts_nothing_and_masks_of_one_bit(pseudocal, segmenters, patches, tmp_path):
    (tmp_path / "bits").mkdir()
    for path in (patches / "masks").iterdir():
        bits = np.asarray(Image.open(path)) == 1
        Image.fromarray(bits).save(tmp_path / "bits" / path.name)
    options = (*PREPARED, "--resize", "crop", "--ground-truth", tmp_path / "bits")
    _, content = calibrated(pseudocal, segmenters["onnx"], patches, tmp_path / "out", *options)
    np.save(
        tmp_path / "bits.npy",
        np.stack([np.asarray(Image.open(tmp_path / f"bits/{i:02}.png")) for i in range(40)]),
    )
    labels = ("--ground-truth", tmp_path / "bits.npy")
    _, same = calibrated(
        pseudocal, segmenters["onnx"], patches, tmp_path / "same", *PREPARED, *labels
    )
    assert same["metrics"] == content["metrics"]
    assert {row["metric"]: row for row in content["metrics"]}["accuracy"]["before"]["value"] < 1


def test_answered_pixels_bring_the_model_up_to_date(pseudocal, segmenters, patches, tmp_path):
    import onnxruntime

    out = tmp_path / "out"
    first, _ = calibrated(pseudocal, segmenters["onnx"], patches, out, *PREPARED)
    assert pseudocal("label", out, "-n", 30).code == 0
    header, *questions = (out / "to-label.csv").read_text().splitlines()
    file = tmp_path / "labels.csv"
    file.write_text("\n".join([header, *(f"{line}{i % 3}" for i, line in enumerate(questions))]))
    done = pseudocal("refine", out, file)
    assert done.code == 0, done.err
    after = Calibration.load(out / "calibration.json")
    assert after.temperature != first.temperature
    probe = np.load(out / "probe.npy")
    (exported,) = json.loads((out / "report.json").read_text())["model"]["files"]
    models = [onnxruntime.InferenceSession(path) for path in (segmenters["onnx"], out / exported)]
    plain, scaled = (model.run(None, {model.get_inputs()[0].name: probe})[0] for model in models)
    np.testing.assert_allclose(scaled * after.temperature, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_workers_keep_the_same_pixels_and_labels_do_the_same(
    ray, pseudocal, segmenters, patches, tmp_path
):
    from pseudocal.app import Run

    here, there, both = (tmp_path / name for name in ("here", "there", "both"))
    on_ray = (*PREPARED, "--ray", "--workers", 1)
    calibrated(pseudocal, segmenters["onnx"], patches, here, *PREPARED)
    calibrated(pseudocal, segmenters["onnx"], patches, there, *on_ray)
    one, other = (Run.open(folder) for folder in (here, there))
    assert other.row_names == one.row_names
    np.testing.assert_allclose(other.logits, one.logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(other.pixels.before, one.pixels.before, rtol=1e-6)
    for folder in (here, there):
        assert pseudocal("label", folder, "-n", 30).code == 0
    assert (there / "to-label.csv").read_text() == (here / "to-label.csv").read_text()
    header, *questions = (here / "to-label.csv").read_text().splitlines()
    file = tmp_path / "labels.csv"
    file.write_text("\n".join([header, *(f"{line}{i % 3}" for i, line in enumerate(questions))]))
    for folder in (here, there):
        assert pseudocal("refine", folder, file).code == 0
    calibrated(pseudocal, segmenters["onnx"], patches, both, *on_ray, "--labels", file)
    wanted = Calibration.load(here / "calibration.json")
    for folder in (there, both):
        found = Calibration.load(folder / "calibration.json")
        assert found.temperature == pytest.approx(wanted.temperature, rel=1e-4)
        assert found.measured.verdict == wanted.measured.verdict
        names = [
            {path.name for path in out.iterdir()} - {"to-label.csv", "label.html"}
            for out in (here, folder)
        ]
        assert names[0] == names[1]


def test_workers_write_and_report_the_same_of_images(ray, pseudocal, segmenters, patches, tmp_path):
    import pyarrow.parquet as pq

    here, there = tmp_path / "here", tmp_path / "there"
    found, content = calibrated(pseudocal, segmenters["onnx"], patches, here, *PREPARED)
    on_ray, same = calibrated(
        pseudocal, segmenters["onnx"], patches, there, *PREPARED, "--ray", "--workers", 1
    )
    assert on_ray.temperature == pytest.approx(found.temperature, rel=1e-6)
    table, rows = (pq.read_table(folder / "predictions.parquet") for folder in (here, there))
    assert rows.schema == table.schema
    assert rows["file"].to_pylist() == table["file"].to_pylist()
    for name in ("class", "class_fraction", "confidence_before", "confidence_after"):
        np.testing.assert_allclose(rows[name].to_numpy(), table[name].to_numpy(), rtol=1e-5)
    np.testing.assert_allclose(
        rows["fractions"].to_pylist(), table["fractions"].to_pylist(), rtol=1e-6
    )
    assert (same["data"]["inputs"], same["data"]["used"]) == (40, 40)
    assert same["calibration"]["pairs"] == content["calibration"]["pairs"]
    for key in ("facts", "reliability"):
        assert same[key] == content[key]
    for one, other in zip(content["classes"], same["classes"], strict=True):
        for name in ("fraction", "before", "after"):
            assert other.pop(name) == pytest.approx(one.pop(name), rel=1e-6)
        assert other == one
    assert len(same["maps"]) == 6
    assert sum(same["confidence"]["after"]) == 40 * 64
    assert same["confidence"]["mean_after"] == pytest.approx(
        content["confidence"]["mean_after"], rel=1e-5
    )
    names = [
        [item["name"] for item in found["examples"]["least_confident"]] for found in (content, same)
    ]
    assert names[0] == names[1]
    assert same["examples"]["least_confident"][0]["thumbnail"].startswith("data:image")


def test_a_scripted_segmenter_that_gives_a_mapping_is_written_with_t_inside(network, tmp_path):
    import torch

    from pseudocal.app.models.torch_files import open_torchscript

    class Named(torch.nn.Module):  # as the segmenters of torchvision
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return {"out": self.net(x), "aux": -x}

    x = np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(Named(network), torch.from_numpy(x), strict=False).save(
            tmp_path / "named.pt"
        )
    opened = open_torchscript(tmp_path / "named.pt")
    assert opened.export(2.0, tmp_path, x) == ["model.pt"]
    np.testing.assert_allclose(
        open_torchscript(tmp_path / "model.pt").predict(x), opened.predict(x) / 2, atol=1e-6
    )


@pytest.fixture(scope="session")
def large(tmp_path_factory) -> Path:
    """A segmenter as a function, and frames of which 64 are too many for the memory.

    8 x 6 MB each.
    """
    folder = tmp_path_factory.mktemp("large")
    (folder / "large_segmenter.py").write_text(
        "import numpy as np\n"
        "sizes = []\n"
        "weight = 9 * np.random.default_rng(0).normal(size=(20, 3)).astype('float32')\n"
        "def model(x):\n"
        "    sizes.append(len(x))\n"
        "    return np.einsum('dc,nchw->ndhw', weight, x, optimize=True)\n"
    )
    frames = (
        np.random.default_rng(1)
        .normal(size=(14, 3, 8, 8))
        .astype(np.float32)
        .repeat(32, 2)
        .repeat(32, 3)
    )
    np.save(folder / "frames.npy", frames)
    return folder


@pytest.mark.parametrize(("said", "expected"), [((), 11), (("--batch-size", 14), 14)])
def test_batches_of_large_frames_fit_into_memory_unless_the_user_says_how_many(
    said, expected, pseudocal, large, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(large)
    done = pseudocal(
        "calibrate", "large_segmenter:model", large / "frames.npy", "-o", tmp_path / "out", *said
    )
    assert done.code == 0, done.err
    sizes = sys.modules["large_segmenter"].sizes

    assert max(sizes) == (7 if expected == 11 else 14)  # 14 frames in two equal batches, or in one
    assert (
        Calibration.load(tmp_path / "out" / "calibration.json").settings["batch_size"] == expected
    )
    assert ("fit into memory" in done.err) == (not said)
    sizes.clear()
