"""Calibrators, methods and data sets from outside the package."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pseudocal
from pseudocal.app.cli import main
from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS
from pseudocal.lab.adapt import METHODS
from pseudocal.lab.bench import Store, built_in, run
from pseudocal.lab.bench.calibrators import find_compared
from pseudocal.lab.bench.executors import Pool, Ray
from pseudocal.lab.bench.suite_file import read_local, read_suite
from pseudocal.lab.bench.views import _load_domain
from pseudocal.lab.data import DATASETS
from pseudocal.lab.plugins import calibrator, load_plugins
from pseudocal.lab.sources import hash_source

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_methods"
pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)


@pytest.fixture(autouse=True)
def alone(registries, tmp_path, monkeypatch):
    """Forget what a test registers and builds."""
    monkeypatch.setenv("PSEUDOCAL_CACHE", str(tmp_path / "cache"))


def test_a_plugin_file_runs_in_new_processes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(EXAMPLE)  # a relative path must reach the workers too
    words = ["--out", str(tmp_path / "out"), "--plugin", "my_methods.py"]
    assert main(["bench", "run", "suite.toml", "--workers", "2", *words]) == 0
    assert "2 of 2 tasks of suite are done" in capsys.readouterr().out
    assert main(["bench", "table", "suite.toml", "--metric", "ece", *words]) == 0
    said = capsys.readouterr()
    assert "| PseudoCal, confident half |" in said.out
    assert "| entropy |" in said.out
    assert said.err == ""


@pytest.mark.parametrize("executor", [pytest.param(Pool, marks=pytest.mark.slow), Ray])
def test_workers_import_the_plugins_of_the_store(ray, tmp_path, executor):
    names = load_plugins([str(EXAMPLE / "my_methods.py")])
    suite = read_suite(EXAMPLE / "suite.toml")
    store = Store(tmp_path / "out", plugins=names)
    with executor(workers=2) as workers:
        assert run(suite, store, executor=workers) == []
    assert all(set(store.scores(task)) == set(suite.calibrators) for task in suite.tasks)


def test_built_in_suites_compare_calibrators_of_plugins():
    before = built_in("emoji").calibrators
    load_plugins([str(EXAMPLE / "my_methods.py")])
    assert built_in("emoji").calibrators == (*before, "confident-half")
    assert "confident-half" in built_in("emoji-source-free").calibrators
    assert "confident-half" not in built_in("scenes").calibrators


def write_birds(folder: Path) -> None:
    """Two domains of bright and dark images: one with a list, one with folders of classes."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(60):
        name = ("dark", "light")[number % 2]
        pixels = rng.integers(0, 150, (16, 16), dtype=np.uint8) + 100 * (number % 2)
        for domain in ("photos", "paintings"):
            path = folder / domain / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
        lines.append(f"photos/{name}/{number}.png {number % 2}")
    shutil.move(folder / "photos", folder / "images")
    listed = "\n".join(line.replace("photos/", "images/") for line in lines)
    (folder / "photos.txt").write_text(listed)


def test_a_suite_names_a_folder_of_images_as_its_data(tmp_path):
    write_birds(tmp_path / "birds")
    path = tmp_path / "mine.toml"
    path.write_text(
        'calibrators = ["none", "pseudocal", "oracle"]\ndatasets = { my-birds = "birds" }\n'
        '[[tasks]]\ndata = "my-birds"\nsource = "photos"\ntarget = "paintings"\n'
        'method = "source-only"\niterations = 3\n'
    )
    suite = read_suite(path)
    store = Store(tmp_path / "out", **read_local(path))
    assert run(suite, store) == []
    assert store.scores(suite.tasks[0])["none"]["accuracy"] is not None
    path.write_text(path.read_text().replace('"my-birds"\ns', '"other-birds"\ns'))
    with pytest.raises(InputError, match=r"expected a data set among .*my-birds.*got 'other-bird"):
        read_suite(path)
    path.write_text('datasets = { emoji = "birds" }\n')
    with pytest.raises(InputError, match="got 'emoji', which is taken"):
        read_local(path)


