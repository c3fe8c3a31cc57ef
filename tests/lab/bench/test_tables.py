from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from pseudocal.lab.bench.formats import comma_separated, comparisons, latex, markdown
from pseudocal.lab.bench.records import Record
from pseudocal.lab.bench.tables import compare_over_tasks, tables
from pseudocal.lab.bench.task import Suite, Task

ECE = {  # calibrator -> pair -> by seed
    "none": {"a->b": (0.30, 0.20), "a->c": (0.10, 0.20), "b->c": (0.50, 0.50)},
    "pseudocal": {"a->b": (0.10, 0.10), "a->c": (0.20, 0.30), "b->c": (0.10, 0.20)},
    "oracle": {"a->b": (0.01, 0.01), "a->c": (0.01, 0.01), "b->c": (0.01, 0.01)},
}


def records(method: str = "mcc") -> list[Record]:
    return [
        Record(
            Task("toy", pair[0], pair[-1], method=method, seed=seed),
            name,
            ece,
            2 * ece,
            3 * ece,
            1 - ece,
        )
        for name, pairs in ECE.items()
        for pair, values in pairs.items()
        for seed, ece in enumerate(values)
    ]


SUITE = Suite("toy", tuple(dict.fromkeys(record.task for record in records())), tuple(ECE))


def cells(table, name):
    return dict(zip(table.columns, dict(table.rows)[name], strict=True))


def test_means_over_targets_and_their_spread_over_seeds():
    (table,) = tables(SUITE, records())
    cell = cells(table, "No calibration")["mcc"]
    assert cell.mean == pytest.approx((0.25 + 0.325) / 2)  # ->b has one task, ->c two
    assert cell.sd == pytest.approx(
        (0.3 - 0.275) / np.sqrt(2)
    )  # of (0.3 + 0.3) / 2 and (0.2 + 0.35) / 2
    cell = cells(table, "PseudoCal")["mcc"]
    assert cell.mean == pytest.approx((0.1 + 0.2) / 2)
    assert cell.best
    assert not cells(table, "Oracle")["mcc"].best
    assert cells(table, "Accuracy")["mcc"].mean == pytest.approx(1 - (0.25 + 0.325) / 2)


def test_segmentation_has_a_row_of_miou():
    assert "mIoU" not in dict(tables(SUITE, records())[0].rows)
    (table,) = tables(SUITE, [replace(r, miou=r.accuracy / 2) for r in records()])
    assert cells(table, "mIoU")["mcc"].mean == pytest.approx(0.5 - (0.25 + 0.325) / 4)
    rows = list(csv.DictReader(io.StringIO(comma_separated(table))))
    assert {row["metric"] for row in rows if row["calibrator"] == "mIoU"} == {"miou"}


def test_the_table_of_ece_says_what_chance_leaves_to_a_calibrated_model():
    title = "Perfectly calibrated, by chance"
    assert title not in dict(tables(SUITE, records())[0].rows)
    (table,) = tables(SUITE, [replace(r, resolution=r.ece / 2) for r in records()])
    assert cells(table, title)["mcc"].mean == pytest.approx(0.005)  # half of the oracle's
    rows = list(csv.DictReader(io.StringIO(comma_separated(table))))
    assert {row["metric"] for row in rows if row["calibrator"] == title} == {"resolution"}
    some = [replace(r, resolution=0.1 if r.task.target == "b" else None) for r in records()]
    (table,) = tables(SUITE, some, by="target")
    assert [cells(table, title)[column].mean for column in ("->b", "->c")] == [
        0.1,
        pytest.approx(np.nan, nan_ok=True),
    ]


def test_the_table_of_correspondence_has_its_chance_level():
    known = [
        replace(r, correspondence=0.6, chance=0.55)
        for r in records()
        if r.calibrator == "pseudocal"
    ]
    (table,) = tables(SUITE, known, "correspondence")
    assert cells(table, "PseudoCal")["mcc"].mean == pytest.approx(0.6)
    assert cells(table, "PseudoCal, chance level")["mcc"].mean == pytest.approx(0.55)
    older = [replace(r, chance=None) for r in known]
    assert "chance" not in markdown(tables(SUITE, older, "correspondence")[0])


def test_the_last_column_of_the_table_of_ece_is_time():
    timed = [
        replace(r, seconds=2.0 + r.task.seed) for r in records() if r.calibrator == "pseudocal"
    ]
    rest = [r for r in records() if r.calibrator != "pseudocal"]
    (table,) = tables(SUITE, timed + rest)
    lines = markdown(table).splitlines()
    assert lines[0].endswith("| average | CPU s a task |")
    assert next(line for line in lines if line.startswith("| PseudoCal |")).endswith("| 2.50 |")
    assert next(line for line in lines if line.startswith("| No calibration |")).endswith("| - |")
    assert r"lrrr}" in latex(table)
    rows = list(csv.DictReader(io.StringIO(comma_separated(table))))
    assert [row["mean"] for row in rows if row["metric"] == "seconds"] == ["2.5"]
    assert "CPU" not in markdown(tables(SUITE, timed + rest, "nll")[0])


def test_correspondence_is_a_table_of_those_that_mix():
    mixed = [
        replace(r, correspondence=1 - r.ece) if r.calibrator == "pseudocal" else r
        for r in records()
    ]
    (table,) = tables(SUITE, mixed, "correspondence")
    assert [name for name, _ in table.rows] == ["PseudoCal"]
    assert cells(table, "PseudoCal")["mcc"].mean == pytest.approx(0.85)
    assert markdown(table).startswith("| Correspondence, mean over targets, % | mcc |")


