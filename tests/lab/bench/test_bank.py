"""`bench export` and `bench compare`: a suite's outputs as one folder."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from pseudocal.app.cli import main
from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS, Calibration
from pseudocal.lab import plugins
from pseudocal.lab.bench import Store, run
from pseudocal.lab.bench.bank import compare_banks, export_bank, load_bank
from pseudocal.lab.bench.calibrators import find_compared
from pseudocal.lab.bench.executors import Pool
from pseudocal.lab.bench.records import read_records
from pseudocal.lab.bench.stages.calibrate import save_fitted
from pseudocal.lab.bench.suites import ALL
from pseudocal.lab.bench.task import Task
from pseudocal.scaling import TemperatureScaling

FAST = ("none", "tempscal", "pseudocal", "oracle")


@pytest.fixture(scope="module")
def store(done, tmp_path_factory):
    return Store(shutil.copytree(done.out, tmp_path_factory.mktemp("store") / "copy"))


@pytest.fixture(scope="module")
def whole(tiny, store):
    """A suite with all calibrators, the ablation's variants and two repetitions, run."""
    names = (*ALL, "cutmix", "lambda-0.8-soft", "pseudocal, lam=0.7")
    suite = replace(tiny, name="whole", tasks=tiny.tasks[1:], calibrators=names, repeats=2)
    run(suite, store)
    return suite


