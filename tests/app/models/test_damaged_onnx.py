"""Every field of an ONNX file with other values, one at a time.

The command ends in a documented code and one line.

The cases run in another process, since onnxruntime may end it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app.models import files

onnx = pytest.importorskip("onnx")
ODD: dict[type, list[Any]] = {
    str: ["", "x", "h", "\0"],
    bytes: [b"", b"q"],
    int: [0, 1, 7, 16, 99, -1, 2**31 - 1],
    float: [0.0, float("nan")],
}


def good_model():
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(
        3 * np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32), "W"
    )
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["h"], name="a"),
        helper.make_node("Identity", ["h"], ["y"]),
    ]
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    inner = helper.make_tensor_value_info("h", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(nodes, "g", [entry], [end], [weights], value_info=[inner])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def damaged_files():
    """One file for each field without it, and for each odd value of a field."""
    model = good_model()
    waiting: list[Any] = [model]
    while waiting:
        message = waiting.pop()
        kept = type(message)()
        kept.CopyFrom(message)
        for field, value in kept.ListFields():
            message.ClearField(field.name)
            yield model.SerializeToString()
            for odd in ODD.get(type(value), []):
                setattr(message, field.name, odd)
                yield model.SerializeToString()
            message.CopyFrom(kept)
        for field, value in message.ListFields():  # only now: copying replaces the parts
            if field.message_type is None:
                continue
            waiting += [value] if hasattr(value, "ListFields") else value


def run_cases(folder: Path) -> None:
    """Write the code and the line of the command for each damaged file."""
    import contextlib
    import io
    import shutil

    from pseudocal.app.cli import main

    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32))
    for content in damaged_files():
        (folder / "bad.onnx").write_bytes(content)
        shutil.rmtree(folder / "out", ignore_errors=True)
        words = [
            "calibrate",
            folder / "bad.onnx",
            folder / "x.npy",
            "-o",
            folder / "out",
            "-q",
            "--workers",
            1,
        ]
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = main([str(word) for word in words])
        sys.stdout.write(
            f"{code} {len(errors.getvalue().splitlines())} {errors.getvalue().strip()}\n"
        )
        sys.stdout.flush()


def test_damaged_fields(tmp_path):
    words = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    cases = [line.split(" ", 2) for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert len(cases) > 100
    assert {code for code, _, _ in cases} == {"0", "3"}
    assert [line for code, lines, line in cases if code == "3" and lines != "1"] == []


def test_an_output_without_a_type_can_be_exported(tmp_path):
    model = good_model()
    model.graph.output[0].ClearField("type")
    onnx.save(model, tmp_path / "a.onnx")
    x = np.ones((3, 4), np.float32)
    found = files.open_model(str(tmp_path / "a.onnx"))
    (tmp_path / "out").mkdir()
    found.export(2.0, tmp_path / "out", x)
    np.testing.assert_allclose(
        files.open_model(str(tmp_path / "out" / "model.onnx")).predict(x), found.predict(x) / 2
    )


def test_whatever_a_reader_raises_is_an_input_error_with_its_type(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise KeyError(0)

    onnx.save(good_model(), tmp_path / "a.onnx")
    monkeypatch.setattr("pseudocal.app.models.onnx.calibrated_graph", fail)
    with pytest.raises(InputError, match=r"a.onnx cannot be exported: KeyError: 0$"):
        files.open_model(str(tmp_path / "a.onnx")).export(
            2.0, tmp_path, np.ones((3, 4), np.float32)
        )
    monkeypatch.setitem(files.OPENERS, "onnx", fail)
    with pytest.raises(InputError, match=r"a.onnx cannot be opened: KeyError: 0$"):
        files.open_model(str(tmp_path / "a.onnx"))


if __name__ == "__main__":
    run_cases(Path(sys.argv[1]))