def test_of_an_miou_more_is_better():
    found = [replace(r, miou=1 - r.ece) for r in records()]
    (table,) = tables(SUITE, found, "miou")
    assert cells(table, "PseudoCal")["mcc"].mean == pytest.approx(0.85)
    assert cells(table, "PseudoCal")["mcc"].best
    assert not cells(table, "No calibration")["mcc"].best
    assert "mIoU" not in dict(table.rows)
    assert markdown(table).startswith("| mIoU, mean over targets, % | mcc |")
    assert [c.wins for c in compare_over_tasks(found, "miou")] == [
        c.wins for c in compare_over_tasks(found, "ece")
    ]


def test_tasks_with_one_target_are_averaged():
    (table,) = tables(SUITE, records(), by="target")
    assert table.columns == ("->b", "->c", "average")
    row = cells(table, "No calibration")
    assert row["->b"].mean == pytest.approx(0.25)
    assert row["->c"].mean == pytest.approx((0.3 + 0.35) / 2)
    assert row["average"].mean == pytest.approx(
        (0.25 + 0.325) / 2
    )  # over two targets, as the paper's main tables


def test_with_a_column_for_each_task_the_average_is_over_tasks():
    (table,) = tables(SUITE, records(), by="task")
    assert cells(table, "No calibration")["average"].mean == pytest.approx(
        0.3
    )  # as in the paper's appendix


def test_tasks_that_differ_in_a_setting_are_kept_apart():
    others = [
        replace(r, task=replace(r.task, options=(("weight", 0.1),)), ece=r.ece / 2)
        for r in records()
    ]
    (table,) = tables(SUITE, records() + others)
    assert table.columns == ("mcc", "mcc, weight 0.1", "average")
    row = cells(table, "No calibration")
    assert row["mcc, weight 0.1"].mean == pytest.approx(row["mcc"].mean / 2)
    partial = [replace(r, task=replace(r.task, scenario="partial-set")) for r in records()]
    (table,) = tables(SUITE, records() + partial)
    assert table.columns == ("mcc, closed-set", "mcc, partial-set", "average")
    assert {c.where for c in compare_over_tasks(records() + partial)} == {
        "mcc, closed-set",
        "mcc, partial-set",
        "all",
    }


def test_each_task_has_a_column():
    (table,) = tables(SUITE, records(), "nll", by="task")
    assert table.columns == ("a->b", "a->c", "b->c", "average")
    assert cells(table, "PseudoCal")["a->c"].mean == pytest.approx(0.5)
    assert "Accuracy" not in dict(table.rows)


def test_the_average_is_over_methods_too():
    both = records() + [replace(r, ece=r.ece + 0.2) for r in records("bnm")]
    (table,) = tables(SUITE, both)
    assert table.columns == ("mcc", "bnm", "average")
    assert cells(table, "No calibration")["average"].mean == pytest.approx((0.25 + 0.325) / 2 + 0.1)


def test_a_seed_with_a_hole_does_not_count():
    some = [
        r
        for r in records()
        if not (r.task.seed == 1 and r.task.pair == "b->c" and r.calibrator == "none")
    ]
    (table,) = tables(SUITE, some)
    cell = cells(table, "No calibration")["mcc"]
    assert cell.mean == pytest.approx(0.3)
    assert np.isnan(cell.sd)


def test_a_column_with_a_hole_has_no_winner():
    (table,) = tables(
        SUITE, [r for r in records() if r.calibrator != "none" or r.task.pair != "a->b"]
    )
    assert np.isnan(cells(table, "No calibration")["mcc"].mean)
    assert not cells(table, "PseudoCal")["mcc"].best


def test_paired_comparison_over_tasks():
    found = {(c.baseline, c.where): c for c in compare_over_tasks(records() + records("bnm"))}
    assert set(found) == {("none", "mcc"), ("none", "bnm"), ("none", "all")}
    one = found["none", "mcc"]
    assert (one.tasks, one.wins) == (3, 2)
    assert one.difference == pytest.approx((-0.15 + 0.10 - 0.35) / 3)
    assert found["none", "all"].tasks == 6
    # the one loss has rank 1 of three; of 8 patterns of signs 2 have so little on one side, 2 on
    # the other
    assert one.p == pytest.approx(0.5)


def test_no_difference_is_no_evidence():
    same = [replace(r, ece=0.1) for r in records()]
    assert compare_over_tasks(same)[0].p == 1.0


def test_markdown_latex_and_csv_hold_the_same_numbers():
    (table,) = tables(SUITE, records())
    assert "| No calibration | 28.75 ± 1.77 | 28.75 ± 1.77 |" in markdown(table)
    assert "| PseudoCal | **15.00** ± 3.54 | **15.00** ± 3.54 |" in markdown(table)
    assert r"PseudoCal & \textbf{15.00} $\pm$ 3.54" in latex(table)
    rows = list(csv.DictReader(io.StringIO(comma_separated(table))))
    mine = next(row for row in rows if row["calibrator"] == "PseudoCal" and row["column"] == "mcc")
    assert float(mine["mean"]) == pytest.approx(0.15)
    assert "| No calibration | 2 of 3, p = 0.500 |" in comparisons(compare_over_tasks(records()))


def test_the_papers_numbers_stand_beside_ours():
    from pseudocal.lab.bench.suites import built_in

    suite = built_in("visda")
    ours = [Record(task, "pseudocal", 0.05, 1.0, 1.0, 0.8) for task in suite.tasks]
    (table,) = tables(replace(suite, calibrators=("pseudocal",)), ours)
    assert cells(table, "PseudoCal")["mcc"].paper == pytest.approx(
        0.012
    )  # 1.2 in the paper's table
    assert "**5.00** [1.20]" in markdown(table)
