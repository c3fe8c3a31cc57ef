"""The path of one image through a calibration, as calls between files.

    python benchmarks/files.py

It runs `pseudocal calibrate model.onnx images/ --second-opinion other.onnx` under `sys.setprofile`
and prints how many files and functions of the package ran, how many pairs of files call each
other, and every cycle of files: a file in a cycle calls back into one above it. `--edges` lists
the pairs. Bodies of modules and classes are not counted; calls in all threads are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from types import FrameType

import numpy as np

import pseudocal

PACKAGE = Path(pseudocal.__file__).parent
IN_CLASS_BODIES = "__qualname__"  # a local name that only the body of a class sets

Edge = tuple[str, str]


class Trace:
    """The calls of a run, by file."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.edges: dict[Edge, set[str]] = {}

    @property
    def files(self) -> list[str]:
        """The files whose functions ran."""
        return sorted({file for file, _ in self.functions})

    @contextmanager
    def running(self) -> Iterator[None]:
        """Note all calls meanwhile, in whatever thread."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_body = code.co_name.startswith("<") and code.co_name != "<lambda>"
        if event != "call" or is_body or IN_CLASS_BODIES in code.co_names:
            return
        callee = file_of(frame)
        if callee is None:
            return
        self.functions.add((callee, code.co_qualname))
        caller = frame.f_back
        while caller is not None and file_of(caller) is None:  # through other packages
            caller = caller.f_back
        above = None if caller is None else file_of(caller)
        if above is not None and above != callee:
            self.edges.setdefault((above, callee), set()).add(code.co_qualname)

    def circles(self) -> list[list[str]]:
        """Sets of files that reach each other by calls."""
        reached = {file: self._reached(file) for file in self.files}
        found = []
        for file in self.files:
            together = [other for other in reached[file] if file in reached[other]]
            if together and file == min(together):
                found.append(sorted(together))
        return found

    def _reached(self, start: str) -> set[str]:
        found = set[str]()
        waiting = [start]
        while waiting:
            file = waiting.pop()
            for above, below in self.edges:
                if above == file and below not in found:
                    found.add(below)
                    waiting.append(below)
        return found


def file_of(frame: FrameType) -> str | None:
    """The file of a frame, relative to the package; None for other packages."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def write_model(path: Path, seed: int) -> None:
    """Write a linear model of 8 x 8 images and four classes as ONNX."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.random.default_rng(seed).normal(size=(192, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, 4])],
        [numpy_helper.from_array(weights, "w")],
    )
    opset = helper.make_opsetid("", 17)
    save(helper.make_model(graph, opset_imports=[opset], ir_version=9), path)


def write_images(folder: Path, count: int) -> None:
    """Write random images."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(count):
        pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:03d}.png")


def traced() -> Trace:
    """Trace one calibration."""
    from pseudocal.app.cli import main

    trace = Trace()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        write_images(Path("images"), 40)
        write_model(Path("model.onnx"), 0)
        write_model(Path("other.onnx"), 1)
        arguments = ["calibrate", "model.onnx", "images", "-o", "out", "-q"]
        with trace.running():
            code = main([*arguments, "--second-opinion", "other.onnx"])
        assert code == 0, code
    return trace


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--edges", action="store_true", help="list the pairs of files")
    given = parser.parse_args()
    trace = traced()
    there = len([*PACKAGE.rglob("*.py")])
    print(f"{len(trace.files)} of {there} files, {len(trace.functions)} functions, ", end="")
    print(f"{len(trace.edges)} pairs of files that call each other")
    for circle in trace.circles():
        print("circle:", ", ".join(circle))
        for (above, below), names in sorted(trace.edges.items()):
            if above in circle and below in circle:
                print(f"    {above} -> {below}: {', '.join(sorted(names))}")
    if given.edges:
        for (above, below), names in sorted(trace.edges.items()):
            print(f"{above} -> {below}: {', '.join(sorted(names))}")


if __name__ == "__main__":
    main()
