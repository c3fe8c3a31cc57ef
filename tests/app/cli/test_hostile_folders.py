"""A result folder or a job from somebody else is data.

Nothing in it runs, and nothing outside it is touched.

Beside each hostile folder is one with files of the user. Whatever a link or a path could lead to is
there, valid, so that following it would work. A command may refuse the hostile folder or not; it
may not read, change or move the files of the user, import the canary, or end in anything but a
documented exit code and one line.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.lib.recfunctions
import pytest
from PIL import Image

from pseudocal.app.cli import main

from .test_security_page import table

DOCUMENTED = {0, 2, 3, 4, 5, 10, 11, 12}
CLASSES = 3
CANARY = "import os\nopen(os.environ['PSEUDOCAL_CANARY'], 'w').close()\ndef main(x): return x[:, :3] * 3\n"
FOLDERS = (".pseudocal-decided", ".pseudocal-staged", "model", "parts")
ACTIONS = (
    "open",
    "os.",
    "shutil.",
    "pathlib.",
    "glob.",
)  # how events of Python begin that name a file
ON_LINKS = ("os.remove", "os.rename", "os.rmdir")


# what a command does to files


class Watch:
    """Every file that Python opens, lists, moves or deletes while a command runs."""

    def __init__(self) -> None:
        self.touched: list[tuple[str, str]] | None = None
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.touched is None or not event.startswith(ACTIONS):
            return
        named = arguments[:1] if event == "open" else arguments  # the others are modes
        for one in named:
            if isinstance(one, str | bytes | os.PathLike):
                path = os.fsdecode(one)
                if event in ON_LINKS:  # which act on a link, not on what it points to
                    path = os.path.join(
                        os.path.realpath(os.path.dirname(path)), os.path.basename(path)
                    )
                else:
                    path = os.path.realpath(path)
                self.touched.append((event, path))

    @contextmanager
    def __call__(self) -> Iterator[list[tuple[str, str]]]:
        seen: list[tuple[str, str]] = []
        self.touched = seen
        try:
            yield seen
        finally:
            self.touched = None


watching = Watch()


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything about the files of a folder that could change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        found[str(path.relative_to(folder))] = (
            about.st_ino,
            about.st_mode,
            about.st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
    return found


# real folders to make hostile


def save_onnx(path: Path, *, maps: bool, scale: tuple[int, ...] = (20, 20, 20)) -> Path:
    """A model of images: three classes by colour, of the whole image or of every pixel."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    matrix = np.diag(scale).astype(np.float32).reshape(3, 3, 1, 1)
    weights = numpy_helper.from_array(matrix, "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["z"])]
    shape: list[Any] = ["n", 3, 8, 8]
    if not maps:
        nodes += [
            helper.make_node("GlobalAveragePool", ["z"], ["p"]),
            helper.make_node("Flatten", ["p"], ["q"]),
        ]
        shape = ["n", 3]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("z" if maps else "q", TensorProto.FLOAT, shape)],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


class Run(NamedTuple):
    out: Path
    labels: Path


