"""The built-in emoji, with real images and the pretrained backbone: a bank and a plugin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pseudocal.lab.bench import Store, built_in, run
from pseudocal.lab.bench.bank import compare_banks, export_bank
from pseudocal.lab.bench.calibrators import find_compared
from pseudocal.lab.bench.executors import Pool

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[3] / "docs" / "paper" / "bench.md"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """The plugin of the docs: a copy of PseudoCal in one file outside the package."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "@calibrator(" in block)
    path = tmp_path_factory.mktemp("plugins") / "my_methods.py"
    path.write_text(code)
    return str(path)


@pytest.fixture(scope="module")
def emoji(plugin, tmp_path_factory):
    """`bench run emoji --quick --plugin my_methods.py`."""
    from pseudocal.lab.plugins import load_plugins

    store = Store(tmp_path_factory.mktemp("emoji"), plugins=load_plugins([plugin]))
    suite = built_in("emoji", quick=True)
    assert run(suite, store) == []
    return suite, store


def test_a_copy_of_pseudocal_by_the_docs_equals_pseudocal(emoji):
    suite, store = emoji
    assert "mine" in suite.calibrators
    for task in suite.tasks:
        scores = store.scores(task)
        for key in ("ece", "nll", "brier", "accuracy", "temperature"):
            # float32 features of other batches differ in their last digits
            assert scores["mine"][key] == pytest.approx(scores["pseudocal"][key], rel=0, abs=1e-6)


def test_the_bank_has_the_scores_of_the_run(emoji, plugin, tmp_path):
    suite, store = emoji
    export_bank(suite, store, tmp_path / "bank")
    with Pool(2) as pool:
        found = compare_banks([tmp_path / "bank"], plugins=(plugin,), executor=pool)
    mine = {(each.task, each.calibrator): each for each in found.records}
    for task in suite.tasks:
        scores = store.scores(task)
        assert scores.keys() == set(suite.calibrators)
        for name in suite.calibrators:
            assert find_compared(name).repeat == 0
            assert scores[name] == {key: getattr(mine[task, name], key) for key in scores[name]}
