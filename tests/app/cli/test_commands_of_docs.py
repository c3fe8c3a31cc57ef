"""Every command in the README and the docs runs here, or is marked as needing more than a test has."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from pseudocal import softmax
from pseudocal.app.cli import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# what a command begins with: what it needs, and which test does the same on a small scale
ELSEWHERE = {
    "pip install": "installs this package: .ci/run",
    "make ": "sets up and tests this project: .ci/run",
    "python benchmarks/": "minutes: each page says what came out",
    "pseudocal demo": "minutes: tests/app/cli/test_demo.py",
    "pseudocal train emoji": "minutes: tests/app/cli/test_train.py",
    "pseudocal bench run": "minutes or the paper's data: tests/lab/bench/test_command.py",
    "pseudocal bench table": "the results of a run: tests/lab/bench/test_command.py",
    "pseudocal bench figures": "the results of a run: tests/lab/bench/test_command.py",
    "pseudocal bench export": "the results of a run: tests/lab/bench/test_bank.py",
    "pseudocal bench compare": "saved features: tests/lab/bench/test_saved_outputs.py",
    "pseudocal calibrate models:first": "the networks of the demo: tests/app/cli/test_demo.py",
    "pseudocal calibrate sentiment/": "a Hugging Face model: tests/app/cli/test_texts.py",
    "pseudocal calibrate birds.onnx": "a CLIP: tests/app/cli/test_zero_shot.py",
    "pseudocal calibrate segformer/": "a Hugging Face model: tests/app/cli/test_segment.py",
    "pseudocal calibrate model.pt2": "a torch.export file: tests/app/cli/test_calibrate.py",
    "pseudocal calibrate forest.skops": "a model of tables: tests/app/cli/test_tables_page.py",
    "pseudocal calibrate histogram.skops": "a model of tables: tests/app/cli/test_tables_page.py",
    "pseudocal calibrate mlp.skops": "a model of tables: tests/app/cli/test_tables_page.py",
    "pseudocal calibrate xgboost.ubj": "a model of tables: tests/app/cli/test_tables_page.py",
    "pseudocal calibrate lightgbm.txt": "a model of tables: tests/app/cli/test_tables_page.py",
    "pseudocal calibrate pipeline.skops": "a model of tables: tests/app/cli/test_tables_page.py",
    "pseudocal label pipeline/": "a model of tables: tests/app/cli/test_tables_page.py",
    "pseudocal refine pipeline/": "a model of tables: tests/app/cli/test_tables_page.py",
    "pseudocal label calibrated/ --for-threshold": "more inputs: tests/app/cli/test_thresholds.py",
    "pseudocal threshold calibrated/": "more inputs: tests/app/cli/test_thresholds.py",
    "pseudocal calibrate model.onnx s3://": "a cluster and a bucket: tests/app/cli/test_ray.py",
    "pseudocal calibrate model.onnx shards/": "a cluster: tests/app/cli/test_ray.py",
}


def blocks_of(page: Path) -> list[list[str]]:
    """The commands of each console block of a page, without comments."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:console|sh|bash|shell)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [
        [re.sub(r"\s+#.*", "", line[2:]) for line in block.splitlines() if line[:2] == "$ "]
        for block in blocks
    ]


