"""A calibration.json from anyone: read as it is, or refused with `expected ..., got ...`."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, InputError, PseudoCal, TemperatureScaling

EXPECTED = r"^expected [^\n]*, got [^\n]*$"
GOOD = PseudoCal(seed=7).fit(lambda x: 5 * x, np.random.default_rng(0).normal(size=(300, 3)))
DEEP = "[" * 100_000 + "]" * 100_000
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0.5,
    "x",
    "1.5",
    [],
    [1],
    {},
    {"a": 1},
    10**400,
    float("nan"),
    float("inf"),
    1e-320,
    1e308,
)


@pytest.fixture
def path(tmp_path):
    GOOD.save(tmp_path / "calibration.json")
    return tmp_path / "calibration.json"


def places(content, at=()):
    """Where a value can be changed."""
    yield at
    parts = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in parts:
        yield from places(value, (*at, key))


def changed(content, at, value):
    if not at:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[at[0]] = changed(content[at[0]], at[1:], value)
    return copy


def test_every_value_replaced_by_every_odd_one(path):
    content, refused, read = json.loads(path.read_text()), list[str](), 0
    for at in places(content):
        for value in ODD:
            path.write_text(json.dumps(changed(content, at, value)))
            try:
                calibration = Calibration.load(path)
            except InputError as error:
                refused.append(str(error))
            else:
                read += 1
                with np.errstate(all="raise"):
                    p = calibration.probabilities(np.array([[30.0, 1.0, -2.0]], dtype=np.float32))
                assert np.isfinite(p).all(), (at, value)
    assert len(refused) > 100
    assert all(re.match(EXPECTED, line) and len(line) < 600 for line in refused)
    assert read > 100  # settings may be anything


@pytest.mark.parametrize(
    "value", ["true", "1e-320", "1e400", "-1", "0", '"2"', "[2]", "null", "NaN", "9" * 5000, DEEP]
)
def test_a_temperature_that_is_none(path, value):
    text = path.read_text().replace(
        f'"temperature": {GOOD.temperature!r}', f'"temperature": {value}', 1
    )
    path.write_text(text)
    with pytest.raises(InputError, match=EXPECTED):
        Calibration.load(path)


@pytest.mark.parametrize(
    "text", ["", "{", "nul", DEEP, "9" * 5000, '"\\ud800"', "\ufeff{}", "[1]", "\0"]
)
def test_text_that_is_no_calibration(path, text):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=EXPECTED):
        Calibration.load(path)


def test_bytes_that_are_no_text(path):
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="which is not JSON"):
        Calibration.load(path)


@pytest.mark.parametrize(
    ("name", "why"),
    [("pipe", "a pipe or a device"), (".", "a folder"), ("nothing", "no such file")],
)
def test_what_is_no_file(tmp_path, name, why):
    if name == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("this system has no pipes in folders")
        os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=f"expected a calibration file, got .*: {why}"):
        Calibration.load(tmp_path / name)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_smallest_temperature_gives_probabilities(dtype):
    sure = Calibration("pseudocal", TemperatureScaling(1e-10)).probabilities(
        np.array([[3.0, 1.0]], dtype=dtype)
    )
    np.testing.assert_array_equal(sure, [[1.0, 0.0]])
    refused: tuple[Any, ...] = (1e-320, True, "2", None, np.nan)
    for temperature in refused:
        with pytest.raises(
            InputError, match="expected a positive temperature from 1e-10 to 1e\\+10, got"
        ):
            TemperatureScaling(temperature)