@pytest.fixture(scope="module")
def bank(whole, store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks") / "whole"
    export_bank(whole, store, folder)
    return folder


@pytest.fixture
def copy(bank, tmp_path):
    return shutil.copytree(bank, tmp_path / "copy")


@pytest.fixture(scope="module")
def compared(bank):
    return compare_banks([bank])


def change_list(bank, change):
    """Edit the list of a bank, as somebody else might."""
    content = json.loads((bank / "bank.json").read_text())
    change(content)
    (bank / "bank.json").write_text(json.dumps(content))


@pytest.mark.filterwarnings("ignore::pseudocal.scaling.linear.UnfinishedFitWarning")
def test_scores_are_those_of_the_run_to_the_last_digit(whole, store, compared):
    found = {(each.task, each.calibrator, each.repeat): each for each in compared.records}
    expected = 0
    for task in whole.tasks:
        for name, scores in store.scores(task).items():
            base = name.split(", repeat=")[0]
            if base in whole.calibrators:
                expected += 1
                mine = found[task, base, find_compared(name).repeat]
                assert scores == {key: getattr(mine, key) for key in scores}, name
    assert len(found) == expected > 2 * len(ALL)
    assert set(compared.stored) == {"mc-dropout", "pseudocal-released"}


def test_a_pool_finds_the_same(bank):
    alone = compare_banks([bank], FAST)
    with Pool(2) as pool:
        assert compare_banks([bank], FAST, executor=pool) == alone


def test_a_bank_has_no_models_no_images_and_no_pickles(bank):
    files = [path for path in bank.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".npz", ".npy"}
    for path in files:
        if path.suffix != ".json":
            np.load(path, allow_pickle=False)


def test_the_command_exports_and_compares(tiny, store, tmp_path, capsys):
    bank = tmp_path / "bank"
    assert main(["bench", "export", "tiny", str(bank), "--out", str(store.out)]) == 0
    assert capsys.readouterr().out == f"{bank}: outputs of 3 tasks of tiny\n"
    words = ["bench", "compare", str(bank), "--workers", "1"]
    words += [word for name in FAST for word in ("--calibrator", name)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.count("| PseudoCal against |") == 3
    assert "| TempScal |" in said
    assert "| Accuracy |" in said
    assert main([*words, "--metric", "ece", "--format", "latex"]) == 0
    said = capsys.readouterr().out
    assert said.count(r"\begin{tabular}") == 2
    assert "PseudoCal against & source-only & mcc & bnm & all" in said
    assert main([*words, "--metric", "nll", "--format", "csv", "--by", "task"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    task = tiny.tasks[0]
    mine = [
        row
        for row in rows
        if row["table"] == "source-only: nll"
        and row["calibrator"] == "PseudoCal"
        and row["column"] == task.pair
    ]
    assert float(mine[0]["mean"]) == store.scores(task)["pseudocal"]["nll"]
    assert main([*words, "--calibrator", "nonsense"]) == 3
    assert "expected calibrators among none, " in capsys.readouterr().err


def test_several_folders_at_once(tiny, store, whole, bank, tmp_path, capsys):
    other = tmp_path / "other"
    export_bank(replace(tiny, name="other", tasks=tiny.tasks[:1], calibrators=FAST), store, other)
    single = store.folder(tiny.tasks[0])
    found = compare_banks([bank, other, single], FAST)
    assert found.suite.tasks[:-1] == (*whole.tasks, tiny.tasks[0])
    assert found.suite.tasks[-1].target == single.as_posix()
    by_task = {(each.task, each.calibrator): each.ece for each in found.records}
    mine = by_task[found.suite.tasks[-1], "tempscal"]
    assert mine == by_task[tiny.tasks[0], "tempscal"]
    assert main(["bench", "compare", str(other), str(single), "--workers", "1"]) == 0
    assert "| source-only, emoji" not in capsys.readouterr().out
    with pytest.raises(InputError, match="got optdigits->fonts mcc seed 0 in two of them"):
        compare_banks([bank, bank.parent / "." / "whole" / ".." / "whole"], FAST)


def test_a_plugin_is_compared_and_one_that_needs_the_model_is_named(
    registries, bank, tmp_path, capsys
):
    (tmp_path / "mine.py").write_text(
        "from pseudocal import Calibration\n"
        "from pseudocal.lab.plugins import calibrator\n"
        "from pseudocal.scaling import TemperatureScaling\n\n"
        "@calibrator('bank-halved', title='Halved')\n"
        "def halved(target_logits):\n"
        "    return Calibration('bank-halved', TemperatureScaling(2.0))\n\n"
        "@calibrator('bank-whole', title='Whole')\n"
        "def whole(model, target_inputs):\n"
        "    return Calibration('bank-whole', TemperatureScaling(2.0))\n"
    )
    words = ["bench", "compare", str(bank), "--workers", "1", "--plugin", str(tmp_path / "mine.py")]
    names = ["constant", "bank-halved", "bank-whole"]
    words += [word for name in names for word in ("--calibrator", name)]
    assert main([*words, "--metric", "ece"]) == 6
    said = capsys.readouterr()
    rows = {line.split("|")[1].strip(): line for line in said.out.splitlines() if "|" in line}
    assert rows["Halved"].split("|")[2:] == rows["Constant, T = 2"].split("|")[2:]
    assert "optdigits->fonts mcc seed 0 and 1 more: no Whole: InputError: expected a model" in (
        said.err
    )

    # The result of the run is in the bank, and its plugin has been edited since.
    suite = load_bank(bank)
    copy = Store(shutil.copytree(bank, tmp_path / "copy"))
    for task in suite.tasks:
        save_fitted(task, "bank-whole", Calibration("bank-whole", TemperatureScaling(3.0)), copy)
    found = compare_banks([copy.out], ["bank-whole"])
    assert [record.temperature for record in found.records] == [3.0] * len(suite.tasks)
    for path in copy.out.rglob("bank-whole.code"):
        path.write_text("other code")
    found = compare_banks([copy.out], ["bank-whole"])
    assert not found.records
    assert "no Whole: InputError: expected the plugin that the bank was" in found.problems[0]


def test_a_bank_is_compared_without_the_plugin_of_its_run(
    registries, tiny, store, tmp_path, capsys
):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from pseudocal import Calibration\n"
        "from pseudocal.lab.plugins import calibrator\n"
        "from pseudocal.scaling import TemperatureScaling\n\n"
        "@calibrator('drawn-half', title='Drawn half')\n"
        "def half(target_logits, *, seed=0):\n"
        "    return Calibration('drawn-half', TemperatureScaling(2.0 + seed % 7))\n\n"
        "@calibrator('turned')\n"
        "def turned(target_logits):\n"
        "    return target_logits[:, ::-1]\n"
    )
    plugins.load_plugins([str(plugin)])
    names = ("none", "pseudocal", "drawn-half", "turned", "oracle")
    suite = replace(tiny, name="mine", calibrators=names, repeats=2)
    assert run(suite, store) == []
    expected = read_records(suite, store)
    forget(*suite.calibrators[2:4])
    bank = tmp_path / "bank"
    export_bank(suite, store, bank)
    found = compare_banks([bank])
    assert found.problems == ()
    assert found.without_plugin == ("drawn-half", "turned")
    assert [replace(each, seconds=None) for each in expected] == sorted(
        found.records, key=expected_order(expected)
    )
    assert len({r.temperature for r in found.records if r.calibrator == "drawn-half"}) == 2
    assert main(["bench", "compare", str(bank), "--workers", "1", "--metric", "ece"]) == 0
    said = capsys.readouterr()
    assert "| drawn-half |" in said.out
    assert "stored scores, because their --plugin is not given: drawn-half, turned" in said.err
    assert "turned changes predicted classes" in said.err
    assert "half changes" not in said.err

    # With the plugin, they are fitted again.
    words = ["bench", "compare", str(bank), "--workers", "1", "--plugin", str(plugin)]
    assert main([*words, "--metric", "ece"]) == 0
    said = capsys.readouterr()
    assert "| Drawn half |" in said.out
    assert "stored scores" not in said.err

    # A bank without stored scores says what it lacks, and the others are compared.
    forget(*suite.calibrators[2:4])
    for path in bank.rglob("scores.json"):
        path.unlink()
    found = compare_banks([bank])
    assert {each.calibrator for each in found.records} == {"none", "pseudocal", "oracle"}
    assert "no drawn-half: InputError: expected the plugin of 'drawn-half'" in found.problems[0]
    with pytest.raises(InputError, match=r"expected calibrators among none, .*, got 'other'"):
        compare_banks([bank], ["other"])


def forget(*names):
    """Unload the calibrators of a plugin file."""
    for name in names:
        del CALIBRATORS[name]
    plugins._import_file.cache_clear()


def expected_order(expected):
    """The place of a record in a list."""
    places = {(r.task, r.calibrator, r.repeat): place for place, r in enumerate(expected)}
    return lambda record: places[record.task, record.calibrator, record.repeat]


@pytest.mark.parametrize("scores", ['{"mine": {"ece": "0"}}', '{"mine": 3}', "[]", "{"])
def test_stored_scores_that_are_wrong(copy, whole, scores):
    change_list(copy, lambda content: content["suite"]["calibrators"].append("mine"))
    for task in whole.tasks:
        (Store(copy).folder(task) / "scores.json").write_text(scores)
    found = compare_banks([copy], ["none", "mine"])
    assert {each.calibrator for each in found.records} == {"none"}
    assert "no mine: " in found.problems[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format="other"), "expected the list of a bank, got .*bank.json"),
        (lambda c: c.update(format_version=9), "expected format version 1 in .*, got 9"),
        (lambda c: c.pop("suite"), "expected a suite in .*bank.json, got KeyError: 'suite'"),
        (lambda c: c["suite"].update(tasks=[{"data": 3}]), "expected a suite in .*bank.json"),
        (lambda c: c["suite"]["tasks"][0].update(data="/etc"), "got /etc.*, which is elsewhere"),
        (lambda c: c["suite"]["tasks"][0].update(data="../.."), "which is elsewhere"),
        (lambda c: c["suite"].update(calibrators=["../x"]), "expected names of calibrators"),
    ],
)
def test_a_list_that_is_wrong_or_points_elsewhere(copy, change, message):
    change_list(copy, change)
    with pytest.raises(InputError, match=message):
        load_bank(copy)


