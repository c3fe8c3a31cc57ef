"""`pseudocal demo`.

Its table says what its reports say, and it says plainly when a calibrator made things worse.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from pseudocal import Calibration, TemperatureScaling
from pseudocal.app.demo import (
    AGREEMENT,
    NONE,
    ORACLE,
    PSEUDOCAL,
    Demo,
    Shown,
    _above,
    compare,
    lesson_lines,
    lines_of,
    run_demo,
)
from pseudocal.calibrators import Reason, ReasonCode, oracle, uncalibrated
from pseudocal.calibrators.trust import AccuracyEstimate, Trust

ROOT = Path(__file__).resolve().parents[3]


def check_agreement(lines: list[str], shown: list[Shown]) -> None:
    """Every number of the table against those that the reports are drawn from."""
    parts = "\n".join(lines).split("\n\n")
    assert len(parts) == len(shown) + 4
    labelled = [line.split()[0] for line in parts[-2].splitlines() if " labels: T = " in line]
    assert labelled == ["0", "50", "100"]
    assert (shown[-1].folder / "label.html").exists()
    for part, each in zip(parts[1:], shown, strict=False):
        rows = {line[2:26].strip(): line[26:].split() for line in part.splitlines()[2:]}
        assert list(rows) == [NONE, "TempScal", PSEUDOCAL, AGREEMENT, ORACLE]
        for name, folder in ((PSEUDOCAL, each.folder / "mixup"), (AGREEMENT, each.folder)):
            report = json.loads((folder / "report.json").read_text())
            measured = {row["metric"]: row for row in report["metrics"]}
            assert rows[name][:2] == [
                f"{report['calibration']['refused'] or report['calibration']['temperature']:.2f}",
                f"{measured['ece']['after']['value']:.1%}",
            ]
            assert rows[NONE][1] == f"{measured['ece']['before']['value']:.1%}"
            assert " ".join(rows[name]).endswith(report["trust"]["verdict"])
            html = (folder / "report.html").read_text()
            assert f"{report['confidence']['mean_after']:.1%}" in html
            assert "data:image/jpeg" in html  # thumbnails
        estimated_accuracy = report["trust"]["estimated_accuracy"]
        said = f"accuracy {measured['accuracy']['before']['value']:.1%}, estimate {estimated_accuracy['value']:.0%}"
        assert part.startswith(f"{each.method}: {said}")
    assert all(str(each.folder / "report.html") in parts[-1] for each in shown)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The demo on a few digits, with networks that hardly learnt anything."""
    demo = Demo(
        tmp_path_factory.mktemp("demo") / "out", "digits", "optdigits", "fonts", backbone="digits", rows=150,
        iterations=20, quiet=True,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PSEUDOCAL_CACHE", str(tmp_path_factory.getbasetemp() / "train-cache"))
        yield demo, run_demo(demo)


def test_the_table_and_the_reports_agree(small):
    demo, shown = small
    check_agreement(lines_of(demo, shown), shown)
    assert "<svg" in (demo.out / "reliability.svg").read_text()


def test_a_second_run_goes_on_from_what_is_there(small):
    demo, shown = small
    for once, again in zip(shown, run_demo(demo), strict=True):
        np.testing.assert_array_equal(once.logits, again.logits)
        assert [c.temperature for c in once.calibrations.values()] == [
            c.temperature for c in again.calibrations.values()
        ]


def test_models_above_one_backbone_are_those_that_were_trained(small):
    from pseudocal.lab.adapt import load_network
    from pseudocal.lab.adapt.backbones import Backbone, Remembered
    from pseudocal.predictors import as_predictor

    network = load_network(small[0].out / "models" / "mcc-0")
    remembered = Remembered(cast(Backbone, network.backbone))
    x = np.random.default_rng(0).integers(0, 255, size=(10, 1, 16, 16)).astype(np.float32)
    for rows in (x[:6], x[2:], np.concatenate([x, x])):
        np.testing.assert_allclose(
            _above(network, remembered)(rows), as_predictor(network)(rows), atol=1e-4
        )
    assert remembered.computed == 10


def test_what_was_made_worse_is_said(known):
    logits, labels = known(1500, 6, temperature=1.0)
    trust = Trust(
        "do not apply",
        (Reason(ReasonCode.MIXUP_AGREES, {"mixup": 2.0}),),
        AccuracyEstimate(0.5, 0.4, 0.6),
        {},
        0.1,
    )
    calibrations = {
        NONE: uncalibrated(),
        PSEUDOCAL: Calibration("pseudocal", TemperatureScaling(2.0), trust=trust),
        ORACLE: oracle(logits, labels),
    }
    shown = Shown("mcc", logits, labels, calibrations, Path("out"))
    lines = compare(shown)
    assert [line.word for line in lines] == ["", "WORSE", "no clear change"]
    worse, verdict = lesson_lines({"mcc": lines})
    assert worse.startswith("mcc: PseudoCal made it worse, from ")
    assert verdict.endswith(
        "labels: do not apply. The temperature from mixup samples points the same way (T = 2)."
    )


def test_without_its_packages_it_names_the_extra(pseudocal, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    done = pseudocal("demo", "-o", tmp_path / "out")
    assert (done.code, "pip install 'pseudocal[demo]'" in done.err) == (5, True)


@pytest.mark.slow
def test_the_whole_demo_shows_a_verdict_of_each_kind(pseudocal, tmp_path):
    done = pseudocal("demo", "-o", tmp_path / "out", "--quiet")
    assert done.code == 0, done.err
    verdicts = {}
    for folder in ("source-only/mixup", "source-only", "mcc"):
        report = json.loads((tmp_path / "out" / folder / "report.json").read_text())
        measured = next(row for row in report["metrics"] if row["metric"] == "ece")
        verdicts[folder] = (report["trust"]["verdict"], np.sign(measured["change"]["value"]))
    assert verdicts == {
        "source-only/mixup": ("do not apply", 1),
        "source-only": ("caution", 0),
        "mcc": ("caution", -1),
    }
    assert "source-only: PseudoCal made it worse" in done.out
    shown = [
        Shown(m, np.empty(0), np.empty(0, np.int64), {}, tmp_path / "out" / m)
        for m in ("source-only", "mcc")
    ]
    check_agreement(done.out.rstrip("\n").splitlines(), shown)
    page = (ROOT / "docs" / "howto" / "images.md").read_text(encoding="utf-8")
    (on_page,) = re.findall(r"^\$ pseudocal demo\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert words(done.out)[: len(words(on_page))] == words(on_page)


def words(printed: str) -> list[list[str]]:
    """Each line without its numbers, whose last digits depend on the machine."""
    return [re.findall(r"[A-Za-z]{2,}", line) for line in printed.splitlines()]
