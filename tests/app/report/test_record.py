"""The record behind the page survives a file.

What is damaged or of another version is refused in one clear error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pseudocal import InputError
from pseudocal.app.report import Report, page, write_page, write_report


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Each field of an object, and the first item of each list.

    What settings hold is the user's affair.
    """
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:1])
        if isinstance(value, list)
        else ()
    )
    for key, part in items:
        yield (*path, key)
        if key not in ("settings", "versions", "evidence"):
            yield from places(part, (*path, key))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(content))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    if value is Ellipsis:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return copy


@pytest.fixture(scope="module")
def contents(made):
    reports = [
        made.make_report(),
        made.make_report(labelled=True),
        made.make_segmented(labelled=True),
    ]
    reports.append(made.make_refined())
    return [report.to_dict() for report in reports]


def test_a_report_survives_a_file(tmp_path, made):
    for report in (made.make_report(labelled=True), made.make_segmented(), made.make_refined()):
        write_report(report, tmp_path)
        assert Report.load(tmp_path / "report.json") == report
        first = (tmp_path / "report.html").read_text()
        (tmp_path / "report.html").unlink()
        write_page(Report.load(tmp_path / "report.json"), tmp_path)
        assert (tmp_path / "report.html").read_text() == first
        assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_other_versions_and_formats_are_refused(contents):
    for version in (3, 5, "4", None, True, [4]):
        with pytest.raises(InputError, match="expected a report of format version 4, got "):
            Report.from_dict(contents[0] | {"format_version": version})
    others: list[Any] = [[], None, "report", {}, {"format": "pseudocal-calibration"}]
    for other in others:
        with pytest.raises(InputError, match="expected a file of format pseudocal-report, got "):
            Report.from_dict(other)


def test_each_field_that_is_missing_is_named(contents):
    for content in contents:
        for path in places(content):
            if isinstance(path[-1], str) and path[0] not in ("format", "format_version"):
                if (path[0] in ("settings", "versions") and len(path) > 1) or {
                    "evidence",
                    "effects",
                    "numbers",
                } & set(path[-2:-1]):
                    continue
                with pytest.raises(
                    InputError, match=rf"expected .* with the field '{path[-1]}', got none"
                ):
                    Report.from_dict(changed(content, path, Ellipsis))


QUICK = [None, "text", float("nan")]
MORE = [{}, True, -1, 1.5, [], [[None]], 1e308, 10**400]


@pytest.mark.parametrize(
    "wrong",
    [*QUICK, *(pytest.param(value, marks=pytest.mark.slow) for value in MORE)],
    ids=range(11),
)
def test_a_field_of_another_type_is_refused_or_drawn(contents, wrong):
    messages, drawn = [], 0
    for content in contents:
        for path in places(content):
            try:
                report = Report.from_dict(changed(content, path, wrong))
            except InputError as error:
                messages.append(str(error))
            else:
                assert page(report)
                drawn += 1
    assert all(message.startswith("expected ") and ", got " in message for message in messages)
    assert 100 < len(messages) > drawn


def test_what_does_not_fit_together_is_refused(contents):
    plain, labelled, segmented, refined = contents
    cases = [
        (plain, ("confidence", "edges"), [0, 1], "expected a histogram of 1 columns, got lengths"),
        (plain, ("confidence", "before"), [0] * 15, "neither negative nor all zero"),
        (plain, ("reliability", "before", "count"), [1], "expected a diagram of 15 columns"),
        (plain, ("reliability", "before", "low"), [None] * 15, "both ends of an interval in bin"),
        (
            plain,
            ("reliability", "of"),
            "guesses",
            "expected one of 'inputs', 'pixels', 'mixup', 'answers' as report.reliability.of",
        ),
        (plain, ("classes",), [], r"expected classes and thresholds from 0, got \(\), \(Threshold"),
        (plain, ("selection", 0, "threshold"), 0.5, "expected classes and thresholds from 0, got"),
        (plain, ("classes", 0, "fraction"), 0, "expected a share above 0 and up to 1, got 0.0"),
        (
            plain,
            ("examples", "unsure", 0, "thumbnail"),
            "https://a.b/c.png",
            "expected an image as a data URL",
        ),
        (
            plain,
            ("trust", "verdict"),
            "perhaps",
            "expected one of 'apply', 'caution', 'do not apply' as report.trust",
        ),
        (
            refined,
            ("answers", "verdict"),
            "perhaps",
            "expected one of 'apply', 'already calibrated', 'caution'",
        ),
        (
            refined,
            ("answers", "priors", 0, "width"),
            -1,
            "expected a positive width of the prior, got -1.0",
        ),
        (labelled, ("measured", 0, "after"), None, "expected the ece before and after calibration"),
        (segmented, ("segmentation", "rows", 0), [], "expected a table of classes of 8 columns"),
        (plain, ("colour",), "red", "expected report with the fields model, .*, got 'colour'"),
    ]
    for content, path, value, message in cases:
        with pytest.raises(InputError, match=message):
            Report.from_dict(changed(content, path, value))


@pytest.mark.parametrize(
    "text",
    ["[1", "\ufeff{}", "[" * 100_000, "1" * 5_000, '{"format": NaN', b"\xff\xfe"],
    ids=range(6),
)
def test_a_file_that_is_no_json_is_refused(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(
        InputError, match=r"expected a report file, got .*report\.json, which is not JSON"
    ):
        Report.load(path)


def test_a_folder_without_a_report_is_named(tmp_path):
    with pytest.raises(InputError, match=r"with report\.json, got "):
        Report.load(tmp_path / "report.json")
    (tmp_path / "report.json").mkdir()
    with pytest.raises(InputError, match=r"expected a report file, got .*: a folder"):
        Report.load(tmp_path / "report.json")


def test_an_error_names_the_file(tmp_path, contents):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(changed(contents[0], ("data", "inputs"), "many")))
    with pytest.raises(
        InputError,
        match=r"expected a whole number as report\.data\.inputs, got 'many' in .*report\.json",
    ):
        Report.load(path)
