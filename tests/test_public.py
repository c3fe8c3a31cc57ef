"""The surface.

What is public, what importing it costs, and that everything public shows how it is used.
"""

from __future__ import annotations

import doctest
import subprocess
import sys
from importlib.metadata import version

import pytest

import pseudocal


def test_public_names_are_few_and_sorted():
    assert pseudocal.__all__ == sorted(pseudocal.__all__)
    assert len(pseudocal.__all__) <= 20
    assert all(hasattr(pseudocal, name) for name in pseudocal.__all__)


def test_the_version_is_that_of_the_package():
    assert pseudocal.__version__ == version("pseudocal")
    with pytest.raises(AttributeError, match="has no attribute 'versoin'"):
        _ = pseudocal.versoin


@pytest.mark.parametrize("name", [n for n in pseudocal.__all__ if n != "metrics"])
def test_every_public_name_has_an_example_that_runs(name):
    thing = getattr(pseudocal, name)
    examples = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    if not (isinstance(thing, type) and issubclass(thing, Exception)):
        assert any(test.examples for test in examples), f"{name} has no example"


def test_importing_loads_nothing_heavy():
    heavy = (
        "torch",
        "matplotlib",
        "sklearn",
        "pandas",
        "scipy.optimize",
        "scipy.stats",
        "concurrent.futures.process",
    )
    code = f"import sys, pseudocal; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
