"""Files with something wrong, and a run of the command over each.

A code that is documented, one line, nothing else.
"""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import string
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pseudocal.app.cli import main

CODES = {0, 2, 3, 4, 5}  # all but 1, which is a bug, and 130
ONE_LINE = re.compile(r"pseudocal: (?!unexpected )[^\n]*\n")
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    0.5,
    1e308,
    1e-320,
    10**30,
    "",
    "x",
    "=1+1",
    [],
    {},
    [[[]]],
    "\ud800",
)
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


def calibrate(
    model: str = "fuzz_model:predict", data: str = "x.npy", *more: str
) -> Callable[[Path], list[Any]]:
    def words(folder: Path) -> list[Any]:
        named = [
            folder / word if (folder / word).exists() else word for word in (model, data, *more)
        ]
        return ["calibrate", *named, "-o", folder / "out", "-q", "--workers", 1]

    return words


def saved(command: str, *files: str) -> Callable[[Path], list[Any]]:
    return lambda folder: [command, *((folder / f if (folder / f).exists() else f) for f in files)]


def damaged(name: str, content: bytes, rng: random.Random) -> bytes:
    """A file with something wrong: where its kind has a structure, mostly within that."""
    kind = name.rpartition(".")[2]
    if kind in TRUSTED:
        return TRUSTED[kind](content, rng)
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
        cells[rng.randrange(len(cells))] = rng.choice(
            (*ODD_TEXT, "".join(rng.choices(string.printable, k=5)))
        )
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
    dtype = rng.choice(
        ("f2", "f4", "f8", "i1", "u8", "i8", "c8", "?", "m8[s]", "M8[s]", "S3", "U3", ">f4")
    )
    shape = rng.choice((array.shape, (-1,), (1, -1), (-1, 1), (2, -1, 1), (0, 3)))
    odd = array.astype(dtype)
    odd = odd[:0] if 0 in shape else odd.reshape(shape)
    if odd.dtype.kind == "f" and odd.size and rng.random() < 0.5:
        odd.flat[rng.randrange(odd.size)] = rng.choice((np.nan, np.inf, -np.inf, 6e4))
    np.save(out, odd)
    return out.getvalue()


def broken_safetensors(content: bytes, rng: random.Random) -> bytes:
    """A header of eight bytes for its length and JSON.

    One value of it is odd, or the length is another.
    """
    size = int.from_bytes(content[:8], "little")
    header, tensors = content[8 : 8 + size], content[8 + size :]
    if rng.random() < 0.2:
        return (
            rng.choice((0, 1, size - 1, size + 9, 2**40, 2**64 - 1)).to_bytes(8, "little")
            + header
            + tensors
        )
    header = broken_json(header, rng)
    return len(header).to_bytes(8, "little") + header + tensors


def broken_file(content: bytes, rng: random.Random) -> bytes:
    """A file that is cut off, or garbage from some place on.

    No more is done to TorchScript: torch crashes when it runs a whole archive with a damaged
    member.
    """
    place = rng.choice((0, rng.randrange(len(content))))
    return content[:place] + rng.choice((b"", rng.randbytes(len(content) - place)))


def broken_archive(content: bytes, rng: random.Random) -> bytes:
    """The same, or a whole archive with one member left out, empty or cut off."""
    how = rng.randrange(5)
    if how < 2:
        return broken_file(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    whole = members.pop(name)
    if how > 2:
        members[name] = b"" if how == 3 else whole[: rng.randrange(len(whole) + 1)]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for each, kept in members.items():
            archive.writestr(each, kept)
    return out.getvalue()


STRUCTURES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "json": broken_json,
    "csv": broken_lines,
    "txt": broken_lines,
    "npy": broken_array,
    "safetensors": broken_safetensors,
}
TRUSTED = {"pt": broken_file, "pt2": broken_archive}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def check_case(
    seed: int, readers: Sequence[Reader], good: Path, capture: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Damage one file, run one command over it, and put the file back.

    The exit code, and what is wrong with it.
    """
    rng = random.Random(seed)
    reader = readers[seed % len(readers)]
    path = good / reader.name
    content = path.read_bytes()
    path.write_bytes(damaged(reader.name, content, rng))
    before = snapshot(good)
    try:
        code = main([str(word) for word in reader.words(good)])
        said = capture.readouterr()
        untouched = code == 0 or (snapshot(good) == before and not (good / "out").exists())
    finally:
        path.write_bytes(content)
        clean(good)
    told = code == 0 or (ONE_LINE.fullmatch(said.err) and said.out == "")
    fine = code in CODES and told and untouched
    return (
        code,
        ""
        if fine
        else f"case {seed}, {reader.name}: code {code}, {said.out[:300]!r}, {said.err[:600]!r}",
    )


def clean(good: Path) -> None:
    shutil.rmtree(good / "out", ignore_errors=True)
    (good / "p.npy").unlink(missing_ok=True)


def check_cases(
    seeds: range, readers: Sequence[Reader], good: Path, capture: pytest.CaptureFixture[str]
) -> None:
    """Run some cases, and name those that went wrong."""
    codes, wrong = zip(*(check_case(seed, readers, good, capture) for seed in seeds), strict=True)
    assert [line for line in wrong if line] == []
    assert codes.count(3) > len(codes) / 4  # they are damaged indeed
    assert codes.count(0) > len(codes) / 50  # and some of the damage is none
