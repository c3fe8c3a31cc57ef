"""Every damaged model file ends in one line that says what is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app.inputs.preprocessing import preprocessing_for
from pseudocal.app.models.files import open_model
from pseudocal.app.models.hugging_face import preprocessing_of
from pseudocal.app.models.model import Chunked

ONE_LINE = r"^[^\n]+$"
X = np.zeros((2, 4), dtype=np.float32)


def graph(*nodes, batch="n"):
    """An ONNX file of nodes (operator, inputs, outputs) from x of 4 numbers to y."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    made = [helper.make_node(op, list(inputs), list(outputs)) for op, inputs, outputs in nodes]
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = numpy_helper.from_array(np.eye(4, 3, dtype=np.float32), "W")
    whole = helper.make_graph(made, "g", [entry], [end], [weights])
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert isinstance(model, onnx.ModelProto)
    return bytes(model.SerializeToString())


def refused(path):
    """What is wrong with a model file, None if it opens; inputs are never predicted."""
    try:
        open_model(str(path))
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("seed", range(3))
def test_onnx_damaged_anywhere(tmp_path, seed):
    rng = np.random.default_rng(seed)
    good = graph(("MatMul", "xW", "z"), ("Identity", "z", "y"))
    problems = []
    for _ in range(100):
        bad = bytearray(good)
        for place in rng.integers(0, len(bad), rng.integers(1, 5)):
            bad[place] = rng.integers(0, 256)
        (tmp_path / "bad.onnx").write_bytes(bad)
        problems.append(refused(tmp_path / "bad.onnx"))
    found = [problem for problem in problems if problem is not None]
    assert found
    assert all(re.match(ONE_LINE, problem) for problem in found)


@pytest.mark.parametrize(
    "nodes",
    [
        [("Identity", "z", "y"), ("Identity", "y", "z")],
        [("Identity", "y", "y")],
        [("Identity", "", "y")],
        [("Softmax", "", "y")],
    ],
    ids=["a circle of two", "a circle of one", "no input", "a softmax of nothing"],
)
def test_onnx_that_goes_in_circles_is_refused(tmp_path, nodes):
    (tmp_path / "bad.onnx").write_bytes(graph(*nodes))
    with pytest.raises(InputError, match=ONE_LINE):
        open_model(str(tmp_path / "bad.onnx"))


@pytest.mark.parametrize("size", [0, -3, 10**9])
def test_batches_of_an_impossible_size_are_refused(tmp_path, size):
    with pytest.raises(
        InputError, match=rf"expected a model with a batch size from 1 to 65536, got {size}"
    ):
        Chunked(lambda x: x, size)
    (tmp_path / "bad.onnx").write_bytes(graph(("MatMul", "xW", "y"), batch=10**9))
    with pytest.raises(InputError, match=ONE_LINE):
        open_model(str(tmp_path / "bad.onnx"))


@pytest.fixture(scope="module")
def skops_file(tmp_path_factory):
    skops = pytest.importorskip("skops.io")
    from sklearn.linear_model import LogisticRegression

    path = tmp_path_factory.mktemp("skops") / "model.skops"
    skops.dump(LogisticRegression().fit(np.eye(4), [0, 1, 2, 0]), path)
    return path


