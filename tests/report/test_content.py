"""What the report says is what the numbers say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pseudocal import Calibration, InputError, TemperatureScaling, softmax
from pseudocal.metrics import Outcomes, ece
from pseudocal.report import Confidences, load_content, page, save_content, write_predictions


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
    calm = {fact["text"][:20] for fact in made.make_content()["facts"] if fact["level"] == "caution"}
    assert calm == set()
    scaling = TemperatureScaling(1e6, rows=40, bound="upper")
    counts = {"pairs": 600, "mixes": 40, "forward_passes": 640}
    logits = np.zeros((600, 6)) + np.array([5.0, 0, 0, 0, 0, 0])
    run = made.make_run(calibration=Calibration("pseudocal", scaling, {}, counts), logits=logits)
    from pseudocal.report import content_of

    content = content_of(run, Confidences.of(run.logits, run.calibration))
    cautions = [fact["text"] for fact in content["facts"] if fact["level"] == "caution"]
    assert len(cautions) == 4
    assert "upper end" in cautions[0]
    assert "100%" in cautions[2]
    assert "unbounded" in page(content)


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
    monkeypatch.setattr("pseudocal.report.confidences.BLOCK", 60)
    parts = Confidences.of(run.logits, run.calibration)
    np.testing.assert_array_equal(whole.top, parts.top)
    np.testing.assert_allclose(whole.after, parts.after)
    np.testing.assert_array_equal(whole.top[:, 0], run.logits.argmax(axis=1))
