"""What the report says is what the numbers say."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pseudocal import Calibration, InputError, TemperatureScaling, softmax
from pseudocal.app.cli.printing import summary_lines
from pseudocal.app.report import Confidences, content_of, load_content, page, save_content, write_predictions
from pseudocal.app.report.thumbnails import thumbnail
from pseudocal.app.report.verdict import panel
from pseudocal.metrics import Outcomes, ece


def test_the_histograms_count_every_input(made):
    run, content = made.make_run(), made.make_content()
    assert sum(content["confidence"]["before"]) == sum(content["confidence"]["after"]) == 600
    assert content["confidence"]["mean_after"] == pytest.approx(softmax(run.logits / 2.9).max(axis=1).mean())


def test_reliability_is_of_the_mixes_without_labels_and_of_the_inputs_with(made):
    without, with_labels = made.make_content(), made.make_content(labelled=True)
    run = made.make_run(labelled=True)
    assert without["reliability"]["of"] == "mixes"
    assert sum(without["reliability"]["before"]["count"]) == 580
    assert with_labels["reliability"]["of"] == "inputs"
    assert with_labels["reliability"]["after"]["ece"] == [ece(Outcomes.from_logits(run.logits / 2.9, run.labels))]
    assert [row["metric"] for row in with_labels["measured"]] == ["ece", "nll", "brier", "accuracy"]


def test_examples_are_those_that_changed_most_and_those_least_sure(made):
    run, content = made.make_run(), made.make_content()
    before, after = softmax(run.logits).max(axis=1), softmax(run.logits / 2.9).max(axis=1)
    assert content["examples"]["unsure"][0]["name"] == run.names[after.argmin()]
    assert content["examples"]["changed"][0]["name"] == run.names[np.abs(before - after).argmax()]


def test_facts_speak_up_when_they_should(made):
    assert {fact["level"] for fact in made.make_content()["facts"]} == {"note"}
    counts = {"pairs": 600, "mixes": 40, "forward_passes": 640}
    scaling = TemperatureScaling(1e6, rows=40, bound="upper")
    run = made.make_run(calibration=Calibration("pseudocal", scaling, {}, counts))
    content = content_of(run, Confidences.of(run.logits, run.calibration))
    [caution] = [fact["text"] for fact in content["facts"] if fact["level"] == "caution"]
    assert "40 of 600" in caution
    assert "unbounded" in page(content)


def test_harm_that_labels_show_is_the_first_thing_to_know(made):
    counts = {"pairs": 600, "mixes": 40, "forward_passes": 640}  # few mixes are a caution too
    trust = made.make_run(verdict="caution").calibration.trust
    harmful = Calibration("pseudocal", TemperatureScaling(0.3, rows=40), {}, counts, trust=trust)
    of_rows = made.make_content(labelled=True, calibration=harmful)
    for content in (of_rows, made.make_segmented(labelled=True, temperature=0.2)):
        before, after = (content["measured"][0][when]["value"] for when in ("before", "after"))
        text = content["facts"][0]["text"]
        numbers = [float(number) for number in re.findall(r"\d\.\d+", text)]
        assert text.startswith("On the labels that were given, calibration makes the ECE worse: ")
        assert numbers == pytest.approx([before, after], abs=6e-4)
        assert len(content["facts"]) > 3
        assert content["trust"]["verdict"] == "caution"
        assert f"caution: {text}" in list(summary_lines(content, Path("out")))
    unlabelled = made.make_content(calibration=harmful)
    for content in (unlabelled, made.make_content(labelled=True), made.make_segmented(labelled=True)):
        assert not any("worse" in fact["text"] for fact in content["facts"])


def test_the_panel_says_the_verdict_and_its_reasons_once(made):
    for verdict, heading in (("apply", "Apply"), ("caution", "Use with caution"), ("do not apply", "Do not apply")):
        content = made.make_content(verdict=verdict)
        html = page(content)
        assert f"<strong>{heading}</strong>" in html
        assert html.count("A second reason") == 1
        assert ("advises against" in html) == (verdict == "do not apply")


def test_the_forecast_is_drawn_to_scale(made):
    content = made.make_content(labelled=True)
    forecast, before, after, measured = panel(content).tracks
    assert forecast.bar == pytest.approx((14 + 0.46 * 332, 0.24 * 332), abs=0.01)
    assert before.x == pytest.approx(14 + content["confidence"]["mean_before"] * 332, abs=0.01)
    assert after.value == f"{content['confidence']['mean_after']:.1%}"
    assert measured.value == f"{content['measured'][-1]['before']['value']:.1%}"
    assert len(panel(made.make_content()).tracks) == 3


def test_a_temperature_that_was_replaced_is_said_to_be(made):
    settings, counts = {"on_distrust": "identity"}, {"pairs": 600, "mixes": 580, "forward_passes": 1180}
    trust = made.make_run(verdict="do not apply").calibration.trust
    calibration = Calibration("pseudocal", TemperatureScaling(1.0, rows=580), settings, counts, trust=trust)
    run = made.make_run(calibration=calibration)
    content = content_of(run, Confidences.of(run.logits, calibration))
    html = page(json.loads(json.dumps(content, allow_nan=False)))
    assert content["trust"]["replaced"]
    assert "in the place of the one that was fitted" in html
    assert "95% interval 1" not in html


def test_a_report_from_before_there_were_verdicts_is_drawn(made):
    content = made.make_content()
    del content["trust"]
    html = page(content)
    assert 'id="verdict"' not in html
    assert "T = 2.900" in html


def test_the_numbers_of_a_row_have_the_same_digits(made):
    content = made.make_content(labelled=True)
    numbers = {
        "before": {"value": 0.007434, "low": 0.004819, "high": 0.01},
        "after": {"value": 0.0059, "low": 0.001, "high": 0.02},
        "change": {"value": -0.00146, "low": -0.0029, "high": -9.517e-06},
    }
    content["measured"][0] |= numbers
    content["measured"][1] |= {"after": {"value": None, "low": None, "high": None}}
    table = page(content).partition('id="measured"')[2].partition("</table>")[0]
    rows = [re.findall(r"-?\d+\.[\de.+-]*\d|unbounded", row) for row in table.split("<tr>")[2:]]
    assert [len(row) for row in rows] == [9] * 4
    assert rows[0] == ["0.0074", "0.0048", "0.0100", "0.0059", "0.0010", "0.0200", "-0.0015", "-0.0029", "0.0000"]
    for row in rows:
        [digits] = {len(number.partition(".")[2]) for number in row if number != "unbounded"}
        assert digits >= 3
    assert rows[1].count("unbounded") == 3


def test_content_survives_a_file(tmp_path, made):
    content = made.make_content()
    save_content(content, tmp_path / "report.json")
    assert load_content(tmp_path / "report.json") == json.loads(json.dumps(content))
    (tmp_path / "report.json").write_text("[1")
    with pytest.raises(InputError, match="not JSON"):
        load_content(tmp_path / "report.json")


def test_the_page_escapes_all_that_comes_from_outside(made):
    html = page(made.make_content())
    assert made.NASTY not in html
    assert "onerror" in html
    assert "<script" not in html
    assert "http://" not in html
    assert "https://" not in html


def test_predictions_as_csv_and_parquet_agree(tmp_path, made):
    import pyarrow.csv
    import pyarrow.parquet

    run = made.make_run()
    confidences = Confidences.of(run.logits, run.calibration)
    for kind in ("csv", "parquet"):
        assert write_predictions(tmp_path, run.names, confidences, run.classes, kind=kind) == f"predictions.{kind}"
    parquet = pyarrow.parquet.read_table(tmp_path / "predictions.parquet").to_pydict()
    csv = pyarrow.csv.read_csv(tmp_path / "predictions.csv").to_pydict()
    assert parquet["file"] == csv["file"] == run.names
    assert parquet["class"] == csv["class"]
    np.testing.assert_allclose(parquet["confidence_after"], csv["confidence_after"], rtol=1e-5)
    assert csv["top"][0] == ";".join(map(str, parquet["top"][0]))


def test_confidences_in_blocks_are_those_in_one(monkeypatch, made):
    run = made.make_run()
    whole = Confidences.of(run.logits, run.calibration)
    monkeypatch.setattr("pseudocal.app.report.confidences.BLOCK", 60)
    parts = Confidences.of(run.logits, run.calibration)
    np.testing.assert_array_equal(whole.top, parts.top)
    np.testing.assert_allclose(whole.after, parts.after)
    np.testing.assert_array_equal(whole.top[:, 0], run.logits.argmax(axis=1))


def test_a_thumbnail_of_a_large_photograph_looks_like_it(tmp_path):
    from PIL import Image

    across, down = np.meshgrid(np.linspace(0, 255, 1600), np.linspace(0, 255, 1200))
    photograph = Image.fromarray(np.stack([across, down, 255 - across], axis=2).astype(np.uint8))
    photograph.save(tmp_path / "a.jpg", quality=95)
    small = Image.open(io.BytesIO(base64.b64decode(thumbnail(tmp_path / "a.jpg").partition(",")[2])))
    assert small.size == (112, 84)
    assert np.abs(np.asarray(small, float) - np.asarray(photograph.resize((112, 84)), float)).mean() < 2