@pytest.mark.parametrize("seed", range(3))
def test_skops_damaged_anywhere(tmp_path, skops_file, seed):
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(skops_file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    problems = []
    for _ in range(40):
        name = str(rng.choice(sorted(members)))
        content = bytearray(members[name])
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            content[place] = rng.integers(32, 127)
        with zipfile.ZipFile(tmp_path / "bad.skops", "w") as archive:
            for member, whole in members.items():
                archive.writestr(member, bytes(content) if member == name else whole)
        problems.append(refused(tmp_path / "bad.skops"))
    found = [problem for problem in problems if problem is not None]
    assert found
    assert all(re.match(ONE_LINE, problem) for problem in found)


@pytest.mark.parametrize(
    "schema", ["", "[]", "{}", "null", "[" * 5000, '{"__class__": 1}', "9" * 5000]
)
def test_a_skops_schema_that_is_none(tmp_path, schema):
    pytest.importorskip("skops")
    with zipfile.ZipFile(tmp_path / "bad.skops", "w") as archive:
        archive.writestr("schema.json", schema)
    with pytest.raises(InputError, match=r"the skops file .*bad.skops cannot be read"):
        open_model(str(tmp_path / "bad.skops"))


def test_an_archive_that_is_cut(tmp_path, skops_file):
    whole = skops_file.read_bytes()
    for end in range(1, len(whole), max(1, len(whole) // 40)):
        (tmp_path / "cut.skops").write_bytes(whole[:end])
        with pytest.raises(InputError, match=ONE_LINE):
            open_model(str(tmp_path / "cut.skops"))


def test_a_damaged_directory_of_an_archive(tmp_path, skops_file):
    content = bytearray(skops_file.read_bytes())
    start = content.index(b"PK\x01\x02")
    content[start : start + 4] = b"XXXX"
    (tmp_path / "bad.skops").write_bytes(content)
    with pytest.raises(InputError, match=r"got .*bad.skops, a damaged archive"):
        open_model(str(tmp_path / "bad.skops"))


@pytest.mark.parametrize("name", ["model.onnx", "model.skops", "model"])
def test_a_fifo_in_place_of_a_model(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(
        InputError, match=rf"expected a model file, got .*{name}: a pipe or a device"
    ):
        open_model(str(tmp_path / name))


@pytest.mark.parametrize(
    "settings",
    [
        {"size": "large"},
        {"size": {"height": None, "width": 3}},
        {"size": {"height": 3}},
        {"size": {"height": 1e400, "width": 1}},
        {"size": [[1], 2]},
        {"size": 2.5},
        {"size": {"shortest_edge": 200}, "crop_pct": "much"},
        {"size": 224, "image_mean": ["a", "b", "c"]},
        {"size": 224, "image_mean": 0.5},
        {"size": 224, "image_std": {"r": 1}},
        {"size": 224, "rescale_factor": "x"},
        {"size": 224, "resample": "bilinear"},
    ],
)
def test_settings_of_a_preprocessor_that_are_none(settings):
    with pytest.raises(
        InputError, match=r"expected sizes and numbers in preprocessor_config.json, got \{"
    ):
        preprocessing_of(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 0},
        {"size": {"height": -1, "width": 3}},
        {"size": 10**9},
        {"size": 224, "crop_size": 10**9, "do_center_crop": True},
        {"size": {"shortest_edge": 200}, "crop_pct": 1e-9},
        {"size": {"shortest_edge": 200}, "crop_pct": -1},
        {"size": 224, "image_mean": [float("nan")]},
        {"size": 224, "image_mean": [0.5, 0.5]},
        {"size": 224, "image_std": [0, 0, 0]},
        {"size": 224, "rescale_factor": float("inf")},
        {"size": 224, "resample": 99},
        {"size": 224, "resample": -1},
    ],
)
def test_a_preprocessor_that_cannot_be_meant(settings):
    with pytest.raises(InputError, match=ONE_LINE):
        preprocessing_for((3, 224, 224), preprocessing_of(settings), {})


@pytest.fixture(scope="module")
def hub_folder(tmp_path_factory):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("hub") / "tiny"
    config = transformers.ResNetConfig(
        num_channels=3,
        embedding_size=4,
        hidden_sizes=[4],
        depths=[1],
        layer_type="basic",
        num_labels=3,
    )
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("default")  # of transformers
@pytest.mark.parametrize(
    "content", ["", "[]", "null", "{", "[" * 50_000, '{"size": ' + "9" * 5000 + "}", "\udcff", "3"]
)
@pytest.mark.parametrize("name", ["preprocessor_config.json", "config.json"])
def test_json_of_hugging_face_that_is_damaged(tmp_path, hub_folder, name, content):
    folder = shutil.copytree(hub_folder, tmp_path / "damaged")
    (folder / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=ONE_LINE):
        open_model(str(folder))


@pytest.mark.filterwarnings("default")  # of transformers
@pytest.mark.parametrize(
    "change",
    [
        {"id2label": {"7": "a", "8": "b", "9": "c"}},
        {"hidden_sizes": "many"},
        {"architectures": 3},
        {"model_type": "unheard-of"},
        {"depths": None},
        {"num_channels": -1},
    ],
)
def test_a_config_of_hugging_face_that_cannot_be_meant(tmp_path, hub_folder, change):
    folder = shutil.copytree(hub_folder, tmp_path / "damaged")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(InputError, match=ONE_LINE):
        open_model(str(folder))
