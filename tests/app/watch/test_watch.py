"""A monitor counts batches once, says what changed, and keeps its folder whole."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal.app import calibrate, threshold, watch, watching
from pseudocal.app.cli import main
from pseudocal.app.job import Note
from pseudocal.app.monitor_folder import KEPT
from pseudocal.app.periods import times_in
from pseudocal.arrays import InputError
from pseudocal.files import OutputError
from pseudocal.monitor import Monitor, Reference, Signals

from .conftest import COLUMNS, FIRST, World, day, make_world, save_linear

ROOT = Path(__file__).parents[3]
DAYS = ("2026-11-16", "2026-11-17", "2026-11-18", "2026-11-19")


def history(monitor: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (monitor / "history.jsonl").read_text().splitlines()]


def test_quiet_days_raise_no_alarm_and_bad_ones_do(world: World):
    watch(world.monitor, baseline=world.out, time=DAYS[0])
    for name, time in (("mon", DAYS[1]), ("tue", DAYS[2])):
        done = watch(world.monitor, world.batch(name), time=time)
        assert not done.alarm
    assert done.enough
    bad = watch(world.monitor, world.batch("wed", noise=3.0), time=DAYS[3])
    assert bad.alarm
    assert bad.batches[0].raised
    assert bad.state.change is not None
    assert bad.state.change.since == DAYS[3]  # not the day before
    assert bad.state.change.raised == DAYS[3]
    assert bad.batches[0].agreement < 0.5 < done.batches[0].agreement
    assert bad.batches[0].accuracy.value < bad.state.baseline.accuracy.value - 0.2
    assert bad.batches[0].gap.value == pytest.approx(
        bad.batches[0].confidence - bad.batches[0].accuracy.value
    )
    assert len(bad.state.change.typical) == 12
    assert [event["kind"] for event in history(world.monitor)] == ["baseline", *3 * ["batch"]]


def test_later_batches_keep_the_alarm_and_add_to_what_changed(world: World):
    watch(world.monitor, world.batch("mon", noise=3.0), baseline=world.out, time=DAYS[0])
    first = watch(world.monitor, world.batch("tue", noise=3.0), time=DAYS[1]).state.change
    later = watch(world.monitor, world.batch("wed", noise=0.2), time=DAYS[2])
    assert later.alarm
    assert not later.batches[0].raised
    assert later.state.change.typical == first.typical
    assert later.state.change.classes != first.classes


def test_typical_inputs_of_changed_classes_come_before_all_others(monkeypatch):
    """However high the signals of other classes: two residuals may add up to almost 2."""

    def signals(predicted: list[int], disagreement: list[float], uncertainty: list[float]):
        values = {"disagreement": np.array(disagreement), "uncertainty": np.array(uncertainty)}
        return Signals(np.array(predicted), 2, values)

    baseline = signals([0, 1] * 200, [0.0] * 400, [0.5, 0.0] * 200)
    batch = signals([1, 0, 0], [1.0, 0.0, 1.0], [0.9, 0.0, 0.0])
    shown = []

    def shown_inputs(_, rows):
        shown.extend(rows.tolist())
        raise InputError("the data are gone")

    monkeypatch.setattr(watching, "signals_of", lambda _: batch)
    monkeypatch.setattr(watching, "shown_inputs", shown_inputs)
    assert watching._typical(None, Monitor(Reference.of(baseline)), [0], ["a", "b"]) == ()
    assert shown == [2, 1, 0]


def test_a_batch_is_counted_once_whatever_it_is_called(world: World, tmp_path):
    path = world.batch("mon")
    watch(world.monitor, path, baseline=world.out, time=DAYS[0])
    before = (world.monitor / "history.jsonl").read_bytes()
    shutil.copy(path, tmp_path / "copy.npy")
    for again in (path, tmp_path / "copy.npy"):
        done = watch(world.monitor, again, time=DAYS[1])
        assert done.repeated == (DAYS[0],)
        assert done.batches == ()
    assert (world.monitor / "history.jsonl").read_bytes() == before


def test_the_baseline_may_be_named_each_time(world: World):
    for name in ("mon", "tue"):
        watch(world.monitor, world.batch(name), baseline=world.out)
    assert [event["kind"] for event in history(world.monitor)] == ["baseline", "batch", "batch"]


def test_an_earlier_baseline_with_data_is_not_ignored_silently(world: World, tmp_path, capsys):
    watch(world.monitor, world.batch("monday"), baseline=world.out)
    (tmp_path / "later").mkdir()
    later = make_world(tmp_path / "later", n=900)
    watch(world.monitor, baseline=later.out)
    command = ["watch", str(world.monitor), str(world.batch("tuesday")), "--baseline"]
    said = "was set as the baseline before: nothing changed."
    assert main([*command, str(world.out)]) == 0
    assert f"{world.out} {said}" in capsys.readouterr().err
    assert main([*command, str(later.out)]) == 0
    assert said not in capsys.readouterr().err


def test_a_repeated_baseline_without_data_says_that_nothing_changed(world: World, capsys):
    start = ["watch", str(world.monitor), "--baseline", str(world.out)]
    said = f"{world.out} was set as the baseline before: nothing changed. To restart the monitor, "
    assert main(start) == 0
    assert said not in capsys.readouterr().err
    watch(world.monitor, world.batch("mon", noise=3.0))
    watch(world.monitor, world.batch("tue", noise=3.0))
    before = history(world.monitor)
    assert main(start) == 0
    done = capsys.readouterr()
    assert said in done.err
    assert "Alarm." in done.out
    assert history(world.monitor) == before
    assert main([*start, str(world.batch("wed"))]) == 0
    assert said not in capsys.readouterr().err


def test_another_baseline_begins_anew(world: World, tmp_path):
    watch(world.monitor, world.batch("mon", noise=3.0), baseline=world.out, time=DAYS[0])
    assert watch(world.monitor, world.batch("tue", noise=3.0), time=DAYS[1]).alarm
    other = make_world_in(tmp_path / "retrained")
    done = watch(world.monitor, baseline=other.out, time=DAYS[2])
    assert not done.alarm
    assert done.state.period == 1
    assert not done.enough
    assert watch(world.monitor, world.batch("wed"), time=DAYS[3]).state.batches == 1


def make_world_in(folder: Path) -> World:
    folder.mkdir()
    return make_world(folder, n=900)


def test_a_changed_model_is_refused(world: World):
    watch(world.monitor, baseline=world.out)
    save_linear(world.folder / "other.onnx", np.ones((6, 4)))
    with pytest.raises(
        InputError, match="has changed since the baseline: put the original model b"
    ):
        watch(world.monitor, world.batch("mon"))
    (world.folder / "other.onnx").unlink()
    with pytest.raises(InputError, match="is not there any more"):
        watch(world.monitor, world.batch("mon"))


def test_a_page_of_the_user_is_not_replaced(world: World):
    world.monitor.mkdir()
    (world.monitor / "index.html").write_text("mine")
    with pytest.raises(OutputError, match="choose another folder"):
        watch(world.monitor, baseline=world.out)
    assert (world.monitor / "index.html").read_text() == "mine"


def test_images_that_cannot_be_read_are_named(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    from PIL import Image

    from ..cli.test_hostile_folders import save_onnx

    rng = np.random.default_rng(0)
    model = save_onnx(tmp_path / "model.onnx", maps=False)
    for folder, bad in (("baseline", 0), ("mon", 2), ("tue", 60)):
        (tmp_path / folder).mkdir()
        for i in range(120):
            image = np.clip(128 + rng.normal(0, 90, size=(8, 8, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(image).save(tmp_path / folder / f"{i:03}.png")
        for i in range(bad):
            (tmp_path / folder / f"{i:03}.png").write_text("torn")
    calibrate(model, tmp_path / "baseline", tmp_path / "out")
    command = ["watch", str(tmp_path / "monitor"), "--baseline", str(tmp_path / "out")]
    assert main([*command, str(tmp_path / "mon")]) == 0
    assert "2 inputs could not be read: 000.png, 001.png\n" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "tue")]) == 3
    said = capsys.readouterr().err
    assert "expected at most 10% of 120 inputs to be unreadable" in said
    assert said.rstrip().endswith(f"; remove such files from {tmp_path / 'tue'}")
    assert "--max-bad" not in said


def test_a_folder_of_others_is_no_place_for_a_monitor(world: World):
    images = world.folder / "images"
    images.mkdir()
    (images / "a.png").write_text("an image")
    with pytest.raises(OutputError, match=r"is no monitor, but has files \(a\.png\): choose"):
        watch(images, baseline=world.out)
    assert [path.name for path in images.iterdir()] == ["a.png"]


def test_a_calibrated_copy_in_the_place_of_the_model_is_refused(world: World, capsys):
    """Or its logits would be divided by T twice."""
    save_linear(world.folder / "model.onnx", FIRST / 2)
    batch = world.batch("mon")
    assert main(["watch", str(world.monitor), str(batch), "--baseline", str(world.out)]) == 3
    said = capsys.readouterr().err
    assert "has changed since it was calibrated" in said
    assert "deploy the calibrated copy under another path" in said
    assert not (world.monitor / "state.json").exists()
    save_linear(world.folder / "model.onnx", FIRST)
    assert watch(world.monitor, batch, baseline=world.out).batches


def test_the_batch_goes_through_the_preprocessing_and_the_second_model_of_the_run(world: World):
    done = watch(world.monitor, world.batch("mon"), baseline=world.out)
    x = np.load(world.folder / "mon.npy").astype(np.float64)
    import onnxruntime

    logits = [
        onnxruntime.InferenceSession(str(world.folder / name)).run(
            None, {"x": x.astype(np.float32)}
        )[0]
        for name in ("model.onnx", "other.onnx")
    ]
    agree = (logits[0].argmax(axis=1) == logits[1].argmax(axis=1)).mean()
    assert done.batches[0].agreement == pytest.approx(agree)
    counts = np.bincount(logits[0].argmax(axis=1), minlength=4)
    assert done.batches[0].predicted == {str(i): counts[i] for i in range(4) if counts[i]}


def test_one_model_watches_the_uncertainty_and_says_what_it_misses(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    world = make_world(tmp_path, second=False)
    words = ["watch", world.monitor, world.batch("mon"), "--baseline", world.out]
    assert main([str(word) for word in words]) == 0
    assert (
        "only the uncertainty is watched and fully confident errors are missed"
        in capsys.readouterr().out
    )
    assert history(world.monitor)[1]["agreement"] is None


def test_a_temperature_of_1_that_stands_for_none_is_no_temperature_of_the_batch(world: World):
    """If no temperature is clearly better, a calibration applies none; the batch asks for none."""
    from pseudocal.app.run import Run
    from pseudocal.app.watching import _temperature_of

    unclear = Run.open(world.out).calibration()
    assert unclear.temperature == 1.0
    assert unclear.settings["estimator"] == "none"
    assert _temperature_of(unclear) is None
    clear = replace(unclear, settings={**unclear.settings, "estimator": "agreement"})
    assert _temperature_of(clear).value == 1.0


@pytest.mark.parametrize("second", [None, "logits", "classes"])
def test_saved_outputs_are_watched_too(tmp_path, second):
    """Batches come without a second model, so that of the baseline does not count."""
    from pseudocal.app import collect_outputs

    rng = np.random.default_rng(0)
    for name, scale in (("baseline", 5), ("mon", 5), ("tue", 1)):
        labels = rng.integers(0, 5, 400)
        np.save(tmp_path / f"{name}.npy", scale * np.eye(5)[labels] + rng.normal(size=(400, 5)))
    if second is not None:
        other = np.load(tmp_path / "baseline.npy")
        np.save(tmp_path / "second.npy", other if second == "logits" else other.argmax(axis=1))
    collect_outputs(
        tmp_path / "baseline.npy",
        tmp_path / "out",
        second_opinion=None if second is None else tmp_path / "second.npy",
    )
    monitor = tmp_path / "monitor"
    assert not watch(monitor, tmp_path / "mon.npy", baseline=tmp_path / "out").alarm
    done = watch(monitor, tmp_path / "tue.npy")
    assert done.alarm
    assert done.batches[0].accuracy is None
    assert "could not be estimated" in (monitor / "index.html").read_text()
    np.save(tmp_path / "truth.npy", rng.integers(0, 5, 400))
    done = watch(monitor, tmp_path / "tue.npy", ground_truth=tmp_path / "truth.npy")
    assert len(done.truths) == 1


@pytest.mark.parametrize("n", [1, 3])
def test_a_tiny_batch_is_counted(world: World, n):
    done = watch(world.monitor, world.batch("mon", n=n), baseline=world.out)
    assert done.batches[0].inputs == n
    assert not done.enough


# tables that are cut by time


def write_table(path: Path, days: int, per_day: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    lines = [",".join([*COLUMNS, "when"])]
    for i in rng.permutation(days * per_day):  # not in the order of time
        cells = day(1, 0.3, int(i))[0][0]
        hour = 24 * (i % per_day) / per_day
        when = f"2026-11-{10 + i // per_day}T{int(hour):02}:30:00"
        lines.append(",".join([*(f"{cell:.4f}" for cell in cells), when]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_is_cut_into_days_and_the_last_one_waits_until_it_is_over(world: World, tmp_path):
    table = write_table(tmp_path / "log.csv", 3, 60)
    watch(world.monitor, baseline=world.out)
    cut: dict[str, Any] = {"every": "1d", "column": "when"}
    done = watch(world.monitor, table, time="2026-11-12T20:00", **cut)
    assert [(batch.time, batch.inputs) for batch in done.batches] == [
        ("2026-11-10", 60),
        ("2026-11-11", 60),
    ]
    assert done.waiting == 60
    again = watch(world.monitor, table, time="2026-11-13", **cut)
    assert [batch.time for batch in again.batches] == ["2026-11-12"]
    assert again.repeated == ("2026-11-10", "2026-11-11")
    assert again.waiting == 0


def test_models_are_named_once_and_each_period_has_a_line(world: World, tmp_path):
    table = write_table(tmp_path / "log.csv", 3, 60)
    watch(world.monitor, baseline=world.out)
    cut: dict[str, Any] = {"every": "1d", "column": "when", "time": "2026-11-13"}
    steps = watching.watch_steps(world.monitor, str(table), **cut)
    notes = [step.text for step in steps if isinstance(step, Note)]
    assert len(set(notes)) == len(notes)
    assert [note[:21] for note in notes[-3:]] == [f"2026-11-1{i}, 60 inputs" for i in range(3)]


def test_rows_of_a_period_count_in_the_order_of_time(world: World, tmp_path, monkeypatch):
    seen = []
    order_of = watching._order_of
    monkeypatch.setattr(
        watching,
        "_order_of",
        lambda run, part: seen.append((run, order_of(run, part))) or seen[-1][1],
    )
    table = write_table(tmp_path / "log.csv", 1, 40)
    cut: dict[str, Any] = {"every": "1d", "column": "when"}
    watch(world.monitor, table, baseline=world.out, time="2026-12-01", **cut)
    run, order = seen[0]
    times = [line.rpartition(",")[2] for line in table.read_text().splitlines()[1:]]
    came = [times[int(run.record.names[row])] for row in order]
    assert came == sorted(came)
    assert times != sorted(times)


def test_times_are_dates_texts_or_unix_seconds(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    moments = np.array(["2026-11-17T08:00", "2026-11-17T09:30"], dtype="datetime64[ms]")
    table = pyarrow.table({"when": moments, "unix": moments.astype("datetime64[s]").astype(int)})
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    (tmp_path / "log.csv").write_text("when\n2026-11-17T08:00\n2026-11-17T10:30+01:00\n")
    found = [times_in(tmp_path / "log.parquet", column) for column in ("when", "unix")]
    found.append(times_in(tmp_path / "log.csv", "when"))
    for times in found:
        assert times.tolist() == moments.astype("datetime64[us]").tolist()
    (tmp_path / "log.csv").write_text("when\n2026-11-17\nsoon\n")
    with pytest.raises(InputError, match="row 1"):
        times_in(tmp_path / "log.csv", "when")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": "1d"}, "pass both"),
        ({"every": "1 day", "column": "when"}, "is not a period like"),
        ({"every": "1d", "column": "then"}, "no column 'then'"),
        ({"time": "yesterday"}, "is not a time like"),
    ],
)
def test_wrong_times_are_refused(world: World, tmp_path, given, message):
    table = write_table(tmp_path / "log.csv", 1, 10)
    watch(world.monitor, baseline=world.out)
    with pytest.raises(InputError, match=message):
        watch(world.monitor, table, **given)


# the folder


def test_ground_truth_is_drawn_and_changes_nothing(world: World):
    watch(world.monitor, world.batch("mon"), baseline=world.out, time=DAYS[0])
    watch(world.monitor, world.batch("tue", noise=1.0), time=DAYS[1])
    before = history(world.monitor)
    state = json.loads((world.monitor / "state.json").read_text())
    assert "true accuracy" not in (world.monitor / "index.html").read_text()
    done = watch(world.monitor, world.folder / "tue.npy", ground_truth=world.truth("tue"))
    after = json.loads((world.monitor / "state.json").read_text())
    assert history(world.monitor)[:-1] == before
    assert {key for key in state if state[key] != after[key]} == {"last", "history_bytes"}
    x = np.load(world.folder / "tue.npy")
    right = ((x @ FIRST).argmax(axis=1) == np.load(world.truth("tue"))).mean()
    assert done.truths[0].accuracy == pytest.approx(right)
    assert "true accuracy" in (world.monitor / "index.html").read_text()
    again = watch(world.monitor, world.folder / "tue.npy", ground_truth=world.truth("tue"))
    assert again.truths == ()
    assert len(history(world.monitor)) == len(before) + 1


def test_ground_truth_with_a_new_batch_gives_the_estimate_of_a_batch_without(
    world: World, tmp_path
):
    shutil.copytree(world.out, tmp_path / "out2")
    path = world.batch("mon")
    watch(world.monitor, path, baseline=world.out, time=DAYS[0])
    with_truth = world._replace(monitor=tmp_path / "with-truth")
    watch(
        with_truth.monitor,
        path,
        baseline=world.out,
        time=DAYS[0],
        ground_truth=world.truth("mon"),
    )
    assert history(with_truth.monitor)[:2] == history(world.monitor)


def test_half_a_line_of_a_killed_call_is_overwritten(world: World):
    watch(world.monitor, world.batch("mon"), baseline=world.out, time=DAYS[0])
    whole = (world.monitor / "history.jsonl").read_bytes()
    last = json.loads((world.monitor / "state.json").read_text())["last"]
    (world.monitor / "history.jsonl").write_bytes(whole[:-100])
    (world.monitor / "seen" / last["id"]).unlink()
    (world.monitor / "index.html").unlink()
    watch(world.monitor, world.folder / "mon.npy", time=DAYS[1])
    assert (world.monitor / "history.jsonl").read_bytes() == whole
    assert (world.monitor / "index.html").exists()


def test_only_the_latest_runs_are_kept(world: World, monkeypatch):
    monkeypatch.setattr("pseudocal.app.watching.KEPT", 3)
    for i in range(5):
        watch(world.monitor, world.batch(f"day{i}", n=20), baseline=world.out, time=DAYS[0])
    assert len(list((world.monitor / "batches").iterdir())) == 3
    assert len(history(world.monitor)) == 6
    with pytest.raises(InputError, match="were not kept"):
        watch(world.monitor, world.folder / "day0.npy", ground_truth=world.truth("day0"))
    assert KEPT == 30


def test_a_call_does_as_much_after_many_batches_as_after_a_few(world: World, monkeypatch):
    """Counted in operations on files, and in the size of what is read and written."""
    monkeypatch.setattr("pseudocal.app.watching.KEPT", 4)
    monkeypatch.setattr("pseudocal.app.monitor_folder.LATE", 4)
    monkeypatch.setattr("pseudocal.app.monitor_folder.EARLY", 2)
    counts = []
    sizes = []
    for i in range(14):
        with counting(world.monitor) as operations:
            watch(world.monitor, world.batch(f"day{i}", n=20), baseline=world.out, time=DAYS[0])
        counts.append(len(operations))
        names = ("state.json", "drawn.jsonl", "index.html", "metrics.prom")
        sizes.append([(world.monitor / name).stat().st_size for name in names])
    assert counts[-1] == counts[6]
    assert sizes[-1] == pytest.approx(sizes[6], rel=0.05)
    assert len(history(world.monitor)) == 15


class counting:  # noqa: N801
    """The operations on files in a folder."""

    active: list[str] | None = None
    folder = ""
    hooked = False

    def __init__(self, folder: Path) -> None:
        counting.folder = str(folder)

    def __enter__(self) -> list[str]:
        import sys

        if not counting.hooked:
            sys.addaudithook(counting.see)
            counting.hooked = True
        counting.active = []
        return counting.active

    def __exit__(self, *error: object) -> None:
        counting.active = None

    @staticmethod
    def see(event: str, arguments: tuple[Any, ...]) -> None:
        if counting.active is None or not event.startswith(("open", "os.", "shutil.")):
            return
        if arguments and str(arguments[0]).startswith(counting.folder):
            counting.active.append(event)


def test_a_monitor_needs_a_baseline_and_a_folder_of_its_own(world: World):
    with pytest.raises(InputError, match="not a monitor yet"):
        watch(world.monitor, world.batch("mon"))
    with pytest.raises(OutputError, match="run folder"):
        watch(world.out, baseline=world.out)
    with pytest.raises(InputError, match="ground truth needs the data of its batch"):
        watch(world.monitor, ground_truth="truth.csv", time="2026-11-16")
    with pytest.raises(InputError, match="nothing to do"):
        watch(world.monitor)


def test_a_monitor_is_neither_a_run_nor_a_place_for_one(world: World):
    watch(world.monitor, world.batch("monday"), baseline=world.out)
    with pytest.raises(InputError, match="is a monitor"):
        calibrate(world.folder / "model.onnx", world.folder / "baseline.npy", world.monitor)
    with pytest.raises(InputError, match="is a monitor, not a run"):
        threshold(world.monitor, max_error=0.05)


def test_exit_codes_and_json(world: World, capsys):
    def run(*words: object) -> int:
        capsys.readouterr()
        return main(["watch", str(world.monitor), *map(str, words), "--exit-code"])

    assert run("--baseline", world.out, "-q") == 21
    assert run(world.batch("mon"), "-q") == 0
    assert run(world.batch("tue", noise=3.0), "--json") == 20
    said = json.loads(capsys.readouterr().out)
    assert said["alarm"] is True
    assert said["change"]["signal"] in ("disagreement", "uncertainty")


def test_numbers_for_prometheus(world: World):
    watch(world.monitor, world.batch("mon", noise=3.0), baseline=world.out, time=DAYS[0])
    done = watch(world.monitor, world.batch("tue", noise=3.0), time=DAYS[1])
    lines = (world.monitor / "metrics.prom").read_text().splitlines()
    values = {
        line.partition("{")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }
    assert values["pseudocal_alarm"] == 1
    assert values["pseudocal_batch_inputs"] == 150
    assert values["pseudocal_batch_time_seconds"] == 1794873600  # date -u -d 2026-11-17 +%s
    assert values["pseudocal_mean_confidence"] == pytest.approx(done.batches[0].confidence)
    for name in values:
        assert f"# TYPE {name} gauge" in lines


# folders from somebody else


def test_the_models_of_a_monitor_from_somebody_else_need_consent(
    world: World, monkeypatch, tmp_path
):
    watch(world.monitor, baseline=world.out)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # another user's key
    with pytest.raises(InputError, match="did not write it"):
        watch(world.monitor, world.batch("mon"))
    assert watch(world.monitor, world.batch("mon"), trust_paths=True).batches


def test_models_that_were_put_into_a_signed_monitor_need_consent(world: World):
    watch(world.monitor, baseline=world.out)
    path = world.monitor / "state.json"
    content = json.loads(path.read_text())
    content["job"]["second_opinion"] = str(world.folder / "model.onnx")
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="did not write it"):
        watch(world.monitor, world.batch("mon"))


def test_models_that_were_put_into_the_job_of_a_signed_run_need_consent(world: World):
    job = world.out / "job.toml"
    job.write_text(job.read_text().replace("other.onnx", "third.onnx"))
    save_linear(world.folder / "third.onnx", np.ones((6, 4)))
    with pytest.raises(InputError, match=r"third.onnx, and you did not write it"):
        watch(world.monitor, baseline=world.out)


def test_code_needs_consent_each_time(tmp_path, monkeypatch):
    from pseudocal.app import calibrate

    (tmp_path / "watched_model.py").write_text(
        "import numpy as np\ndef predict(x):\n    return 3 * x[:, :3]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 4)))
    calibrate("watched_model:predict", tmp_path / "x.npy", tmp_path / "out", table="csv")
    watch(tmp_path / "monitor", baseline=tmp_path / "out")
    with pytest.raises(InputError, match="trust"):
        watch(tmp_path / "monitor", tmp_path / "x.npy")
    assert watch(tmp_path / "monitor", tmp_path / "x.npy", trust=True).batches


@pytest.mark.parametrize("name", ["batches", "seen", "collecting", "labelling"])
def test_a_link_in_the_place_of_a_folder_is_refused(world: World, tmp_path, name):
    watch(world.monitor, world.batch("mon"), baseline=world.out)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ("0" * 64)).write_text("mine")
    shutil.rmtree(world.monitor / name, ignore_errors=True)
    os.symlink(mine, world.monitor / name)
    with pytest.raises(OutputError, match="not a folder of a monitor"):
        watch(world.monitor, world.batch("tue"))
    assert os.listdir(mine) == ["0" * 64]


@pytest.mark.parametrize("name", ["state.json", "history.jsonl", "drawn.jsonl"])
def test_a_link_that_leaves_the_monitor_is_not_followed(world: World, tmp_path, name):
    watch(world.monitor, world.batch("mon"), baseline=world.out)
    (world.monitor / name).rename(tmp_path / "mine")
    os.symlink(tmp_path / "mine", world.monitor / name)
    before = (tmp_path / "mine").read_bytes()
    with pytest.raises(InputError, match="link"):
        watch(world.monitor, world.batch("tue"))
    assert (tmp_path / "mine").read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"monitor": {}},
        {"temperature": -1.0},
        {"kept": [{"id": "../../x", "time": "", "before": 0, "inputs": 1, "period": 0}]},
        {"last": {"kind": "batch"}},
        {"last": {"kind": "other"}},
        {"history_bytes": -1},
        {"format": "other"},
        {"job": {"model": 3}},
    ],
)
def test_a_damaged_state_is_refused_in_one_line(world: World, capsys, change):
    watch(world.monitor, world.batch("mon"), baseline=world.out)
    path = world.monitor / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    code = main(["watch", str(world.monitor), str(world.batch("tue"))])
    assert code == 3
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"in_use": -1.0},
        {"confidence": 3.0},
        {"temperature": {"value": 0.0, "low": None, "high": None}},
        {"accuracy": {"value": -2.0, "low": None, "high": None}},
        {"time": "never"},
        {"e_value": "much"},
        {"id": "../state"},
    ],
)
def test_a_damaged_event_is_refused_in_one_line(world: World, capsys, change):
    watch(world.monitor, world.batch("mon"), baseline=world.out)
    path = world.monitor / "drawn.jsonl"
    events = history(world.monitor)
    path.write_text("".join(json.dumps(event) + "\n" for event in (events[0], events[1] | change)))
    code = main(["watch", str(world.monitor), str(world.batch("tue")), "-q"])
    assert code == 3
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


# the gallery


def test_the_gas_sensors_of_the_gallery(tmp_path, monkeypatch):
    """The page in the docs is the one that the benchmark writes."""
    data = ROOT.parent / "shared" / "data" / "gas_drift.npz"
    if not data.exists():
        pytest.skip(f"needs {data.name}")
    pytest.importorskip("sklearn")
    spec = importlib.util.spec_from_file_location("watch_gas", ROOT / "benchmarks/watch_gas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    results = module.watched(dict(np.load(data)), alike=False)
    assert [result.alarm for result in results] == 6 * [True]
    page = (tmp_path / "monitor" / "index.html").read_text()
    committed = (ROOT / "docs" / "howto" / "watch_gas.html").read_text()
    for one in (page, committed):
        assert one.count("true accuracy (ground truth)") == 1
        rows = re.findall(r'data-label="True accuracy">([^<]+)%<', one)
        # the trained networks depend on the processor and its threads in the last digits
        assert [int(row) for row in rows] == pytest.approx([61, 50, 72, 93, 76, 84], abs=3)