def commands_in(page: Path) -> list[str]:
    """All commands of ours on a page, also those in the text that name more than a command."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    inline = re.findall(r"`(pseudocal [a-z]+ [^`|]+)`", text)
    shown = [line for block in blocks_of(page) for line in block]
    return [
        line.partition(" && ")[0] for line in (*shown, *inline) if line.startswith("pseudocal ")
    ]


def needs(command: str) -> str | None:
    return next((why for start, why in ELSEWHERE.items() if command.startswith(start)), None)


def flags_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and the flags among them."""
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    return command, [
        word.partition("=")[0] for word in words if re.fullmatch(r"-[a-z]|--[a-z-]+(=.*)?", word)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_and_flag_is_known(page: Path) -> None:
    for line in commands_in(page):
        words = shlex.split(line)[1:]
        command, given = flags_of(words)
        assert not hasattr(command, "commands"), line
        known = {
            name
            for parameter in command.params
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        assert set(given) <= known | {"--help", "--debug"}, line


def test_no_excuse_is_out_of_date() -> None:
    shown = [line for page in PAGES for block in blocks_of(page) for line in block]
    assert len(shown) > 40
    assert [start for start in ELSEWHERE if not any(line.startswith(start) for line in shown)] == []
    for why in ELSEWHERE.values():
        named = why.partition(": ")[2]
        assert "/" not in named or (ROOT / named).exists(), why


def save_graph(
    path: Path, nodes: list[Any], weights: dict[str, Any], shapes: tuple[list[Any], list[Any]]
) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    image, logits = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(("image", "logits"), shapes, strict=True)
    )
    constants = [
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(*node) for node in nodes], "net", [image], [logits], constants
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the commands of the docs name."""
    pytest.importorskip("onnxruntime")
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    nodes: list[Any] = [("GlobalAveragePool", ["image"], ["mean"]), ("Flatten", ["mean"], ["flat"])]
    for name in ("model", "other"):
        weights = {"weight": 9 * rng.normal(size=(3, 5)), "bias": rng.normal(size=5)}
        gemm = ("Gemm", ["flat", "weight", "bias"], ["logits"])
        save_graph(Path(f"{name}.onnx"), [*nodes, gemm], weights, (["n", 3, 16, 16], ["n", 5]))
    weights = {"weight": 6 * np.eye(3)[:, :, None, None]}
    conv: list[Any] = [("Conv", ["image", "weight"], ["logits"])]
    save_graph(Path("segmenter.onnx"), conv, weights, (["n", 3, "h", "w"], ["n", 3, "h", "w"]))
    watched = [("reference", 120, (16, 16, 3))]
    watched += [(day, 40, (16, 16, 3)) for day in ("monday", "tuesday", "wednesday", "day2")]
    for folder, n, size in (("images", 60, (20, 24, 3)), ("frames", 4, (32, 64, 3)), *watched):
        Path(folder).mkdir()
        for i in range(n):
            pixels = rng.uniform(0, 255, size=3) + rng.normal(0, 20, size=size)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(f"{folder}/{i:02}.png")
    shutil.copytree("images", "unlabelled/images")
    Path("service").mkdir()
    np.save("frames.npy", rng.uniform(size=(4, 3, 16, 32)).astype(np.float32))
    np.save("masks.npy", rng.integers(0, 3, size=(4, 16, 32)))
    logits = 3 * rng.normal(size=(100, 3))
    np.save("logits.npy", logits)
    np.save("labels.npy", rng.integers(0, 3, 100))
    for name in ("probabilities.csv", "new.csv"):
        write(Path(name), [["bad", "fair", "good"], *softmax(logits).tolist()])
    write(Path("reviews.csv"), [["review"], *([f"It was {i}."] for i in range(100))])
    return tmp_path


def write(path: Path, rows: list[Any]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def give_labels(folder: Path) -> None:
    """Fill in the table of a folder, as a person would who sees the first class everywhere."""
    if (folder / "labelling").exists():  # of a monitor
        folder = folder / "labelling"
    with (folder / "to-label.csv").open(newline="", encoding="utf-8") as file:
        names = [row["file"] for row in csv.DictReader(file)]
    write(Path("labels.csv"), [["file", "label"], *([name, "0"] for name in names)])


def make_ready(words: list[str], pseudocal: Any) -> None:
    """Make what a command takes that another one writes."""
    name = words[0]
    folders = [
        Path(word)
        for word in words[1:]
        if word.endswith("/") and name in ("label", "refine", "report")
    ]
    named = ("calibration.json", "job.toml")
    folders += [Path(word).parent for word in words[1:] if word.endswith(named)]
    for folder in folders:
        if folder.name == "probabilities":
            done = pseudocal(
                "label",
                "probabilities.csv",
                "--output-type",
                "probabilities",
                "-o",
                folder,
                "-n",
                40,
            )
            assert done.code == 0, done.err
            give_labels(folder)
            assert pseudocal("refine", folder, "labels.csv").code == 0
        elif not folder.exists():
            assert pseudocal("calibrate", "model.onnx", "images", "-o", folder).code == 0
    if name == "refine":
        assert pseudocal("label", folders[0], "-n", 20).code == 0
        give_labels(folders[0])


@pytest.mark.parametrize(
    "page",
    [
        page if page.name == "README.md" else pytest.param(page, marks=pytest.mark.slow)
        for page in PAGES
    ],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_commands_of_a_page_run(page: Path, workplace: Path, pseudocal: Any) -> None:
    for line in dict.fromkeys(
        line for block in blocks_of(page) for line in block if needs(line) is None
    ):
        command, _, then = line.partition(" && ")
        words = shlex.split(command)
        assert words.pop(0) == "pseudocal", (
            f"expected a command of ours, or one that is marked, got {line}"
        )
        make_ready(words, pseudocal)
        done = pseudocal(*words)
        assert done.code in (0, 10, 11, 12) if "--exit-code" in words else done.code == 0, (
            line,
            done.err,
        )
        assert done.out, line
        assert then in ("", "cp out/model.onnx service/")