def test_links_that_leave_a_bank_are_refused(copy, tmp_path):
    (tmp_path / "secret.npz").write_bytes(b"")
    path = next(copy.rglob("target.npz"))
    path.unlink()
    os.symlink(tmp_path / "secret.npz", path)
    with pytest.raises(InputError, match=r"target.npz, which is elsewhere"):
        load_bank(copy)


def test_pickles_in_a_bank_are_refused_and_other_tasks_compared(copy, whole):
    task = whole.tasks[0]
    folder = Store(copy).folder(task)
    np.save(folder / "target_labels.npy", np.array([{}], dtype=object), allow_pickle=True)
    found = compare_banks([copy], FAST)
    assert {each.task for each in found.records} == set(whole.tasks[1:])
    assert len(found.problems) == len(FAST)
    assert "no TempScal: InputError: expected arrays of numbers" in found.problems[1]


def test_damaged_files_fail_alone(copy, whole):
    task = whole.tasks[0]
    folder = Store(copy).folder(task)
    (folder / "mixup" / "pseudocal.npz").write_bytes(b"no array")
    (folder / "mixup" / "estimates.json").write_text('{"agreement": 3}')
    found = compare_banks([copy], ("tempscal", "pseudocal", "agreement"))
    failed = [each for each in found.problems if "mcc seed 0" in each]
    assert len(failed) >= 2
    assert {each.calibrator for each in found.records if each.task == task} >= {"tempscal"}


def test_what_cannot_be_exported(tiny, store, whole, bank, tmp_path):
    with pytest.raises(InputError, match="expected a new or empty folder, got"):
        export_bank(whole, store, bank)
    unfinished = replace(whole, tasks=(replace(whole.tasks[0], iterations=7),))
    with pytest.raises(InputError, match="got no scores of optdigits->fonts mcc seed 0: run it"):
        export_bank(unfinished, store, tmp_path / "new")
    scenes = Task("scenes", "noto", "fluent", runner="segmentation", options=(("batch", 8),))
    with pytest.raises(InputError, match="expected a suite of classifiers"):
        export_bank(replace(tiny, tasks=(scenes,)), store, tmp_path / "new")