def run_of(kind: str, folder: Path) -> Run:
    """Calibrate something small, and label a few of its inputs."""
    rng = np.random.default_rng(0)
    out = folder / "out"
    if kind in ("images", "segmentation"):
        (folder / "images").mkdir()
        for i in range(16):
            pixels = rng.integers(0, 255, size=(4, 4, 3), dtype=np.uint8).repeat(2, 0).repeat(2, 1)
            Image.fromarray(pixels).save(folder / "images" / f"{i:02}.png")
        model = save_onnx(folder / "model.onnx", maps=kind == "segmentation")
        words = [
            "calibrate",
            model,
            folder / "images",
            "-o",
            out,
            "--batch-size",
            8,
            "--format",
            "csv",
            "-q",
        ]
        if kind == "images":
            other = save_onnx(folder / "other.onnx", maps=False, scale=(20, 15, 25))
            words += ["--second-opinion", other]
    elif kind == "texts":
        rows = [("text", "label"), *((f"a story {i}", i % 3) for i in range(30))]
        with (folder / "texts.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        words = [
            "calibrate",
            "texts_model:predict",
            folder / "texts.csv",
            "-o",
            out,
            "--text",
            "text",
            "-q",
        ]
    else:
        np.save(folder / "outputs.npy", rng.normal(size=(30, CLASSES)) * 3)
        (folder / "inputs.txt").write_text("".join(f"line {i}\n" for i in range(30)))
        words = [
            "label",
            folder / "outputs.npy",
            "-o",
            out,
            "--inputs",
            folder / "inputs.txt",
            "-n",
            10,
        ]
    assert main([str(word) for word in words]) == 0
    assert main(["label", str(out), "-n", "10"]) == 0
    labels = folder / "labels.csv"
    with (out / "to-label.csv").open(newline="") as file:
        chosen = list(csv.DictReader(file))
    with labels.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(chosen[0]))
        writer.writeheader()
        writer.writerows(row | {"label": i % CLASSES} for i, row in enumerate(chosen))
    if kind == "outputs":
        assert main(["refine", str(out), str(labels), "-q"]) == 0
    return Run(out, labels)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    model = ModuleType("texts_model")
    model.predict = lambda x: np.array([[len(str(t)), 3.0 * i, 1.0] for i, t in enumerate(x)])  # type: ignore[attr-defined]
    sys.modules["texts_model"] = model
    made: dict[str, Run] = {}

    def get(kind: str) -> Run:
        if kind not in made:
            made[kind] = run_of(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return get


class Hostile:
    """A copy of a run in a folder `out`, with files of the user in a folder beside it."""

    def __init__(self, run: Run, place: Path, canary: Path) -> None:
        self.run, self.place, self.canary = run, place, canary
        self.out, self.mine = place / "out", place / "mine"
        shutil.copytree(run.out, self.out)
        shutil.copytree(run.out, self.mine)  # so that following a link to it works
        (self.mine / "secret").mkdir()
        (self.mine / "secret" / "id_rsa").write_text("mine")
        (self.mine / "secret" / "pseudocal.json").write_text("{}")
        (self.mine / "secret" / "parts.json").write_text("{}")
        Image.new("RGB", (8, 8)).save(self.mine / "photo.png")
        self.source = place / "source"  # what the user gives to commands
        self.source.mkdir()
        np.save(self.source / "z.npy", np.random.default_rng(1).normal(size=(20, CLASSES)))
        np.save(self.source / "y.npy", np.arange(20) % CLASSES)
        np.save(self.source / "x.npy", np.random.default_rng(1).normal(size=(20, CLASSES)))
        for folder in (self.out, self.place):
            (folder / "evil.py").write_text(CANARY)

    def commands(self, *more: str) -> dict[str, tuple[Any, ...]]:
        """Every command that reads such a folder, or writes into one."""
        z, y, x = (self.source / f"{name}.npy" for name in "zyx")
        other = self.place / "comparison.html"
        return {
            "report": ("report", self.out),
            "compare": ("report", self.out, self.run.out, "-o", other),
            "label": ("label", self.out, "-n", 12, *more),
            "refine": ("refine", self.out, self.run.labels, *more),
            "threshold": ("threshold", self.out, "--max-error", "10%"),
            "threshold by labels": ("threshold", self.out, self.run.labels, "--max-error", "10%"),
            "label for it": ("label", self.out, "-n", 12, "--for-threshold", "10%", *more),
            "evaluate": ("evaluate", z, y, "--calibration", self.out / "calibration.json"),
            "apply": ("apply", self.out / "calibration.json", z, "-o", self.place / "p.npy"),
            "job": ("calibrate", "--job", self.out / "job.toml", "-o", self.out),
            "watch": ("watch", self.place / "monitor", "--baseline", self.out, *more),
            "calibrate": ("calibrate", "rows_model:predict", x, "-o", self.out, "--format", "csv"),
        }

    def check(self, *words: Any, capsys: pytest.CaptureFixture[str]) -> int:
        """Run one command, and see that it does no harm."""
        before, listed = self._files(), {path.name for path in self.place.iterdir()}
        capsys.readouterr()
        with watching() as touched:
            code = main([str(word) for word in words])
        said = capsys.readouterr()
        assert code in DOCUMENTED, said.err
        assert "Traceback" not in said.err + said.out
        if code in (2, 3, 4, 5):
            assert (
                len([line for line in said.err.splitlines() if line.startswith("pseudocal: ")]) == 1
            ), said.err
        assert not self.canary.exists()
        own = os.path.realpath(self.mine)
        assert [path for _, path in touched if path == own or path.startswith(own + os.sep)] == []
        assert self._files() == before
        assert {path.name for path in self.place.iterdir()} - listed <= {
            "comparison.html",
            "monitor",
            "p.npy",
        }
        return code

    def _files(self) -> list[dict[str, Any]]:
        """The files that no command may change."""
        return [snapshot(folder) for folder in (self.mine, self.source, self.run.out.parent)]


@pytest.fixture
def hostile(runs, tmp_path, monkeypatch):
    """Make a folder hostile that somebody else wrote: it is signed with another key."""
    canary = tmp_path / "canary"
    monkeypatch.setenv("PSEUDOCAL_CANARY", str(canary))
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    model = ModuleType("rows_model")
    model.predict = lambda x: 3 * np.asarray(x)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rows_model", model)
    made = 0

    def make(kind: str = "images") -> Hostile:
        nonlocal made
        run = runs(kind)
        made += 1
        (tmp_path / str(made)).mkdir()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        found = Hostile(run, tmp_path / str(made), canary)
        monkeypatch.chdir(found.out)
        return found

    return make


def replace_by_link(path: Path, target: Path | str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    path.symlink_to(target)


# links, pipes and folders in the places of files


FILES = (
    *(
        "to-label.csv",
        "calibration.json",
        "evidence.npz",
        "job.toml",
        "label.html",
        "logits.npy",
        "model.onnx",
        "pixels.npz",
    ),
    *("predictions.csv", "probe.npy", "report.html", "report.json", "run.json", "second-0.npy"),
    "threshold.json",
)


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_the_place_of_a_file_is_not_followed(name, hostile, capsys):
    kind = "segmentation" if name == "pixels.npz" else "images"
    for what in hostile(kind).commands("--trust-paths"):
        one = hostile(kind)
        (one.mine / name).touch()
        replace_by_link(one.out / name, os.path.join("..", "mine", name))
        one.check(*one.commands("--trust-paths")[what], capsys=capsys)


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_link_in_the_place_of_a_folder_is_not_followed(name, absolute, hostile, capsys):
    """`ln -s ~/.ssh OUT/.pseudocal-decided; pseudocal report OUT` once moved the keys."""
    for what in hostile().commands("--trust-paths"):
        one = hostile()
        replace_by_link(
            one.out / name,
            one.mine / "secret" if absolute else os.path.join("..", "mine", "secret"),
        )
        code = one.check(*one.commands("--trust-paths")[what], capsys=capsys)
        if name.startswith(".pseudocal") and what not in ("evaluate", "apply", "job"):
            assert code == 4


@pytest.mark.parametrize("inside", [False, True], ids=["the folder", "inside"])
def test_workers_write_no_parts_through_a_link(inside, hostile, capsys):
    """It is found before any worker starts."""
    one = hostile()
    if inside:
        (one.out / "parts").mkdir()
        (one.out / "parts" / "parts.json").symlink_to(one.mine / "secret" / "parts.json")
    else:
        (one.out / "parts").symlink_to(one.mine / "secret")
    assert one.check(*one.commands()["calibrate"], "--ray", "local", capsys=capsys) == 4


@pytest.mark.parametrize("name", [".pseudocal-decided", ".pseudocal-staged"])
def test_a_folder_that_was_not_made_here_is_neither_moved_nor_swept(name, hostile, capsys):
    one = hostile()
    for marked in (False, True):
        (one.out / name).mkdir(exist_ok=True)
        replace_by_link(one.out / name / "logits.npy", one.mine / "logits.npy")
        (one.out / name / ("notes.txt" if not marked else ".pseudocal")).write_text("theirs")
        for words in (
            ("report", one.out),
            ("label", one.out),
            ("refine", one.out, one.run.labels),
        ):
            assert one.check(*words, capsys=capsys) == 4
        assert (one.out / name / "notes.txt").read_text() == "theirs"


def test_a_page_replaces_a_link_and_not_what_it_points_to(hostile, capsys):
    one = hostile()
    replace_by_link(one.out / "report.html", one.mine / "report.html")
    assert one.check("report", one.out, capsys=capsys) == 0
    assert not (one.out / "report.html").is_symlink()


def test_a_link_at_the_temporary_name_of_a_page_is_not_written_through(hostile, capsys):
    one = hostile()
    (one.out / f".report.{os.getpid()}.aside.html").symlink_to(one.mine / "secret" / "id_rsa")
    assert one.check("report", one.out, capsys=capsys) == 0


@pytest.mark.parametrize(
    "what",
    ["pipe", *(pytest.param(one, marks=pytest.mark.slow) for one in ("folder", "loop", "nothing"))],
)
def test_something_else_in_the_place_of_a_file(what, hostile, capsys):
    for name in (
        "to-label.csv",
        "calibration.json",
        "evidence.npz",
        "job.toml",
        "logits.npy",
        "probe.npy",
        "report.json",
        "run.json",
        "second-0.npy",
        "threshold.json",
    ):
        one = hostile()
        path = one.out / name
        path.unlink(missing_ok=True)
        if what == "folder":
            path.mkdir()
        elif what == "pipe":
            os.mkfifo(path)
        elif what == "loop":
            path.symlink_to(name)
        for command, words in one.commands("--trust-paths").items():
            if command != "calibrate":
                one.check(*words, capsys=capsys)


def test_the_table_of_the_page_says_which_command_opens_which_file(hostile):
    """The files of OUT.

    Parts of a run on Ray and staging folders are opened only where there are any.
    """
    opened: dict[str, set[str]] = {}
    commands = hostile("segmentation").commands()
    cases = [("segmentation", what, 0) for what in commands if what != "watch"]
    for what in ("threshold", "threshold by labels", "label for it"):  # of classifiers alone
        cases.remove(("segmentation", what, 0))
        cases += [("segmentation", what, 3), ("images", what, 0)]
    # a segmentation model is not watched, nor is a baseline of 16 images
    cases += [("segmentation", "watch", 3), ("images", "watch", 3)]
    for kind, what, code in cases:
        one = hostile(kind)
        words = [str(word) for word in one.commands("--trust-paths")[what]]
        with watching() as touched:
            assert main(words) == code
        for event, path in touched:
            if event == "open" and os.path.dirname(path) == os.path.realpath(one.out):
                opened.setdefault(os.path.basename(path), set()).add(words[0])
    opened = {name: commands for name, commands in opened.items() if ".aside" not in name}
    listed: dict[str, set[str]] = {}
    for row in table():
        if row.what.startswith("OUT:"):
            for name in row.names:
                listed.setdefault(name, set()).update(row.commands)
    elsewhere = {"parts/", ".pseudocal-staged", ".pseudocal-decided"}
    elsewhere |= {
        "second-1.npy",
        "classes.txt",
    }  # there is one second model, and no class has a name
    assert opened == {
        name: commands for name, commands in listed.items() if commands and name not in elsewhere
    }


def test_a_folder_that_the_user_names_may_be_a_link(hostile, capsys):
    one = hostile()
    (one.place / "linked").symlink_to(one.out)
    assert one.check("report", one.place / "linked", capsys=capsys) == 0


# names of code, and paths


CODE_NAMES = (
    "evil:main",
    "surrogate:evil:main",
    "zero-shot:evil:main",
    "surrogate:",
    "surrogate:efficientnet-lite0",
)


@pytest.mark.parametrize("name", CODE_NAMES)
@pytest.mark.parametrize("kind", ["images", "texts"])
def test_a_record_names_no_code(name, kind, hostile, capsys):
    """Not even with all consent that there is."""
    for more in ((), ("--trust-model", "--trust-paths")):
        one = hostile(kind)
        change_model(one.out / "run.json", name)
        code = one.check("refine", ".", one.run.labels, *more, capsys=capsys)
        if name.startswith(("surrogate", "zero-shot")):
            assert code == 3
        one.check("label", ".", *(word for word in more if word == "--trust-paths"), capsys=capsys)


@pytest.mark.parametrize("name", CODE_NAMES[:3])
@pytest.mark.parametrize("setting", ["model", "second_opinion"])
def test_a_job_file_names_code_only_with_consent(name, setting, hostile, capsys):
    one = hostile()
    change_job(one.out / "job.toml", {setting: name})
    assert one.check("calibrate", "--job", "job.toml", capsys=capsys) in (3, 5)
    assert one.check("calibrate", "--job", one.out / "job.toml", "-o", one.out, capsys=capsys) in (
        3,
        5,
    )
    # consent is no place to look: the current folder, which may be theirs, is not searched
    assert one.check("calibrate", "--job", "job.toml", "--trust-model", capsys=capsys) == 3


@pytest.mark.parametrize(
    "start", [("-m", "pseudocal"), ("-c", "import pseudocal_command as p; exit(p.command())")]
)
def test_the_current_folder_is_not_searched_in_a_process_of_its_own(start, hostile):
    """`python -m` and `python -c` put it on the import path.

    A module that is needed later could be there as well.
    """
    one = hostile()
    change_job(one.out / "job.toml", {"model": "evil:main"})
    change_model(one.out / "run.json", "surrogate:evil:main")
    for name in ("onnxruntime", "jinja2") if "-m" in start else ():
        (one.out / f"{name}.py").write_text(CANARY)
    source = str(Path(sys.modules["pseudocal"].__file__ or "").parents[1])
    for words in (
        ["report", "."],
        ["refine", ".", one.run.labels],
        ["calibrate", "--job", "job.toml", "--trust-model"],
    ):
        command = [sys.executable, *start, *map(str, words)]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": source}, capture_output=True, text=True
        )
        assert done.returncode in (0, 3), done.stderr
        assert not one.canary.exists()


def test_code_of_a_job_file_runs_with_consent_from_the_import_path(hostile, capsys, monkeypatch):
    """Else the tests above would show nothing."""
    one = hostile()
    np.save(one.out / "rows.npy", np.random.default_rng(0).normal(size=(20, CLASSES)))
    job = {"model": "evil:main", "data": str(one.out / "rows.npy")}
    text = (
        "".join(f"{key} = {json.dumps(value)}\n" for key, value in job.items())
        + f'out = "{one.out}"\n'
    )
    (one.out / "job.toml").write_text(text)
    assert one.check("calibrate", "--job", "job.toml", capsys=capsys) == 3
    monkeypatch.syspath_prepend(str(one.place))
    assert main(["calibrate", "--job", "job.toml", "--trust-model", "-q"]) == 0
    assert one.canary.exists()


def test_code_that_the_user_types_needs_no_flag(hostile, capsys, monkeypatch):
    one = hostile()
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert (
        main(
            [
                "calibrate",
                "evil:main",
                str(one.source / "x.npy"),
                "-o",
                str(one.place / "new"),
                "-q",
            ]
        )
        == 0
    )
    assert one.canary.exists()


PATHS = ("mine/photo.png", "mine/secret/id_rsa", "mine/logits.npy", "nowhere.png")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_paths_that_leave_the_folder_are_not_read(path, absolute, hostile, capsys):
    one = hostile()
    named = str(one.place / path) if absolute else os.path.join("..", path)
    names = json.loads((one.out / "run.json").read_text())["names"]
    for change, model in (
        ({"image_files": [named] * len(names)}, "evil:main"),
        ({"source": named}, "evil:main"),
        ({}, named),
    ):
        shutil.copy(one.run.out / "run.json", one.out)
        change_json(one.out / "run.json", {"image_files": None, "source": None} | change)
        change_model(one.out / "run.json", model)
        assert one.check("label", one.out, capsys=capsys) == 3
        assert one.check("refine", one.out, one.run.labels, capsys=capsys) == 3


@pytest.mark.parametrize("kind", ["images", "segmentation", "texts", "outputs"])
def test_a_folder_of_somebody_else_needs_consent_to_its_paths_and_ones_own_none(
    kind, hostile, runs, capsys, monkeypatch
):
    own = os.environ["XDG_STATE_HOME"]
    one = hostile(kind)
    for words in (("label", one.out, "-n", 10), ("refine", one.out, one.run.labels)):
        assert main([str(word) for word in words]) == 3
        said = capsys.readouterr().err
        assert said.endswith("; pass --trust-paths\n")
        assert main([*map(str, words), "--trust-paths"]) == 0, capsys.readouterr().err
        monkeypatch.setenv("XDG_STATE_HOME", own)
        assert main([str(word) for word in words]) == 0
        monkeypatch.setenv("XDG_STATE_HOME", str(one.place / "state"))
        capsys.readouterr()


def test_without_a_place_for_the_key_a_folder_is_calibrated_all_the_same(
    hostile, capsys, monkeypatch
):
    one = hostile()
    monkeypatch.setenv(
        "XDG_STATE_HOME", str(one.source / "x.npy")
    )  # a file: no folder can be made below it
    new = one.place / "new"
    assert (
        main(["calibrate", "rows_model:predict", str(one.source / "x.npy"), "-o", str(new), "-q"])
        == 0
    )
    assert json.loads((new / "run.json").read_text())["signature"] is None
    assert main(["label", str(new), "-n", "10"]) == 3
    assert main(["label", str(new), "-n", "10", "--trust-paths"]) == 0


def test_names_of_model_files_in_a_report_delete_nothing(hostile, capsys):
    one = hostile()
    for path in (str(one.mine / "secret"), "../../mine/secret", "../../mine/photo.png"):
        report = json.loads((one.out / "report.json").read_text())
        report["model"]["files"] = [path]
        (one.out / "report.json").write_text(json.dumps(report))
        one.check("refine", one.out, one.run.labels, "--trust-paths", capsys=capsys)


# job files


JOBS: tuple[dict[str, Any], ...] = (
    {"batch_size": -3},
    {"batch_size": 2**63},
    {"workers": -1},
    {"workers": 10**9},
    {"max_samples": -5},
    {"max_bad": 7.0},
    {"table": "../../mine/x"},
    {"table": "exe"},
    {"method": {"tolerance": 1e-300}},
    {"method": {"lam": 1e300}},
    {"method": {"memory": -1}},
    {"method": {"pixels_per_image": 2**62}},
    {"method": "x"},
    {"device": "../../mine"},
    {"preprocessing": {"size": "x"}},
    {"preprocessing": {"size": [1, 2, 3]}},
    {"preprocessing": {"size": [2**40, 2]}},
    {"preprocessing": {"mean": [[1]]}},
    {"preprocessing": {"mean": "x"}},
    {"preprocessing": {"layout": 3}},
    {"preprocessing": {"interpolation": [1]}},
    {"preprocessing": {"crop_pct": "x"}},
    {"preprocessing": {"__class__": "x"}},
    {"second_preprocessing": {"std": [0]}},
    {"second_opinion": 3},
    {"second_opinion": [""]},
    {"data": ""},
    {"data": "a\0b"},
    {"model": "a\0b"},
    {"model": ""},
    {"ground_truth": "../mine/secret/id_rsa\0"},
    {"labels": "../mine/secret/id_rsa\0"},
    {"logits_tensor": 3},
    {"output_type": "x"},
    {"sampling": "x"},
    {"classes": ["a"]},
    {"ray": "attacker.example:10001"},
    {"out": "../mine/secret"},
    {"out": "../new"},
    {"trust": True},
    {"job_file": "x"},
)


@pytest.mark.parametrize("change", JOBS, ids=str)
def test_a_job_file_with_odd_values(change, hostile, capsys):
    one = hostile()
    change_job(one.out / "job.toml", change)
    one.check("calibrate", "--job", one.out / "job.toml", capsys=capsys)
    one.check("calibrate", "--job", one.out / "job.toml", "-o", one.out, capsys=capsys)


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": -3},
        {"workers": -1},
        {"max_samples": -5},
        {"table": "../../x"},
        {"max_bad": -1.0},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused_in_python_too(change, hostile):
    from pseudocal import InputError
    from pseudocal.app import calibrate

    one = hostile()
    with pytest.raises(InputError, match=f"{next(iter(change))} is |is not csv"):
        calibrate("rows_model:predict", one.source / "x.npy", one.place / "new", **change)


def test_a_tolerance_that_is_never_reached_uses_all_data(hostile, capsys):
    one = hostile()
    np.save(one.source / "x.npy", np.random.default_rng(1).normal(size=(400, CLASSES)))
    words = (
        "calibrate",
        "rows_model:predict",
        one.source / "x.npy",
        "-o",
        one.out,
        "--tolerance",
        "1e-300",
    )
    assert one.check(*words, capsys=capsys) == 0


# records and arrays


DEEP: Any = 1
for _ in range(400):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    -5,
    "x",
    "../mine/secret/id_rsa",
    None,
    DEEP,
    "a\0\ud800",
    1e308,
    [],
    [2**62] * 3,
    {"a": 1},
)