def test_a_plugin_cannot_hide_behind_an_estimator_of_the_benchmark(monkeypatch):
    monkeypatch.setitem(CALIBRATORS, "agreement", CALIBRATORS["tempscal"])
    with pytest.raises(
        InputError, match="already has a calibrator 'agreement': rename the plugin's"
    ):
        find_compared("agreement")


def test_mistakes_say_what_to_do(tmp_path):
    with pytest.raises(InputError, match="got 'power': make a setting a keyword-only argument"):
        calibrator("mine")(lambda target_logits, power: target_logits)
    with pytest.raises(InputError, match="expected a new name for <lambda>, got 'tempscal'"):
        calibrator("tempscal")(lambda source: source)
    with pytest.raises(InputError, match="expected a name of letters"):
        calibrator("a, b")(lambda source: source)
    with pytest.raises(InputError, match=r"got no file .*nowhere\.py"):
        load_plugins(["nowhere.py"])
    with pytest.raises(InputError, match="got 'no_such_module': No module named"):
        load_plugins(["no_such_module"])
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match=r"bad\.py to be importable, got ZeroDivisionError"):
        load_plugins([str(tmp_path / "bad.py")])


@pytest.mark.slow
def test_the_example_package_is_installed_and_run(tmp_path):
    """In a new environment that sees the packages of this one, but not the example's file."""
    if not (find_spec("pip") and find_spec("setuptools")):
        pytest.skip("needs pip and setuptools")
    shutil.copytree(EXAMPLE, tmp_path / "package")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    ours = sysconfig.get_paths()["purelib"]
    ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    theirs = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout
    (Path(theirs.strip()) / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    environment = os.environ | {"PYTHONPATH": str(Path(pseudocal.__file__).parents[1])}
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([python, *install, tmp_path / "package"], check=True, env=environment)
    (tmp_path / "package" / "my_methods.py").unlink()  # only the installed one is left
    words = [python, "-m", "pseudocal", "bench", "run", "suite.toml", "-o", tmp_path / "out"]
    done = subprocess.run(
        [*words, "--workers", "2"],
        cwd=tmp_path / "package",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 tasks of suite are done" in done.stdout
    assert len(list((tmp_path / "out").rglob("calibrations/confident-half.json"))) == 2


EDITED = """
from pseudocal import Calibration, TemperatureScaling
from pseudocal.lab.data import from_arrays
from pseudocal.lab.plugins import calibrator, dataset, method
import my_stripes  # the example's data set and method

POWER = 2.0


@calibrator("first")
def first(target_logits) -> Calibration:
    return Calibration("first", TemperatureScaling(_temperature()))


def _temperature():
    return POWER


@calibrator("second")
def second(target_logits) -> Calibration:
    return Calibration("second", TemperatureScaling(3.0))


@calibrator("third")
def third(target_logits, target_labels) -> Calibration:
    return Calibration("third", TemperatureScaling(5.0))
"""
SUITE = """
calibrators = ["none", "first", "second", "third", "oracle"]

[[tasks]]
data = "stripes"
source = "clean"
target = "noisy"
method = "entropy"
backbone = "digits"
iterations = 3
"""


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """Run a suite with a plugin of this content, as a new process would."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "suite.toml").write_text(SUITE)
    example = (EXAMPLE / "my_methods.py").read_text()

    def run_with(content, stripes=example):
        for registry in (CALIBRATORS, METHODS, DATASETS):
            for name in ("first", "second", "third", "confident-half", "entropy", "stripes"):
                registry.pop(name, None)
        sys.modules.pop("my_stripes", None)
        _load_domain.cache_clear()
        load_plugins.__globals__["_import_file"].cache_clear()
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)  # by time stamps of seconds
        (tmp_path / "my_stripes.py").write_text(stripes)
        (tmp_path / "plugin.py").write_text(content)
        words = ["--out", str(tmp_path / "out"), "--plugin", str(tmp_path / "plugin.py")]
        code = main(["bench", "run", str(tmp_path / "suite.toml"), "--workers", "1", *words])
        (folder,) = (tmp_path / "out").glob("tasks/*/*/*/*/*")
        return code, folder

    return run_with


def temperatures(folder):
    scores = json.loads((folder / "scores.json").read_text())
    return {name: scores[name]["temperature"] for name in scores if name not in ("none", "oracle")}


def written(folder):
    return {
        path.relative_to(folder).as_posix(): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_edited_calibrator_is_fitted_again_and_no_other(edited):
    code, folder = edited(EDITED)
    assert code == 0
    assert temperatures(folder) == {"first": 2.0, "second": 3.0, "third": 5.0}
    before = written(folder)

    # Comments and another definition change nothing.
    assert edited(EDITED.replace("POWER = 2.0", "POWER = 2.0  # twice\n\nUNUSED = 1"))[0] == 0
    assert written(folder) == before

    # A constant that a function of the calibrator uses.
    assert edited(EDITED.replace("POWER = 2.0", "POWER = 4.0"))[0] == 0
    assert temperatures(folder) == {"first": 4.0, "second": 3.0, "third": 5.0}
    after = written(folder)
    changed = {name for name in before if before[name] != after[name]}
    assert {"calibrations/first.json", "calibrations/first.code", "scores.json"} <= changed
    assert not changed & {"calibrations/second.json", "model.safetensors", "target.npz"}

    # One that sees target labels.
    assert edited(EDITED.replace("(5.0)", "(6.0)"))[0] == 0
    assert temperatures(folder) == {"first": 2.0, "second": 3.0, "third": 6.0}


def test_an_edited_calibrator_that_fails_has_no_score_and_an_exit_code(edited, capsys):
    edited(EDITED)
    capsys.readouterr()
    code, folder = edited(EDITED.replace("return POWER", "return POWER / 0"))
    said = capsys.readouterr()
    assert code == 6
    assert temperatures(folder) == {"second": 3.0, "third": 5.0}
    assert "1 of 1 tasks of suite are done" in said.out
    note = folder / "calibrations" / "first.error.json"
    assert (
        "clean->noisy entropy seed 0: no first: ZeroDivisionError: float division by zero "
        f"(traceback in {note})\n1 calibration failed" in said.err
    )
    code, folder = edited(EDITED)
    assert code == 0
    assert temperatures(folder)["first"] == 2.0


def test_an_edited_method_or_data_set_trains_its_models_again(edited):
    example = (EXAMPLE / "my_methods.py").read_text()
    _, folder = edited(EDITED)
    before = written(folder)
    assert edited(EDITED, example.replace("len(confidence) // 2", "len(confidence) // 3"))[0] == 0
    assert written(folder) == before  # only the file's calibrator was edited
    for old, new in (("weight: float = 0.1", "weight: float = 0.2"), ("150.0", "140.0")):
        assert edited(EDITED, example.replace(old, new))[0] == 0
        after = written(folder)
        assert after["model.safetensors"] != before["model.safetensors"]
        assert after["calibrations/second.json"] != before["calibrations/second.json"]
        before = after


def test_a_hash_covers_what_a_definition_uses(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (
        "import numpy as np\nfrom math import exp as e\nTABLE = {}\nTABLE['a'] = 1\nOTHER = np.ones(1)\n"
        "TABLE.update(b=2)\nif e(0):\n    def helper(): return TABLE\n"
        "class Mine:\n    def steps(self): return helper()\n"
        "nameless = lambda: 1\n"
    )

    def hashes(number, content):
        (tmp_path / f"hashed_{number}.py").write_text(content)
        module = importlib.import_module(f"hashed_{number}")
        return hash_source(module.Mine), hash_source(module.nameless)

    mine, nameless = hashes(0, text)
    assert hashes(1, text.replace("\n", "  # more\n")) == (mine, nameless)
    changes = ("= {}", "={1: 2}"), ("['a']", "['c']"), ("b=2", "b=3"), ("e(0)", "e(1)")
    for number, (old, new) in enumerate(changes, start=2):
        assert hashes(number, text.replace(old, new))[0] != mine
    other = hashes(9, text.replace("np.ones", "np.zeros"))
    assert other[0] == mine
    assert other[1] != nameless  # of a lambda, the whole file
    assert hash_source(len) == ""
