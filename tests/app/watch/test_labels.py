"""A person's labels in a monitor: random inputs since the change, a measurement, a new baseline."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pseudocal.app import label_monitor, refine_monitor, watch
from pseudocal.app.cli import main
from pseudocal.app.inputs.tables import plain_cell
from pseudocal.app.monitor_labels import _advice
from pseudocal.arrays import InputError
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.confidence import confidences
from pseudocal.monitor import anytime_interval
from pseudocal.scaling import TemperatureScaling

from .conftest import FIRST, World, make_world
from .test_watch import history

DAYS = {"2026-11-16": "mon", "2026-11-17": "tue", "2026-11-18": "wed", "2026-11-19": "thu"}
NOISE = {"mon": 0.3, "tue": 0.3, "wed": 1.5, "thu": 1.5}


@pytest.fixture
def alarmed(world: World) -> World:
    for time, name in DAYS.items():
        path = world.batch(name, noise=NOISE[name])
        done = watch(world.monitor, path, baseline=world.out, time=time)
    assert done.alarm
    return world


def asked(world: World) -> list[dict[str, str]]:
    with (world.monitor / "labelling" / "to-label.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_random_inputs_of_the_batches_since_the_change_are_asked_about(alarmed: World):
    page = label_monitor(alarmed.monitor, 40)
    assert page == alarmed.monitor / "labelling" / "label.html"
    first = asked(alarmed)
    assert len(first) == 40
    assert {row["batch"] for row in first} == {"2026-11-18", "2026-11-19"}
    label_monitor(alarmed.monitor, 60)
    assert [row["file"] for row in asked(alarmed)][:40] == [row["file"] for row in first]
    x = np.load(alarmed.folder / f"{DAYS[first[0]['batch']]}.npy")[int(first[0]["input"])]
    cells = [float(plain_cell(first[0][str(i)])) for i in range(6)]
    assert cells == pytest.approx(x.tolist(), rel=1e-3)  # four digits are shown


def test_batches_that_come_while_a_person_labels_do_not_change_the_page(alarmed: World):
    label_monitor(alarmed.monitor, 40)
    before = asked(alarmed)
    watch(alarmed.monitor, alarmed.batch("fri", noise=1.5), time="2026-11-20")
    label_monitor(alarmed.monitor, 40)
    assert asked(alarmed) == before


def test_a_page_that_was_interrupted_is_written_again(alarmed: World, monkeypatch):
    from pseudocal.app import monitor_labels

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    label_monitor(alarmed.monitor, 40)
    before = asked(alarmed)
    shutil.rmtree(alarmed.monitor / "labelling")
    with monkeypatch.context() as patch:
        patch.setattr(monitor_labels, "save_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            label_monitor(alarmed.monitor, 40)
    label_monitor(alarmed.monitor, 40)
    assert asked(alarmed) == before


def test_labels_measure_recalibrate_and_start_a_new_baseline(alarmed: World, give_labels):
    label_monitor(alarmed.monitor, 60)
    labels = give_labels(alarmed, DAYS)
    before = watch(alarmed.monitor, alarmed.folder / "mon.npy").state
    done = refine_monitor(alarmed.monitor, labels)
    event = done.event
    right = [
        np.load(alarmed.truth(DAYS[row["batch"]]))[int(row["input"])]
        == (
            np.load(alarmed.folder / f"{DAYS[row['batch']]}.npy")[int(row["input"])] @ FIRST
        ).argmax()
        for row in asked(alarmed)
    ]
    interval = anytime_interval(sum(right), 60)
    assert event.labels == 60
    assert event.accuracy.value == pytest.approx(interval.value)
    assert (event.accuracy.low, event.accuracy.high) == pytest.approx((interval.low, interval.high))
    both = np.concatenate([np.load(alarmed.folder / f"{name}.npy") for name in ("wed", "thu")])
    confidence = confidences(both @ FIRST, before.temperature).mean()
    assert event.gap.value == pytest.approx(confidence - interval.value, abs=1e-6)
    assert event.gap.high == pytest.approx(confidence - interval.low, abs=1e-6)
    assert event.temperature > event.before == before.temperature
    assert event.retrain  # half of the predictions are wrong
    assert done.state.temperature == event.temperature
    assert done.state.change is None
    assert (alarmed.monitor / "labelling" / "model.onnx").exists()
    page = (alarmed.monitor / "index.html").read_text()
    assert "retrain the model" in page
    assert "measured on labels" in page
    later = watch(alarmed.monitor, alarmed.batch("fri", noise=1.5), time="2026-11-20")
    assert not later.alarm
    assert later.batches[0].in_use == event.temperature
    worse = watch(alarmed.monitor, alarmed.batch("sat", n=400, noise=20.0), time="2026-11-21")
    assert worse.alarm  # worse than the new baseline


def test_a_model_to_retrain_ends_with_20_until_a_new_baseline(
    alarmed: World, give_labels, capsys, tmp_path
):
    def watched(*words: object) -> int:
        capsys.readouterr()
        return main(["watch", str(alarmed.monitor), *map(str, words), "--exit-code"])

    label_monitor(alarmed.monitor, 60)
    labels = give_labels(alarmed, DAYS)
    capsys.readouterr()
    assert main(["refine", str(alarmed.monitor), str(labels)]) == 0
    said = capsys.readouterr().out
    assert (
        "retrain the model.\nUntil then, deploy the calibrated labelling/model.onnx instead" in said
    )
    assert "Recommendation" not in said
    assert watched(alarmed.batch("fri", noise=1.5), "--time", "2026-11-20") == 20
    said = capsys.readouterr().out
    assert "Retrain the model." in said
    assert "Next: retrain the model" in said
    assert watched(alarmed.batch("sat", noise=1.5), "--json") == 20
    said = json.loads(capsys.readouterr().out)
    assert (said["alarm"], said["retrain"]) == (False, True)
    assert (
        'pseudocal_retrain{model="model.onnx"} 1' in (alarmed.monitor / "metrics.prom").read_text()
    )
    (tmp_path / "retrained").mkdir()
    retrained = make_world(tmp_path / "retrained", n=900)
    assert watched(alarmed.batch("sun"), "--baseline", retrained.out) == 0


def test_the_same_labels_count_once(alarmed: World, give_labels):
    label_monitor(alarmed.monitor, 30)
    labels = give_labels(alarmed, DAYS)
    first = refine_monitor(alarmed.monitor, labels).event
    lines = history(alarmed.monitor)
    again = refine_monitor(alarmed.monitor, labels)
    assert history(alarmed.monitor) == lines
    assert again.event.accuracy == first.accuracy


def test_labels_that_leave_inputs_out_are_refused(alarmed: World, give_labels):
    label_monitor(alarmed.monitor, 30)
    labels = give_labels(alarmed, DAYS)
    lines = labels.read_text().splitlines()
    labels.write_text("\n".join([lines[0], *lines[3:]]) + "\n")
    with pytest.raises(InputError, match="cannot tell"):
        refine_monitor(alarmed.monitor, labels)
    labels.write_text("\n".join(lines[:21]) + "\n")  # the first twenty are a random sample too
    assert refine_monitor(alarmed.monitor, labels).event.labels == 20


def test_labels_without_an_alarm_measure_and_leave_the_alarm_as_it_is(world: World, give_labels):
    days = {"2026-11-16": "mon", "2026-11-17": "tue"}
    for time, name in days.items():
        watch(world.monitor, world.batch(name), baseline=world.out, time=time)
    label_monitor(world.monitor, 50)
    before = watch(world.monitor, world.folder / "mon.npy").state
    done = refine_monitor(world.monitor, give_labels(world, days))
    assert not done.event.rearmed
    assert not done.event.retrain
    assert done.state.monitor == before.monitor
    assert done.state.batches == 2


def test_only_the_verdict_apply_recommends_to_deploy(world: World, give_labels, capsys):
    """And `refine` says how to label more, in the monitor and not in its run."""
    days = {"2026-11-16": "mon"}
    watch(world.monitor, world.batch("mon"), baseline=world.out, time="2026-11-16")
    label_monitor(world.monitor, 10)
    assert main(["refine", str(world.monitor), str(give_labels(world, days))]) == 0
    said = capsys.readouterr().out
    event = json.loads((world.monitor / "state.json").read_text())["labelled"]
    assert event["verdict"] == "caution"
    assert (world.monitor / "labelling" / "unconfirmed-model.onnx").exists()
    assert "Deploy" not in said
    assert "calibrated model (unconfirmed): " in said
    more = int(re.search(r"Recommendation: Label (\d+) more inputs", said)[1])
    assert f"Next: pseudocal label {world.monitor} -n {10 + more}\n" in said
    assert (
        f"<p>Recommendation: {event['advice']}.</p>" in (world.monitor / "index.html").read_text()
    )


def test_a_temperature_in_use_that_labels_reject_is_taken_back(alarmed: World, give_labels):
    label_monitor(alarmed.monitor, 60)
    done = refine_monitor(alarmed.monitor, give_labels(alarmed, DAYS))
    assert _advice(done.result, done.event.temperature) == ""  # it is deployed already
    rejected = Calibration("none", TemperatureScaling(1.0))
    keep = replace(done.result.report.recommendation, code="keep")
    kept = replace(
        done.result,
        calibration=rejected,
        report=replace(done.result.report, recommendation=keep),
    )
    assert _advice(kept, 1.5) == "Deploy the original model"
    assert _advice(kept, 1.0) == "Keep the model you have"


def test_labels_of_an_older_monitor_are_read(alarmed: World, give_labels):
    """They have no advice."""
    label_monitor(alarmed.monitor, 30)
    refine_monitor(alarmed.monitor, give_labels(alarmed, DAYS))
    for name in ("state.json", "drawn.jsonl"):
        path = alarmed.monitor / name
        text, count = re.subn(r',\s*"advice": ?"[^"]*"', "", path.read_text())
        assert count
        path.write_text(text)
    later = watch(alarmed.monitor, alarmed.batch("fri", noise=1.5), time="2026-11-20")
    assert later.state.labelled.advice == ""
    page = (alarmed.monitor / "index.html").read_text()
    assert "Measured on 30 labels" in page
    assert "Recommendation" not in page


def test_labels_need_batches_and_a_page(world: World):
    watch(world.monitor, baseline=world.out)
    with pytest.raises(InputError, match="no batches"):
        label_monitor(world.monitor, 50)
    watch(world.monitor, world.batch("mon"))
    with pytest.raises(InputError, match="no inputs to label yet"):
        refine_monitor(world.monitor, world.folder / "labels.csv")


def test_label_and_refine_take_monitors(alarmed: World, give_labels, capsys):
    assert main(["label", str(alarmed.monitor), "-n", "30"]) == 0
    assert "30 to label" in capsys.readouterr().out
    labels = give_labels(alarmed, DAYS)
    assert main(["refine", str(alarmed.monitor), str(labels), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["labels"] == 30
    assert main(["refine", str(alarmed.monitor), str(labels)]) == 0
    said = capsys.readouterr().out
    assert "Measured on 30 labels" in said
    assert "These 95% intervals stay valid if you add labels. The report also uses" in said
    report = (alarmed.monitor / "labelling" / "report.html").read_text()
    assert "30 of 300 inputs were labelled, drawn at random." in report


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("label",), ("--for-threshold", "5%")),
        (("label",), ("--inputs", "x.csv")),
        (("label",), ("--field", "x")),
        (("label",), ("-o", "elsewhere")),
        (("refine", "labels.csv"), ("--max-error", "5%")),
        (("refine", "labels.csv"), ("--sampling", "stratified")),
        (("refine", "labels.csv"), ("--classes", "names.txt")),
        (("refine", "labels.csv"), ("-o", "elsewhere")),
        (("refine", "labels.csv"), ("--output-type", "logits")),
    ],
)
def test_options_that_a_monitor_does_not_have_are_refused(world: World, capsys, command, option):
    watch(world.monitor, baseline=world.out)
    name = {"-o": "--out"}.get(option[0], option[0])
    first, *rest = command
    assert main([first, str(world.monitor), *rest, *option]) == 3
    said = capsys.readouterr().err
    assert f"expected no other settings with a monitor, got {name}; " in said
    assert f"use it with the run {world.monitor}/labelling" in said


def test_synonyms_reach_the_page_of_a_monitor(alarmed: World):
    names = alarmed.folder / "names.txt"
    names.write_text("maillot\tswimsuit\ttank suit\ntench\nheron\nowl\n")
    assert main(["label", str(alarmed.monitor), "-n", "20", "--classes", str(names)]) == 0
    page = (alarmed.monitor / "labelling" / "label.html").read_text()
    assert '"synonyms": [["swimsuit", "tank suit"], [], [], []]' in page


def test_images_are_shown_to_the_person_who_labels(tmp_path: Path):
    """And on the page of the monitor."""
    pytest.importorskip("onnxruntime")
    from PIL import Image

    from pseudocal.app import calibrate

    from ..cli.test_hostile_folders import save_onnx

    rng = np.random.default_rng(0)
    model = save_onnx(tmp_path / "model.onnx", maps=False)
    other = save_onnx(tmp_path / "other.onnx", maps=False, scale=(19, 20, 21))
    for folder, n, spread in (("baseline", 160, 90), ("mon", 120, 90), ("tue", 120, 4)):
        (tmp_path / folder).mkdir()
        for i in range(n):
            colour = np.clip(128 + rng.normal(0, spread, size=3), 0, 255)
            noisy = np.clip(colour + rng.normal(0, 3, size=(8, 8, 3)), 0, 255)
            Image.fromarray(noisy.astype(np.uint8)).save(tmp_path / folder / f"{i:03}.png")
    calibrate(model, tmp_path / "baseline", tmp_path / "out", second_opinion=str(other))
    monitor = tmp_path / "monitor"
    watch(monitor, tmp_path / "mon", baseline=tmp_path / "out", time="2026-11-16")
    done = watch(monitor, tmp_path / "tue", time="2026-11-17")
    assert done.alarm
    assert all(one.image.startswith("data:image/jpeg") for one in done.state.change.typical)
    assert "data:image/jpeg" in (monitor / "index.html").read_text()
    page = label_monitor(monitor, 20)
    assert page.read_text().count("data:image/png") == 20
    with (page.parent / "to-label.csv").open(newline="") as file:
        assert {row["file"][:10] for row in csv.DictReader(file)} == {"2026-11-17"}