@pytest.mark.parametrize(
    "key",
    *(
        [
            "names",
            "image_files",
            "data",
            "source",
            "column",
            "classes",
            "ground_truth",
            "model",
            "logits_tensor",
            "output_type",
            "binary",
            "table",
            "saved",
            "second_models",
            "probe",
            "not_mixed",
            "method",
            "settings",
            "versions",
            "timing",
            "signature",
        ],
    ),
)
@pytest.mark.parametrize("kind", [pytest.param("images", marks=pytest.mark.slow), "texts"])
def test_a_record_with_odd_values(kind, key, hostile, capsys):
    one = hostile(kind)
    for value in VALUES:
        shutil.copy(one.run.out / "run.json", one.out)
        change_json(one.out / "run.json", {key: value})
        if isinstance(value, str):  # trusted, it would be read
            one.check("label", one.out, "-n", 10, capsys=capsys)
            one.check("refine", one.out, one.run.labels, capsys=capsys)
        else:
            one.check("label", one.out, "-n", 10, "--trust-paths", capsys=capsys)
            one.check("refine", one.out, one.run.labels, "--trust-paths", capsys=capsys)


@pytest.mark.parametrize("kind", ["texts", "outputs", "arrays"])
def test_data_that_are_too_short(kind, hostile, capsys):
    one = hostile("texts" if kind == "arrays" else kind)
    if kind == "arrays":
        np.save(one.out / "data.npy", np.zeros((2, 3)))
        change_json(one.out / "run.json", {"source": str(one.out / "data.npy"), "column": None})
    else:
        (one.out / "data.csv").write_text("text\nonly one\n")
        change_json(one.out / "run.json", {"source": str(one.out / "data.csv")})
    assert one.check("label", one.out, "-n", 10, "--trust-paths", capsys=capsys) == 3
    one.check("refine", one.out, one.run.labels, "--trust-paths", capsys=capsys)


