"""A user's mistake is one line on standard error, an exit code, and earlier results as they were."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import sys
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


class Payload:
    """A pickle that would leave a trace if anybody opened it."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def refused(pseudocal, results, tmp_path):
    """Run a command that must fail, over the results of one that did not."""
    base = tmp_path / "results"
    shutil.copytree(results, base / "out")
    before = snapshot(base)

    def run(*arguments: object, code: int = 3, out: Path | None = None) -> str:
        done = pseudocal(*arguments, "-o", out or base / "out")
        assert done.code == code, done.err
        assert done.out == ""
        lines = done.err.splitlines()
        assert lines[-1].startswith("pseudocal: ")
        assert sum(line.startswith("pseudocal: ") for line in lines) == 1
        assert "Traceback" not in done.err
        assert snapshot(base) == before
        assert os.listdir(base) == ["out"]
        return lines[-1]

    return run


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "name", ["model.onnx", "model.pt2", "model.pt", "model.skops", "model.pkl", "model.joblib"]
)
def test_a_pickle_by_any_name_is_not_opened(name, refused, features, tmp_path):
    trace = tmp_path / "opened"
    (tmp_path / name).write_bytes(pickle.dumps(Payload(trace)))
    line = refused("calibrate", tmp_path / name, features)
    assert "pickle" in line
    assert "never opened" in line
    assert not trace.exists()


@pytest.mark.parametrize("name", ["model.pt", "model.pt2", "model.onnx"])
def test_a_torch_save_is_not_opened(name, refused, features, tmp_path):
    import torch

    trace = tmp_path / "opened"
    torch.save(Payload(trace), tmp_path / name)
    assert "never opened" in refused("calibrate", tmp_path / name, features)
    assert not trace.exists()


def test_skops_with_a_type_of_its_own(refused, features, tmp_path):
    import skops.io
    from sklearn.preprocessing import FunctionTransformer

    skops.io.dump(FunctionTransformer(os.system), tmp_path / "model.skops")
    assert "posix.system" in refused("calibrate", tmp_path / "model.skops", features)


@pytest.mark.parametrize("fraction", [0.3, 0.9])
@pytest.mark.parametrize("kind", ["onnx", "pt2", "torchscript", "sklearn"])
def test_a_truncated_model(kind, fraction, refused, tabular, features, tmp_path):
    content = Path(tabular[kind]).read_bytes()
    name = tmp_path / Path(tabular[kind]).name
    name.write_bytes(content[: int(fraction * len(content))])
    refused("calibrate", name, features, "--trust-model")


