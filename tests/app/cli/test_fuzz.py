"""Damaged files of every kind that the command reads: an exit code that is documented, one line, results untouched."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import string
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from pseudocal.app.cli import main

CODES = {0, 2, 3, 4, 5}
ONE_LINE = re.compile(r"pseudocal: (?!unexpected )[^\n]*\n")
ROWS, CLASSES = 24, 3
ODD_VALUES: tuple[Any, ...] = (None, True, -1, 0, 0.5, 1e308, 1e-320, 10**30, "", "x", "=1+1", [], {}, [[[]]], "\ud800")
ODD_TEXT = (
    "",
    "nan",
    "inf",
    "-1",
    "1e999",
    "9" * 5000,
    '"',
    "\0",
    "é",
    "1_0",
    "0x1",
    "null",
    "=1",
    ",",
    "\n",
    "\ufeff",
)
ODD_HEADERS = (
    "'<f8'",
    "'|O'",
    "'<c16'",
    "'<m8[s]'",
    "'<U3'",
    "(24,)",
    "(-1, 3)",
    "(99999999, 3)",
    "True",
    "()",
    "None",
    "{",
)


class Reader(NamedTuple):
    """One way that a file gets in.

    Attributes:
        name: of the file that is damaged.
        words: the command, given the folder; it writes to `out` there, if it writes.

    """

    name: str
    words: Callable[[Path], list[Any]]


def calibrate(model: str = "fuzz_model:predict", data: str = "x.npy", *more: str) -> Callable[[Path], list[Any]]:
    def words(folder: Path) -> list[Any]:
        named = [folder / word if (folder / word).exists() else word for word in (model, data, *more)]
        return ["calibrate", *named, "-o", folder / "out", "-q", "--workers", 1]

    return words


def saved(command: str, *files: str) -> Callable[[Path], list[Any]]:
    return lambda folder: [command, *((folder / f if (folder / f).exists() else f) for f in files)]


READERS = [
    *(Reader(name, calibrate(data=name)) for name in ("x.npy", "x.npz", "x.csv", "x.parquet")),
    *(Reader(name, calibrate("fuzz_model:predict", "x.npy", "--labels", name)) for name in ("y.npy", "y.csv", "y.txt")),
    Reader("names.txt", calibrate("fuzz_model:predict", "x.npy", "--classes", "names.txt")),
    Reader("model.onnx", calibrate("model.onnx")),
    Reader("model.skops", calibrate("model.skops")),
    Reader("pictures/a.png", calibrate("fuzz_model:see", "pictures", "--size", "4", "--max-bad", "50%")),
    *(Reader(name, saved("evaluate", name, "y.npy")) for name in ("z.npy", "z.npz", "z.csv", "z.parquet")),
    *(Reader(name, saved("evaluate", "z.npy", name)) for name in ("y.npy", "y.csv", "y.txt", "y.parquet")),
    Reader("calibration.json", saved("evaluate", "z.npy", "y.npy", "--calibration", "calibration.json")),
    Reader("calibration.json", lambda f: ["apply", f / "calibration.json", f / "z.npy", "-o", f / "p.npy"]),
    Reader("results/report.json", saved("report", "results")),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with one good file of each kind."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
    import skops.io
    import torch
    from PIL import Image
    from sklearn.linear_model import LogisticRegression

    folder, rng = tmp_path_factory.mktemp("good"), np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 4)).astype(np.float32)
    weights = 3 * rng.normal(size=(4, CLASSES)).astype(np.float32)
    z, y = x @ weights, (x @ weights + rng.gumbel(size=(ROWS, CLASSES))).argmax(axis=1)
    y[:CLASSES] = range(CLASSES)
    for name, array in (("x", x), ("z", z)):
        np.save(folder / f"{name}.npy", array)
        np.savez_compressed(folder / f"{name}.npz", a=array)
        table = pa.table({f"c{i}": array[:, i] for i in range(array.shape[1])})
        pa.csv.write_csv(table, folder / f"{name}.csv")
        pa.parquet.write_table(table, folder / f"{name}.parquet")
    np.save(folder / "y.npy", y)
    pa.parquet.write_table(pa.table({"label": y}), folder / "y.parquet")
    (folder / "y.csv").write_text("label\n" + "".join(f"{label}\n" for label in y))
    (folder / "y.txt").write_text("".join(f"{label}\n" for label in y))
    (folder / "names.txt").write_text("cat\ndog\nbird\n")
    skops.io.dump(LogisticRegression().fit(x, y), folder / "model.skops")
    linear = torch.nn.Linear(4, CLASSES)
    linear.weight.data = torch.tensor(weights.T.copy())
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["z"], "dynamic_axes": {"x": {0: "n"}}}
    with pytest.warns(DeprecationWarning):  # noqa: PT030  whatever it says, it writes the file
        torch.onnx.export(linear, (torch.zeros(2, 4),), folder / "model.onnx", dynamo=False, **names)
    (folder / "pictures").mkdir()
    for name in "abcdefgh":
        pixels = rng.integers(0, 256, 3) + rng.integers(-40, 40, (6, 6, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / "pictures" / f"{name}.png")
    model: Any = ModuleType("fuzz_model")
    model.predict = lambda x: np.asarray(x, dtype=np.float64) @ weights
    model.see = lambda x: np.asarray(x).mean(axis=(2, 3)) * 9
    sys.modules["fuzz_model"] = model
    assert main([str(word) for word in calibrate()(folder)]) == 0
    (folder / "out").rename(folder / "results")
    (folder / "calibration.json").write_bytes((folder / "results" / "calibration.json").read_bytes())
    yield folder
    del sys.modules["fuzz_model"]


def damaged(name: str, content: bytes, rng: random.Random) -> bytes:
    """A file with something wrong: where its kind has a structure, mostly within that."""
    kind = name.rpartition(".")[2]
    if kind in STRUCTURES and rng.random() < 0.6:
        return STRUCTURES[kind](content, rng)
    return broken_bytes(content, rng)


def broken_bytes(content: bytes, rng: random.Random) -> bytes:
    how, place = rng.randrange(6), rng.randrange(len(content))
    if how == 0:
        return content[:place]
    if how == 1:
        return content[:place] + rng.randbytes(rng.randrange(1, 9)) + content[place:]
    if how == 2:
        return content[:place] + content[min(len(content), place + rng.randrange(1, 40)) :]
    if how == 3:
        return content + content[place:]
    copy = bytearray(content)
    for _ in range(1 if how == 4 else rng.randrange(2, 9)):
        copy[rng.randrange(len(copy))] = rng.randrange(256)
    return bytes(copy)


def broken_json(content: bytes, rng: random.Random) -> bytes:
    """One value, at any depth, is replaced, left out, or nested a thousand times."""
    root = json.loads(content)
    at: Any = root
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and rng.random() < 0.8:
            at = at[key]
            continue
        break
    if rng.random() < 0.15:
        del at[key]
    elif rng.random() < 0.1:
        at[key] = "HERE"
        return (
            json.dumps(root)
            .replace('"HERE"', rng.choice(("[" * 9999 + "]" * 9999, "9" * 5000, "NaN", "1e999")))
            .encode()
        )
    else:
        at[key] = rng.choice(ODD_VALUES)
    return json.dumps(root).encode()


def broken_lines(content: bytes, rng: random.Random) -> bytes:
    """A cell is replaced, a line is doubled or left out, or all of it is written in another encoding."""
    lines = content.decode().splitlines()
    place = rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        return content.decode().encode(rng.choice(("utf-16", "utf-32", "utf-16-le", "cp037")))
    if how == 1:
        del lines[place]
    elif how == 2:
        lines.insert(place, rng.choice(lines))
    else:
        cells = lines[place].split(",")
        cells[rng.randrange(len(cells))] = rng.choice((*ODD_TEXT, "".join(rng.choices(string.printable, k=5))))
        lines[place] = ",".join(cells)
    return "\n".join(lines).encode()


def broken_array(content: bytes, rng: random.Random) -> bytes:
    """A header that says something else, or an array of another type or shape."""
    array = np.load(io.BytesIO(content))
    out = io.BytesIO()
    if rng.random() < 0.5:
        start, end = 10, content.index(b"\n") + 1
        words = content[start:end].decode().split(" ")
        words[rng.randrange(len(words))] = rng.choice(ODD_HEADERS)
        header = " ".join(words).encode().ljust(end - start)[: end - start]
        return content[:start] + header + content[end:]
    dtype = rng.choice(("f2", "f4", "f8", "i1", "u8", "i8", "c8", "?", "m8[s]", "M8[s]", "S3", "U3", ">f4"))
    shape = rng.choice((array.shape, (-1,), (1, -1), (-1, 1), (2, -1, 1), (0, 3)))
    odd = array.astype(dtype)
    odd = odd[:0] if 0 in shape else odd.reshape(shape)
    if odd.dtype.kind == "f" and odd.size and rng.random() < 0.5:
        odd.flat[rng.randrange(odd.size)] = rng.choice((np.nan, np.inf, -np.inf, 6e4))
    np.save(out, odd)
    return out.getvalue()


STRUCTURES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "json": broken_json,
    "csv": broken_lines,
    "txt": broken_lines,
    "npy": broken_array,
}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_case(seed: int, good: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Damage one file, run one command over it, and put the file back; the exit code, and what is wrong with it."""
    rng = random.Random(seed)
    reader = READERS[seed % len(READERS)]
    path = good / reader.name
    content = path.read_bytes()
    path.write_bytes(damaged(reader.name, content, rng))
    before = snapshot(good)
    try:
        code = main([str(word) for word in reader.words(good)])
        said = capsys.readouterr()
        untouched = code == 0 or (snapshot(good) == before and not (good / "out").exists())
    finally:
        path.write_bytes(content)
        clean(good)
    told = code == 0 or (ONE_LINE.fullmatch(said.err) and said.out == "")
    fine = code in CODES and told and untouched
    return code, "" if fine else f"case {seed}, {reader.name}: code {code}, {said.out[:300]!r}, {said.err[:600]!r}"


def clean(good: Path) -> None:
    shutil.rmtree(good / "out", ignore_errors=True)
    (good / "p.npy").unlink(missing_ok=True)


def check_cases(seeds: range, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes, wrong = zip(*(check_case(seed, good, capsys) for seed in seeds), strict=True)
    assert [line for line in wrong if line] == []
    assert codes.count(3) > len(codes) / 4  # they are damaged indeed
    assert codes.count(0) > len(codes) / 50  # and some of the damage is none


def test_300_damaged_files(good, capsys):
    check_cases(range(300), good, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(300, 5000, 470))
def test_5000_damaged_files(start, good, capsys):
    check_cases(range(start, start + 470), good, capsys)