@pytest.mark.parametrize("labels", [-5, 7, 2**62])
def test_ground_truth_that_is_no_class(labels, hostile, capsys):
    one = hostile()
    names = json.loads((one.out / "run.json").read_text())["names"]
    change_json(one.out / "run.json", {"ground_truth": [labels] * len(names)})
    assert one.check("label", one.out, "--trust-paths", capsys=capsys) == 3
    assert one.check("refine", one.out, one.run.labels, "--trust-paths", capsys=capsys) == 3


@pytest.mark.parametrize(
    "name", ["calibration.json", "report.json", "run.json", "job.toml", "threshold.json"]
)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        b"x = " + b"[" * 9000,
    ],
    ids=lambda content: repr(content[:8]),
)
def test_records_that_are_something_else(name, content, hostile, capsys):
    one = hostile()
    (one.out / name).write_bytes(content)
    for what, words in one.commands("--trust-paths").items():
        if what != "calibrate":
            one.check(*words, capsys=capsys)


def npy(array: Any, **more: Any) -> Callable[[Path], None]:
    return lambda path: np.save(path, array, **more)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def huge(path: Path) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (2**50, 2**10)}
        )


class Acting:
    """A pickle that writes the canary."""

    def __reduce__(self) -> Any:
        return (open, (os.environ["PSEUDOCAL_CANARY"], "w"))


