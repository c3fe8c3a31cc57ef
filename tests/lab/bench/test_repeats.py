"""`--repeats`: the calibration is repeated with new random numbers, the training is not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pseudocal import PseudoCal
from pseudocal.app.cli import main
from pseudocal.lab.bench import Store, Suite, built_in, run
from pseudocal.lab.bench.calibrators import seed_of_repeat
from pseudocal.lab.bench.records import read_records
from pseudocal.lab.bench.stages.predict import load_whole_network
from pseudocal.lab.bench.suite_file import parse_suite
from pseudocal.lab.bench.tables import tables
from pseudocal.lab.bench.views import domains_of

# the tiny networks of these tests predict nearly one class
pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)
NAMES = ("none", "tempscal", "mc-dropout", "pseudocal", "pseudocal-released", "cutmix", "oracle")


@pytest.fixture(scope="module")
def repeated(tiny, cache, tmp_path_factory) -> tuple[Store, Suite]:
    store = Store(tmp_path_factory.mktemp("repeated"))
    suite = Suite("repeated", tiny.tasks[1:], NAMES, repeats=3)
    assert run(suite, store) == []
    return store, suite


def test_each_repetition_has_pairs_of_its_own_and_the_same_model(repeated):
    store, suite = repeated
    assert len(list(store.out.rglob("model.safetensors"))) == len(suite.tasks)
    for task in suite.tasks:
        model = load_whole_network(task, store)
        images = domains_of(task, store)[1].inputs
        names = ("pseudocal", "pseudocal, repeat=1", "pseudocal, repeat=2")
        found = [store.scores(task)[name]["temperature"] for name in names]
        assert len(set(found)) == 3
        for number, temperature in enumerate(found):
            seed = seed_of_repeat(task.seed, number)
            expected = PseudoCal(epochs=1, seed=seed).fit(model, images).temperature
            assert temperature == pytest.approx(expected, rel=1e-5)


def test_what_draws_nothing_is_not_repeated(repeated):
    store, suite = repeated
    repeats = {
        (record.calibrator, record.repeat)
        for record in read_records(suite, store)
        if record.repeat == 2
    }
    drawn = ("mc-dropout", "pseudocal", "pseudocal-released", "cutmix")
    assert repeats == {(name, 2) for name in drawn}


def test_tables_show_the_spread_over_repetitions(repeated):
    store, suite = repeated
    (table,) = tables(suite, read_records(suite, store), "ece", "overall")
    rows = dict(table.rows)
    of_task = store.scores(suite.tasks[0])
    values = [
        of_task[name]["ece"] for name in ("pseudocal", "pseudocal, repeat=1", "pseudocal, repeat=2")
    ]
    assert rows["PseudoCal"][0].mean == pytest.approx(np.mean(values))
    assert rows["PseudoCal"][0].sd == pytest.approx(np.std(values, ddof=1))
    assert np.isnan(rows["TempScal"][0].sd)
    assert "PseudoCal, repeat 1" not in rows


def test_the_command_and_a_suite_file_take_repeats(tiny_file, done, cache, tmp_path, capsys):
    words = ["--out", str(tmp_path), "--quick", "--repeats", "2", "--workers", "1"]
    assert main(["bench", "run", str(tiny_file), *words]) == 0
    assert json.loads((tmp_path / "suites" / "tiny-quick.json").read_text())["repeats"] == 2
    assert main(["bench", "table", str(tiny_file), "--quick", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    (row, *_) = [line for line in said.splitlines() if line.startswith("| PseudoCal |")]
    assert "±" in row
    task = {"data": "digits", "source": "mnist", "target": "fonts", "method": "mcc"}
    assert parse_suite({"repeats": 5, "tasks": [task]}, "mine").repeats == 5
    assert built_in("emoji", repeats=5).repeats == 5


def test_a_suite_that_was_stored_before_has_one_repeat(tiny):
    content = tiny.to_dict()
    del content["repeats"]
    assert Suite.from_dict(content) == tiny
