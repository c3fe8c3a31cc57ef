"""`pseudocal bench`, as one types it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import pseudocal.lab.bench
from pseudocal.app.cli import main
from pseudocal.lab.bench import PLANS, Store
from pseudocal.lab.bench.figures import draw_figures
from pseudocal.lab.data.cache import cached, digest


def bench(*words):
    return main(["bench", *map(str, words)])


@pytest.mark.parametrize("words", [("--ray",), ("--ray", "local")])
def test_a_run_on_ray_leaves_the_same_files(
    words, ray, tiny_file, done, cache, tmp_path, content_of
):
    assert bench("run", tiny_file, "--out", tmp_path, *words, "--workers", 2, "--quiet") == 0
    assert content_of(tmp_path) == content_of(done.out)


@pytest.mark.parametrize("words", [(), ("run",), ("compare",)])
def test_help_names_the_exit_code_of_failed_calibrators(words, capsys):
    assert bench(*words, "--help") == 0
    assert "6 calibrators failed, 130" in " ".join(capsys.readouterr().out.split())


def test_tables_and_figures_of_a_run(tiny_file, done, tmp_path, capsys):
    assert bench("run", tiny_file, "--out", done.out, "--workers", 1) == 0
    said = capsys.readouterr()
    assert said.out == f"{done.out}: 3 of 3 tasks of tiny are done\n"
    assert bench("table", tiny_file, "--out", done.out) == 0
    said = capsys.readouterr().out
    assert (
        said.count("| No calibration |") == 3 + 3
    )  # three metrics, and PseudoCal against it by each
    assert (
        bench(
            "table",
            tiny_file,
            "--out",
            done.out,
            "--metric",
            "nll",
            "--format",
            "csv",
            "--by",
            "task",
        )
        == 0
    )
    assert '"optdigits->fonts","nll",' in capsys.readouterr().out
    assert bench("table", tiny_file, "--out", done.out, "--metric", "miou") == 3
    assert (
        "expected a suite with scores of miou, got tiny, which has none" in capsys.readouterr().err
    )
    assert bench("table", tiny_file, "--out", done.out, "--metric", "correspondence") == 0
    said = capsys.readouterr().out
    assert said.startswith("| Correspondence, mean over targets, % |")
    assert "| PseudoCal |" in said
    assert "| No calibration |" not in said
    assert bench("figures", tiny_file, "--out", done.out, "--to", tmp_path) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {
        "tiny-reliability-mcc.svg",
        "tiny-pseudo-mcc.svg",
        "tiny-training.svg",
        "tiny-lambda.svg",
    } <= names
    assert set(capsys.readouterr().out.split()) == {str(tmp_path / name) for name in names}


def test_figures_of_some_tasks(tiny_file, done, tmp_path, capsys):
    words = ("figures", tiny_file, "--out", done.out, "--to", tmp_path, "--pair", "optdigits:fonts")
    assert bench(*words, "--method", "bnm") == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert (
        "tiny-optdigits-fonts-bnm-reliability-bnm.svg" in names
    )  # beside those of other pairs and methods
    assert not any("mcc" in name for name in names)
    assert bench(*words, "--method", "cdan") == 3
    assert "expected a method among source-only, mcc, bnm, got 'cdan'" in capsys.readouterr().err
    assert bench("figures", tiny_file, "--out", done.out, "--pair", "a->b") == 3
    assert "expected a pair among optdigits->fonts, got 'a->b'" in capsys.readouterr().err


def test_some_calibrators_in_one_diagram(tiny_file, done, tmp_path, capsys):
    words = ("figures", tiny_file, "--out", done.out, "--to", tmp_path, "--method", "mcc")
    assert bench(*words, "--together", "none,transcal,pseudocal,oracle") == 0
    drawn = (tmp_path / "tiny-mcc-reliability-mcc.svg").read_text()
    assert all(f"<!-- {title}, ECE" in drawn for title in ("TransCal", "PseudoCal", "Oracle"))
    assert "<!-- VectorScal" not in drawn
    both = (tmp_path / "tiny-mcc-pseudo-mcc.svg").read_text()
    assert both.count("<!-- real target, ECE") == both.count("<!-- perfect") == 1
    assert bench(*words, "--together", "none,magic") == 3
    assert "expected calibrators among none, vectorscal" in capsys.readouterr().err


def test_a_figure_is_the_same_every_time(tiny, done, tmp_path):
    suite = replace(tiny, tasks=tiny.tasks[:1], calibrators=("none",))
    one, two = (draw_figures(suite, done, tmp_path / folder)[0] for folder in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_a_failure_is_told_and_counted(tiny_file, cache, tmp_path, capsys):
    path = tmp_path / "broken.toml"
    text = tiny_file.read_text().partition("[[tasks]]\n")[2].partition("[[tasks]]")[0]
    text = text.replace('["source-only", "mcc"]', '"mcc"').replace(
        "iterations = 20", "iterations = 5"
    )
    path.write_text(
        f'calibrators = ["none", "oracle"]\n[[tasks]]\n{text}\noptions = {{ weight = inf }}\n'
    )
    assert bench("run", path, "--out", tmp_path / "out", "--workers", 1) == 3
    said = capsys.readouterr()
    assert (
        "digits optdigits->fonts mcc seed 0: FloatingPointError: expected a finite loss" in said.err
    )
    assert "0 of 1 tasks of broken are done" in said.out
    assert bench("table", path, "--out", tmp_path / "out") == 3
    assert "expected scores of broken" in capsys.readouterr().err


def test_a_quick_run_is_pointed_to(done, tiny, tmp_path, capsys):
    Store(tmp_path).save_suite(replace(tiny, name="emoji-quick"))
    assert bench("table", "emoji", "--out", tmp_path) == 3
    assert "(emoji-quick), got 'emoji': did you mean emoji-quick?" in capsys.readouterr().err
    for words in (["emoji", "--quick"], ["emoji-quick"]):
        assert bench("table", *words, "--out", tmp_path) == 3
        assert (
            "expected scores of emoji-quick" in capsys.readouterr().err
        )  # found, though not run to the end


def test_few_temperatures_are_drawn_large():
    from pseudocal.lab.bench.figures import _temperature_figure, pyplot

    plt, sizes = pyplot(), []
    for n in (3, 100):
        figure = _temperature_figure(plt, {"pseudocal": (np.full(n, 1.5), np.full(n, 1.2))})
        sizes.append(figure.axes[0].lines[1].get_markersize())
        plt.close(figure)
    assert sizes[0] >= 2 * sizes[1]


def test_data_that_are_built_are_told_of(tiny_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PSEUDOCAL_CACHE", str(tmp_path))
    arrays = {"a": np.arange(3)}

    def fake(suite, *rest, **settings):
        cached(suite.name, lambda: arrays, expected=digest(arrays))
        return []

    monkeypatch.setattr(pseudocal.lab.bench, "run", fake)
    for expected in (
        f"building tiny on first use, to be kept in {tmp_path}\n",
        "",
    ):  # then it is there
        assert bench("run", tiny_file, "--out", tmp_path / "out", "--workers", 1) == 0
        assert capsys.readouterr().err == expected
    monkeypatch.setenv("PSEUDOCAL_CACHE", str(tmp_path / "other"))
    assert bench("run", tiny_file, "--out", tmp_path / "out", "--workers", 1, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_figures_of_a_suite_without_scores_are_missed(tiny, tmp_path, capsys):
    Store(tmp_path).save_suite(tiny)
    for command in ("table", "figures"):
        assert bench(command, "tiny", "--out", tmp_path) == 3
        assert (
            f"expected scores of tiny in {tmp_path}, got none: run it first"
            in capsys.readouterr().err
        )


def test_the_list_names_every_suite(capsys):
    assert bench("list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PLANS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "emojis"], "expected a suite among"),
        (["run", "nowhere.toml"], "expected a suite file, got nowhere.toml"),
        (["run", "office-home"], "expected root, the folder of office-home"),
        (
            ["run", "digits", "--ray", "127.0.0.1:1"],
            "expected a Ray cluster at 127.0.0.1:1, got no reply",
        ),
        (["table", "emoji"], "expected a suite that was run into"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, words, message):
    assert bench(*words, "--out", tmp_path) == 3
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_no_room_for_what_is_computed(workers, tiny_file, cache, disk, capsys):
    out = disk("96k")
    assert bench("run", tiny_file, "--out", out, "--workers", workers, "--quiet") == 4
    said = capsys.readouterr().err
    assert said.startswith(f"pseudocal: expected room for {out}")
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_written(tiny_file, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert bench("run", tiny_file, "--out", tmp_path / "file" / "out") == 4
    said = capsys.readouterr().err
    assert (
        said
        == f"pseudocal: expected an output that can be written, got {tmp_path / 'file' / 'out'}: Not a directory\n"
    )


def test_the_list_of_suites_needs_no_torch():
    code = """
import sys
sys.modules.update(dict.fromkeys(("matplotlib", "pyarrow", "sklearn", "threadpoolctl", "torch")))
from pseudocal.app.cli import main
sys.exit(main(["bench", "list"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "visda                     1 pair, 6 methods" in done.stdout