def pickled(path: Path) -> None:
    np.save(path, np.array([Acting(), None], dtype=object), allow_pickle=True)
    Path(os.environ["PSEUDOCAL_CANARY"]).unlink(missing_ok=True)


ARRAYS: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "empty": lambda path: path.unlink() or path.touch(),
    "huge": huge,
    "pickled": pickled,
    "texts": npy(np.array([["a", "b", "c"]] * 16)),
    "complex": npy(np.ones((16, 3), dtype=complex)),
    "NaN": npy(np.full((16, 3), np.nan)),
    "infinite": npy(np.full((16, 3), np.inf)),
    "times": npy(np.ones((16, 3), dtype="timedelta64[s]")),
    "one class": npy(np.ones((16, 1))),
    "no class": npy(np.ones((16, 0))),
    "flat": npy(np.ones(16)),
    "deep": npy(np.ones((16, 3, 2, 2))),
    "other shape": npy(np.ones((2, 1, 5), dtype=np.float32)),
    "integers": npy(np.ones((16, 3), dtype=np.int64)),
    "records": npy(np.zeros(16, dtype=[("a", "f8")])),
}


@pytest.mark.parametrize("damage", ARRAYS)
@pytest.mark.parametrize("name", ["logits.npy", "probe.npy", "second-0.npy"])
def test_arrays_that_are_something_else(name, damage, hostile, capsys):
    one = hostile()
    ARRAYS[damage](one.out / name)
    for what in ("label", "refine", "evaluate"):
        one.check(*one.commands("--trust-paths")[what], capsys=capsys)


