"""Opening models: what a file is, what it says of its inputs, how images are prepared for it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app.inputs.images import decode_image
from pseudocal.app.inputs.preprocessing import Preprocessing
from pseudocal.app.models.files import kind_of, open_model
from pseudocal.app.models.hugging_face import preprocessing_of
from pseudocal.app.models.model import Chunked
from pseudocal.app.models.onnx import SmallPasses


def archive(path: Path, *members: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for member in members:
            file.writestr(member, b"")
    return path


def test_a_file_is_what_it_holds_and_not_what_it_is_called(tmp_path):
    assert kind_of(str(archive(tmp_path / "a.bin", "schema.json"))) == "sklearn"
    assert kind_of(str(archive(tmp_path / "b.bin", "m/archive_format"))) == "pt2"
    assert (
        kind_of(str(archive(tmp_path / "c.bin", "m/data.pkl", "m/constants.pkl", "m/code/net.py")))
        == "torchscript"
    )
    for members in (["m/data.pkl"], ["nothing"]):
        with pytest.raises(InputError, match=r"pickle|another kind"):
            kind_of(str(archive(tmp_path / "d.onnx", *members)))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ViTImageProcessorPil", {}),
        ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 224}, "crop_pct": 0.875}),
        ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 384}, "crop_pct": 0.95}),
        ("CLIPImageProcessorPil", {}),
        ("ViTImageProcessorPil", {"size": {"height": 96, "width": 64}, "do_normalize": False}),
    ],
)
@pytest.mark.filterwarnings("default")  # of transformers
def test_images_are_prepared_as_transformers_does(name, settings, tmp_path):
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, name):
        pytest.skip(f"this transformers has no {name}")
    from PIL import Image

    path = tmp_path / "a.png"
    Image.fromarray(
        np.random.default_rng(0).integers(0, 255, size=(120, 161, 3), dtype=np.uint8)
    ).save(path)
    processor = getattr(transformers, name)(**settings)
    theirs = np.asarray(processor(Image.open(path), return_tensors="np")["pixel_values"])[0]
    np.testing.assert_allclose(
        Preprocessing(**preprocessing_of(processor.to_dict())).array_of(decode_image(path)),
        theirs,
        atol=2e-6,
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_chunks_of_a_fixed_size_are_the_whole(n):
    x = np.random.default_rng(0).normal(size=(n, 2))
    np.testing.assert_array_equal(Chunked(lambda part: 2 * part, 3)(x), 2 * x)


def small_graph(*steps: tuple[str, str, str], outputs: tuple[str, ...] = ("y",)) -> bytes:
    """Products with a matrix W of 4 x 3, each from one tensor to another.

    The outputs do not say their shapes.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node(op, [start, "W"], [end]) for op, start, end in steps]
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    weights = numpy_helper.from_array(np.eye(4, 3, dtype=np.float32), "W")
    graph = helper.make_graph(nodes, "g", [entry], ends, [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_a_graph_that_onnxruntime_runs_is_enough(tmp_path):
    (tmp_path / "a.onnx").write_bytes(small_graph(("MatMul", "x", "y")))
    model = open_model(str(tmp_path / "a.onnx"))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(model.predict(x), x[:, :3])
    (tmp_path / "out").mkdir()
    assert model.export(2.0, tmp_path / "out", x) == ["model.onnx"]
    np.testing.assert_array_equal(
        open_model(str(tmp_path / "out" / "model.onnx")).predict(x), x[:, :3] / 2
    )


def test_large_inputs_run_in_small_passes():
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    rows = []

    def predict(part):
        rows.append(len(part))
        return 2 * part

    few = SmallPasses(predict, most_bytes=3 * x[0].nbytes)
    np.testing.assert_array_equal(few(x), 2 * x)
    assert rows == [3, 3, 1]
    assert few(x[:0]).shape == (0, 4)


@pytest.mark.parametrize("batch", ["n", 4])
def test_graphs_of_large_inputs_run_with_any_and_with_a_fixed_batch_size(tmp_path, batch):
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["y"]),
    ]
    side = 1024  # four images do not fit into one small pass
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, side, side])
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])
    graph = helper.make_graph(nodes, "g", [entry], [end])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    x = np.arange(6, dtype=np.float32).repeat(3 * side**2).reshape(6, 3, side, side)
    found = open_model(str(tmp_path / "a.onnx")).predict(x)
    np.testing.assert_allclose(found, np.arange(6).repeat(3).reshape(6, 3), rtol=1e-6)


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path):
    whole = small_graph(("MatMul", "x", "y"))
    for end in range(1, len(whole)):
        (tmp_path / "cut.onnx").write_bytes(whole[:end])
        with pytest.raises(InputError, match=r"not ONNX|the graph"):
            open_model(str(tmp_path / "cut.onnx"))


@pytest.mark.parametrize(
    "broken",
    [
        small_graph,
        lambda: small_graph(("Unknown", "x", "y")),
        lambda: small_graph(("MatMul", "nowhere", "y")),
        lambda: small_graph(("MatMul", "x", "z")),
        lambda: small_graph(("MatMul", "x", "y"), ("MatMul", "x", "y")),
        lambda: small_graph(("MatMul", "x", "y"), outputs=()),
    ],
    ids=[
        "empty",
        "unknown operator",
        "missing tensor",
        "missing output",
        "made twice",
        "no output",
    ],
)
def test_a_graph_that_cannot_run_is_refused(tmp_path, broken):
    (tmp_path / "broken.onnx").write_bytes(broken())
    with pytest.raises(InputError, match=r"^[^\n]*(not ONNX|the graph)[^\n]*$"):
        open_model(str(tmp_path / "broken.onnx"))