def test_an_empty_or_missing_model(refused, features, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    assert "empty" in refused("calibrate", tmp_path / "model.onnx", features)
    assert "no such file" in refused("calibrate", tmp_path / "missing.onnx", features)
    assert "imported" in refused("calibrate", "no_such_module:f", features)
    (tmp_path / "folder").mkdir()
    assert "config.json" in refused("calibrate", tmp_path / "folder", features)


def test_data_that_is_missing_empty_or_of_another_shape(refused, tabular, tmp_path):
    """Each is said as it is, and not as what would follow from it.

    Images, texts, a model that does not run.
    """
    (tmp_path / "x.csv").write_text("a,b,c,d\n")
    np.save(tmp_path / "x.npy", np.zeros((5, 3), np.float32))
    for name, said in (
        ("images", f"got {tmp_path / 'images'}: no such file"),
        ("x.csv", "has no rows"),
        ("x.npy", "expected inputs of shape (5,) for the model, got"),
    ):
        assert said in refused("calibrate", tabular["onnx"], tmp_path / name)


def test_sizes_of_images_that_the_model_does_not_take(refused, vision, image_files):
    said = refused("calibrate", vision["onnx"], image_files, "--size", "40")
    assert "the settings give (3, 40, 40)" in said
    said = refused("calibrate", vision["onnx"], image_files, "--resize", "10")
    assert "expected a shorter side of at least" in said
    assert "got 10" in said


def test_code_in_a_hugging_face_folder_is_not_run(refused, hub, image_files, tmp_path, monkeypatch):
    """Not even for one who says yes to everything."""
    folder = shutil.copytree(hub, tmp_path / "hub")
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w').close()\nfrom transformers import ResNetConfig as Config"
    (folder / "evil.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evilnet", "auto_map": {"AutoConfig": "evil.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("builtins.input", lambda prompt="": "y")
    assert "selects code: remove it" in refused("calibrate", folder, image_files)
    assert not trace.exists()


def test_a_truncated_hugging_face_folder(refused, hub, image_files, tmp_path):
    folder = shutil.copytree(hub, tmp_path / "hub")
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    assert "Hugging Face classifier" in refused("calibrate", folder, image_files)


def test_a_folder_in_the_place_of_a_file(pseudocal, tabular, features, tmp_path):
    """Nothing is moved, not even what could be."""
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    done = pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / "out", "-q")
    assert done.code == 4
    assert "report.html cannot be written: there is a folder" in done.err
    assert os.listdir(tmp_path / "out") == ["report.html"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_image_that_declares_60000_by_60000_pixels(refused, hub, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "huge.png").write_bytes(png(60_000, 60_000))
    line = refused("calibrate", hub, tmp_path / "images")
    assert "huge.png" in line
    assert "pixels" in line


def test_a_text_file_named_png(refused, hub, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_text("hello")
    assert "not an image in a known format" in refused("calibrate", hub, tmp_path / "images")


def test_few_unreadable_images_are_borne_and_listed(pseudocal, hub, image_files, tmp_path):
    import json
    import shutil

    shutil.copytree(image_files, tmp_path / "images")
    (tmp_path / "images" / "<b>.png").write_text("hello")
    (tmp_path / "images" / "huge.png").write_bytes(png(60_000, 60_000))
    assert pseudocal("calibrate", hub, tmp_path / "images", "-o", tmp_path / "out").code == 3
    done = pseudocal(
        "calibrate",
        hub,
        tmp_path / "images",
        "-o",
        tmp_path / "out",
        "--max-bad",
        "4%",
        "--json",
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["unreadable"] == 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "&lt;b&gt;.png" in page
    assert "<b>.png" not in page


def test_a_csv_with_nan(refused, tabular, tmp_path):
    (tmp_path / "x.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n1,,3,4,5\n")
    line = refused("calibrate", tabular["sklearn"], tmp_path / "x.csv")
    assert "nan in row 1, column 'b'" in line


def test_a_folder_without_images(refused, hub, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "has no images" in refused("calibrate", hub, tmp_path / "empty")


def test_an_output_folder_that_cannot_be_written(refused, tabular, features, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/pseudocal")):
        refused("calibrate", tabular["onnx"], features, out=out, code=4)
    assert (tmp_path / "file").read_text() == "mine"


def test_arrays_that_are_none(refused, tabular, tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    assert "holds a pickle" in refused("calibrate", tabular["onnx"], tmp_path / "objects.npy")
    (tmp_path / "text.npy").write_text("hello")
    refused("calibrate", tabular["onnx"], tmp_path / "text.npy")
    np.save(tmp_path / "flat.npy", np.zeros(7))
    assert "one input per row" in refused("calibrate", tabular["onnx"], tmp_path / "flat.npy")
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).normal(size=(50, 9)))
    said = refused("calibrate", tabular["callable"], tmp_path / "wide.npy")
    assert "cannot run inputs of shape 9: RuntimeError: mat1 and mat2" in said


@pytest.mark.parametrize(
    "count", [50, 250]
)  # too few images to try other preprocessing, and enough
def test_a_size_that_the_model_cannot_run(refused, tmp_path, monkeypatch, count):
    from PIL import Image

    def predict(x):
        if x.shape[-1] != 8:
            raise RuntimeError("Non-zero status code. Name:'g' Status Message: GEMM: not 8")
        return x.mean(axis=(2, 3))

    holder = ModuleType("sized_model")
    holder.predict = predict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sized_model", holder)
    images = tmp_path / "images"
    images.mkdir()
    rng = np.random.default_rng(0)
    for i in range(count):
        Image.fromarray(rng.integers(0, 255, (4, 4, 3), np.uint8)).save(images / f"{i}.png")
    given = ("sized_model:predict", images, "--mean", "0.5", "--std", "0.25", "--size", 4)
    assert refused("calibrate", *given) == (
        "pseudocal: the model sized_model:predict cannot run inputs of shape 3x4x4: RuntimeError: "
        "GEMM: not 8; check --size, or --second-size of a second opinion"
    )


@pytest.mark.parametrize("where", [(), ("--ray", "--workers", "1")])
def test_names_of_another_number_of_classes(where, ray, refused, tabular, features, tmp_path):
    names = tmp_path / "names.txt"
    for count in (2, 4):
        names.write_text("a\n" * count + "\n")
        said = refused("calibrate", tabular["onnx"], features, "--classes", names, *where)
        assert f"there are {count} class names, and the model has 3 classes (--classes)" in said


def test_labels_that_do_not_fit(refused, tabular, features, tmp_path):
    np.save(tmp_path / "y.npy", np.zeros(3, dtype=int))
    assert "3 labels for 400 inputs" in refused(
        "calibrate", tabular["onnx"], features, "--ground-truth", tmp_path / "y.npy"
    )
    np.save(tmp_path / "y.npy", np.full(400, 7))
    assert "the model has 0 to 2" in refused(
        "calibrate", tabular["onnx"], features, "--ground-truth", tmp_path / "y.npy"
    )


def test_labels_of_a_classifier_are_read_after_its_first_batch_and_mixup(
    refused, tabular, features, tmp_path, monkeypatch
):
    module, sizes = sys.modules["tabular_model"], []
    predict = module.predict
    monkeypatch.setattr(module, "predict", lambda x: sizes.append(len(x)) or predict(x))
    (tmp_path / "names.txt").write_text("cat\n" * 400)
    np.save(tmp_path / "masks.npy", np.zeros((400, 2, 2), np.uint8))
    for name, said, batches in (
        ("nowhere", "nowhere: no such file", 0),
        ("names.txt", "no class names are known", 2),
        ("masks.npy", "has masks, and the model predicts one class per input", 2),
    ):
        sizes.clear()
        assert said in refused(
            "calibrate", tabular["callable"], features, "--ground-truth", tmp_path / name
        )
        assert len(sizes) == batches


def test_the_version(pseudocal):
    done = pseudocal("--version")
    assert done.code == 0
    assert done.out.startswith("pseudocal ")


def test_usage_errors_have_their_own_code(refused, tabular, features):
    refused("calibrate", tabular["onnx"], features, "--layout", "sideways", code=2)
    refused("calibrate", tabular["onnx"], features, "--lam", "much", code=2)
    assert "between 0.5 and 1" in refused("calibrate", tabular["onnx"], features, "--lam", "2")
    assert "size like" in refused("calibrate", tabular["onnx"], features, "--size", "wide")


def test_a_model_that_says_nothing_of_its_images(refused, vision, image_files):
    assert "--size" in refused("calibrate", vision["torchscript"], image_files, "--trust-model")


def test_one_image_or_one_class(refused, hub, tabular, image_files, tmp_path):
    assert "pairs" in refused("calibrate", hub, next(image_files.rglob("*.png")))
    np.save(tmp_path / "same.npy", np.ones((50, 5), dtype=np.float32))
    assert "one predicted class" in refused("calibrate", tabular["onnx"], tmp_path / "same.npy")


def test_a_missing_package_names_its_extra(refused, tabular, features, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    line = refused("calibrate", tabular["onnx"], features, code=5)
    assert "pip install 'pseudocal[onnx]'" in line


def test_ctrl_c_leaves_nothing(pseudocal, refused, features):
    import sys

    def interrupted(x):
        raise KeyboardInterrupt

    vars(sys.modules["tabular_model"])["interrupted"] = interrupted
    assert "interrupted" in refused("calibrate", "tabular_model:interrupted", features, code=130)


def test_debug_shows_the_traceback(pseudocal, tmp_path):
    from pseudocal import InputError

    with pytest.raises(InputError):
        pseudocal("calibrate", tmp_path / "no.onnx", tmp_path, "-o", tmp_path / "out", "--debug")


def test_a_real_ctrl_c_and_a_kill_leave_nothing(features, tmp_path):
    """The signals themselves, in a process of its own, while the model is at work."""
    import signal
    import subprocess
    import sys
    import time

    import pseudocal as package

    (tmp_path / "sleepy.py").write_text(
        "import pathlib, time\ndef predict(x):\n    pathlib.Path('started').touch()\n    time.sleep(30)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])}
    for number in (signal.SIGINT, signal.SIGTERM):
        (tmp_path / "started").unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "pseudocal",
            "calibrate",
            "sleepy:predict",
            str(features),
            "-o",
            "out",
        ]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # jobs in the background ignore it
        )
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert err.splitlines()[-1] == "pseudocal: interrupted"
        assert {p.name for p in tmp_path.iterdir()} <= {"sleepy.py", "started", "__pycache__"}