PIXELS = ("image", "at", "y", "x", "ground_truth", "pixels", "fractions", "before", "map_0")
ODD: tuple[Callable[[Any], Any], ...] = (
    lambda column: np.full_like(column, -5),
    lambda column: np.full_like(column, np.nan if column.dtype.kind == "f" else 2**60),
    lambda column: column[:1],
    lambda column: np.full(column.shape, "x"),
    lambda column: column[..., None, None],
)


@pytest.mark.parametrize("name", PIXELS)
def test_pixels_that_are_something_else(name, hostile, capsys):
    one = hostile("segmentation")
    for odd in ODD:
        with np.load(one.run.out / "pixels.npz") as file:
            columns = dict(file)
        np.savez(one.out / "pixels.npz", **(columns | {name: odd(columns[name])}))
        for what in ("label", "refine"):
            one.check(*one.commands("--trust-paths")[what], capsys=capsys)
    for damage in ("cut", "empty", "pickled"):
        shutil.copy(one.run.out / "pixels.npz", one.out)
        if damage == "pickled":
            np.savez(
                one.out / "pixels.npz",
                **(columns | {name: np.array([Acting()], dtype=object)}),
                allow_pickle=True,
            )
        else:
            ARRAYS[damage](one.out / "pixels.npz")
        for what in ("label", "refine"):
            one.check(*one.commands("--trust-paths")[what], capsys=capsys)


