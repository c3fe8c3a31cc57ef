"""OUT/parts: what workers have collected. A killed run goes on with it, and it is data.

The workers are this process, so no cluster is needed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from pseudocal.app import collect_ray
from pseudocal.app.cli import main
from pseudocal.calibrators.blocks import row_blocks
from pseudocal.calibrators.executors import Failure
from pseudocal.distributed import LocalExecutor

BLOCKS = 4
ON_RAY = ("--ray", "local", "--batch-size", 64)


class Here(LocalExecutor):
    """Workers in this process; the run dies after some blocks."""

    dies_after = 10**6
    done: ClassVar[list[int]] = []

    def __init__(self, *_: Any, max_bad: float, **__: Any) -> None:
        super().__init__(max_bad)

    @contextmanager
    def connected(self) -> Iterator[None]:
        yield

    def map(self, start: Any, blocks: Any) -> Any:
        for block, result in zip(blocks, super().map(start, blocks), strict=True):
            assert not isinstance(result, Failure), result
            self.done.append(block[0])
            if len(self.done) > self.dies_after:
                raise KeyboardInterrupt
            yield result


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(collect_ray, "row_blocks", partial(row_blocks, block_rows=64))


@pytest.fixture
def workers(monkeypatch, small_blocks) -> type[Here]:
    monkeypatch.setattr(collect_ray, "RayExecutor", Here)
    monkeypatch.setattr(Here, "dies_after", 10**6)
    monkeypatch.setattr(Here, "done", [])
    return Here


@pytest.fixture
def killed(workers, calibrate, tmp_path) -> Callable[[], Path]:
    """Leave the folder of a run that was killed after two blocks."""
    template = tmp_path / "killed"

    def make() -> Path:
        if not template.exists():
            workers.dies_after = 2
            calibrate(template, *ON_RAY)
            workers.dies_after = 10**6
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(template, out)
        workers.done.clear()
        return out

    return make


@pytest.fixture
def whole(workers, calibrate, tmp_path) -> dict[str, bytes]:
    """The results of a run that was not killed."""
    code, said = calibrate(tmp_path / "whole", *ON_RAY)
    assert code == 0, said
    workers.done.clear()
    return results(tmp_path / "whole")


def results(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in ("logits.npy", "evidence.npz")}


def parts(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "parts").iterdir())


def test_parts_are_gone_when_the_run_is_published(workers, calibrate, tmp_path):
    out = tmp_path / "out"
    code, said = calibrate(out, *ON_RAY)
    assert code == 0, said
    assert len(workers.done) >= BLOCKS
    assert not (out / "parts").exists()
    assert (out / "calibration.json").is_file()


def test_a_killed_run_goes_on_with_its_parts(workers, whole, killed, calibrate):
    out = killed()
    names = ["part-000000.npz", "part-000001.npz", "part-000002.npz", "parts.json"]
    assert parts(out) == names
    code, said = calibrate(out, *ON_RAY)
    assert code == 0, said
    assert workers.done[0] == 3
    assert results(out) == whole
    assert not (out / "parts").exists()


def test_parts_of_another_run_are_not_used(workers, killed, calibrate):
    out = killed()
    code, said = calibrate(out, *ON_RAY, "--seed", 5)
    assert code == 0, said
    assert workers.done[0] == 0


class Acting:
    """A pickle that makes a folder."""

    def __reduce__(self) -> Any:
        return (os.mkdir, (os.environ["PSEUDOCAL_CANARY"],))


def other(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change one array of a part."""
    return lambda part: part | {name: change(part[name])}


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda part: {key: array for key, array in part.items() if key != name}


CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "nothing": lambda part: {},
    "no rows": without("rows"),
    "no logits": without("logits"),
    "no evidence": lambda part: {k: v for k, v in part.items() if not k.startswith("evidence.")},
    "no counts": without("evidence.counts"),
    "negative rows": other("rows", lambda rows: -rows - 1),
    "far rows": other("rows", lambda rows: rows + 10**6),
    "rows of others": other("rows", lambda rows: (rows + 64) % 400),
    "equal rows": other("rows", lambda rows: np.full_like(rows, rows[0])),
    "float rows": other("rows", lambda rows: rows.astype(float)),
    "deep rows": other("rows", lambda rows: rows[:, None]),
    "few rows": other("rows", lambda rows: rows[:3]),
    "other classes": other("logits", lambda logits: logits[:, :2]),
    "texts": other("logits", lambda logits: logits.astype(str)),
    "NaN": other("logits", lambda logits: logits * np.nan),
    "a second model": lambda part: part | {"second_0": part["logits"]},
    "pixels": lambda part: part | {"at": part["rows"]},
    "something more": lambda part: part | {"../../more": np.zeros(3)},
    "counts": other("evidence.counts", lambda counts: -counts),
    "huge counts": other("evidence.counts", lambda counts: counts + 2**60),
    "evidence of NaN": other("evidence.ceilings", lambda ceilings: ceilings * np.nan),
    "a pickle": other("logits", lambda _: np.array([Acting()], dtype=object)),
    "a pickle as evidence": other("evidence.real", lambda _: np.array([Acting()], dtype=object)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_part_that_is_something_else_is_collected_again(
    change, workers, whole, killed, calibrate, tmp_path, monkeypatch
):
    monkeypatch.setenv("PSEUDOCAL_CANARY", str(tmp_path / "canary"))
    out = killed()
    first = out / "parts" / "part-000000.npz"
    with np.load(first) as file:
        part = dict(file)
    np.savez(first, **CHANGES[change](part), allow_pickle=True)
    code, said = calibrate(out, *ON_RAY)
    assert code == 0, said
    assert workers.done[0] == 0
    assert results(out) == whole
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04.", b"x" * 999], ids=len)
def test_a_part_that_is_no_archive_is_collected_again(content, workers, whole, killed, calibrate):
    out = killed()
    (out / "parts" / "part-000001.npz").write_bytes(content)
    code, said = calibrate(out, *ON_RAY)
    assert code == 0, said
    assert workers.done[0] == 1
    assert results(out) == whole


def test_a_damaged_record_of_parts_is_refused(killed, calibrate):
    for content in (b"", b"{", b"[" * 100_000, b"\xff\xfe"):
        out = killed()
        (out / "parts" / "parts.json").write_bytes(content)
        code, said = calibrate(out, *ON_RAY)
        assert (code, len(said.splitlines())) == (3, 1), said


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_something_else_in_the_place_of_a_part(what, killed, calibrate):
    for name in ("part-000000.npz", "notes"):
        out = killed()
        place = out / "parts" / name
        place.unlink(missing_ok=True)
        if what == "folder":
            place.mkdir()
        else:
            os.mkfifo(place)
        code, said = calibrate(out, *ON_RAY)
        assert (code, len(said.splitlines())) == (4, 1), said


def test_a_folder_of_the_user_is_left_alone(workers, calibrate, tmp_path):
    (tmp_path / "out" / "parts").mkdir(parents=True)
    mine = tmp_path / "out" / "parts" / "part-of-my-book.npz"
    mine.write_text("mine")
    code, said = calibrate(tmp_path / "out", *ON_RAY)
    assert (code, "move it away" in said) == (4, True), said
    assert mine.read_text() == "mine"


def test_pixels_of_a_part_are_checked(workers, tmp_path, monkeypatch, capsys):
    """Of a segmentation model, whose parts have other columns."""
    model = ModuleType("map_model")
    model.predict = lambda x: 3 * x  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "map_model", model)
    x = np.random.default_rng(0).normal(size=(200, 3, 4, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    words = ["calibrate", "map_model:predict", str(tmp_path / "x.npy"), "-q", *map(str, ON_RAY)]
    assert main([*words, "-o", str(tmp_path / "whole")]) == 0
    workers.done.clear()
    workers.dies_after = 2
    main([*words, "-o", str(tmp_path / "killed")])
    workers.dies_after = 10**6
    for name in ("image", "at", "y", "fractions", "logits", "pixels"):
        out = tmp_path / name
        shutil.copytree(tmp_path / "killed", out)
        first = out / "parts" / "part-000000.npz"
        with np.load(first) as file:
            part = dict(file)
        np.savez(first, **(part | {name: part[name] - 10**9}))
        if name == "logits":
            np.savez(first, **(part | {name: part[name][:, :2]}))
        workers.done.clear()
        assert main([*words, "-o", str(out)]) == 0
        assert workers.done[0] == 0
        assert results(out) == results(tmp_path / "whole")


@pytest.mark.slow
def test_on_a_real_cluster(ray, small_blocks, tmp_path, monkeypatch, capsys):
    """A part with other content is collected again, and no parts are left."""
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    weights = 3 * np.eye(5, 3, dtype=np.float32)
    of_floats = partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["z"])],
        "g",
        [of_floats("x", shape=["n", 5])],
        [of_floats("z", shape=["n", 3])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), "m.onnx")
    np.save("x.npy", np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32))
    words = ["calibrate", "m.onnx", "x.npy", "-q", "--ray", "local", "--workers", "1"]
    words += ["--batch-size", "64"]
    assert main([*words, "-o", "whole"]) == 0, capsys.readouterr().err
    assert not Path("whole/parts").exists()
    saved: dict[str, Any] = {}
    original = collect_ray._join

    def keep(*arguments: Any) -> Any:
        shutil.copytree("out/parts", "kept")
        raise KeyboardInterrupt

    monkeypatch.setattr(collect_ray, "_join", keep)
    main([*words, "-o", "out"])
    monkeypatch.setattr(collect_ray, "_join", original)
    with np.load("out/parts/part-000000.npz") as file:
        saved.update(file)
    np.savez("out/parts/part-000000.npz", **(saved | {"rows": saved["rows"] - 1000}))
    assert main([*words, "-o", "out"]) == 0, capsys.readouterr().err
    assert results(Path("out")) == results(Path("whole"))
    assert not Path("out/parts").exists()