@pytest.mark.parametrize("damage", ["cut", "empty", "huge"])
def test_evidence_that_is_no_archive(damage, hostile, capsys):
    one = hostile()
    ARRAYS[damage](one.out / "evidence.npz")
    for what in ("label", "refine"):
        one.check(*one.commands("--trust-paths")[what], capsys=capsys)


@pytest.mark.parametrize("kind", ["images", "segmentation"])
def test_evidence_that_is_something_else(kind, hostile, capsys):
    one = hostile(kind)
    with np.load(one.run.out / "evidence.npz") as file:
        columns = dict(file)
    of_surrogate = {"surrogate_mixup", "surrogate_rows", "surrogate_samples"}
    assert set(columns) - {"opinions"} - of_surrogate == {"counts", "ceilings", "mixup", "real"}
    damaged = [{name: odd(column)} for name, column in columns.items() for odd in ODD]
    damaged += [{name: np.array([Acting()], dtype=object)} for name in columns]
    damaged += [{"further": np.zeros(3)}]
    damaged += [{name: without_groups(columns[name])} for name in ("mixup", "real")]
    for change in damaged:
        np.savez(one.out / "evidence.npz", **(columns | change), allow_pickle=True)
        assert one.check(*one.commands("--trust-paths")["refine"], capsys=capsys) == 3, change
    for name in set(columns) - {"opinions"}:
        others = {key: value for key, value in columns.items() if key != name}
        np.savez(one.out / "evidence.npz", **others)
        assert one.check(*one.commands("--trust-paths")["refine"], capsys=capsys) == 3, name


def without_groups(rows: Any) -> Any:
    """Rows with a group where they have none, and the other way round."""
    names = [name for name in rows.dtype.names if name != "group"]
    if "group" in rows.dtype.names:
        return np.lib.recfunctions.repack_fields(rows[names])
    group = np.zeros(len(rows), dtype=np.int64)
    return np.lib.recfunctions.append_fields(rows, "group", group, usemask=False)


def change_model(path: Path, name: str) -> None:
    """Let a record name another model."""
    model = json.loads(path.read_text())["model"]
    change_json(path, {"model": model | {"name": name}})


def change_json(path: Path, change: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def change_job(path: Path, change: dict[str, Any]) -> None:
    """Change settings of a job file; those of a table one by one."""
    job = tomllib.loads(path.read_text())
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(job.get(key), dict)
        job[key] = job[key] | value if both else value
    plain = [f"{key} = {toml(value)}" for key, value in job.items() if not isinstance(value, dict)]
    tables = [(key, value) for key, value in job.items() if isinstance(value, dict)]
    for key, settings in tables:
        plain += [f"[{key}]", *(f"{name} = {toml(value)}" for name, value in settings.items())]
    path.write_text("\n".join(plain) + "\n")


def toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)
