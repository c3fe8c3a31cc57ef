"""The record behind the page survives a file.

What is damaged or of another version is refused in one clear error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pseudocal import InputError
from pseudocal.app.records import to_plain
from pseudocal.app.report import Report, page, write_page, write_report


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Each field of an object, and the first item of each list.

    What settings hold is the user's affair.
    """
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value[:1])
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
        made.make_refined(),
    ]
    return [to_plain(report) for report in reports]


@pytest.fixture
def load(tmp_path):
    """Write JSON values as a report and read them."""

    def write_and_load(content: Any) -> Report:
        path = tmp_path / "report.json"
        path.write_text(json.dumps(content))
        return Report.load(path)

    return write_and_load


def test_a_report_survives_a_file(tmp_path, made):
    for report in (made.make_report(labelled=True), made.make_segmented(), made.make_refined()):
        write_report(report, tmp_path)
        assert Report.load(tmp_path / "report.json") == report
        first = (tmp_path / "report.html").read_text()
        (tmp_path / "report.html").unlink()
        write_page(Report.load(tmp_path / "report.json"), tmp_path)
        assert (tmp_path / "report.html").read_text() == first
        assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_other_versions_and_formats_are_refused(contents, load):
    for version in (6, 8, "7", None, True, [7]):
        with pytest.raises(InputError, match=r"is not a report: .*format.version"):
            load(contents[0] | {"format_version": version})
    with pytest.raises(InputError, match=r"is not a report: .*\$\.format`"):
        load(contents[0] | {"format": "pseudocal-calibration"})
    others: list[Any] = [[], None, "report", {}]
    for other in others:
        with pytest.raises(InputError, match="is not a report: "):
            load(other)


def test_each_field_that_is_missing_is_named(contents, load):
    optional = {"format", "format_version", "facts", "threshold"}
    for name in contents[0].keys() - optional:
        with pytest.raises(InputError, match=f"missing required field `{name}`"):
            load(changed(contents[0], (name,), ...))


QUICK = [None, "text", float("nan")]
MORE = [{}, True, -1, 1.5, [], [[None]], 1e308, 10**400]


@pytest.mark.parametrize(
    "wrong",
    [*QUICK, *(pytest.param(value, marks=pytest.mark.slow) for value in MORE)],
    ids=range(11),
)
def test_a_field_of_another_type_is_refused_or_drawn(contents, load, wrong):
    messages = []
    drawn = 0
    for content in contents:
        for path in places(content):
            try:
                report = load(changed(content, path, wrong))
            except InputError as error:
                messages.append(str(error))
            else:
                assert page(report)
                drawn += 1
    assert all("report.json is not a report: " in message for message in messages)
    assert 100 < len(messages) > drawn


def test_what_does_not_fit_together_is_refused(contents, load):
    plain, scored, segmented, refined = contents
    cases = [
        (plain, ("confidence", "edges"), [0, 1], "histogram has 1 bins, but columns of lengths"),
        (plain, ("confidence", "before"), [0] * 15, "negative or all zero"),
        (plain, ("reliability", "before", "count"), [1], "has 15 bins, but columns of lengths"),
        (plain, ("reliability", "before", "low"), [None] * 15, "both ends of its interval"),
        (plain, ("reliability", "source"), "guesses", r"`\$\.reliability\.source`"),
        (plain, ("reliability", "source"), "labels", "are of labels, but there are none"),
        (plain, ("classes",), [], "there are no classes"),
        (plain, ("selection", 0, "threshold"), 0.5, "do not begin with 0"),
        (plain, ("classes", 0, "fraction"), 0, "the fraction of class .* is 0.0"),
        (
            plain,
            ("examples", "least_confident", 0, "thumbnail"),
            "https://a.b/c.png",
            "an image must be a data URL",
        ),
        (segmented, ("maps", 0, "before"), "file:///etc/passwd", "an image must be a data URL"),
        (plain, ("trust", "verdict"), "perhaps", r"`\$\.trust\.verdict`"),
        (plain, ("facts", 0, "code"), "rumour", r"rumour.* - at `\$\.facts\[0\]`"),
        (plain, ("facts", 0, "values"), {}, "unreadable does not go with the values"),
        (plain, ("headline", "values"), {}, "estimated does not go with the values"),
        (refined, ("labels", "verdict"), "perhaps", r"`\$\.labels\.verdict`"),
        (scored, ("metrics", 0, "after"), None, "the metric ece is missing after calibration"),
    ]
    for content, path, value, message in cases:
        with pytest.raises(InputError, match=message):
            load(changed(content, path, value))


@pytest.mark.parametrize(
    "text",
    ["[1", "\ufeff{}", "[" * 100_000, "1" * 5_000, '{"format": NaN', b"\xff\xfe"],
    ids=range(6),
)
def test_a_file_that_is_no_json_is_refused(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=r"report\.json is not a report: "):
        Report.load(path)


def test_a_folder_without_a_report_is_named(tmp_path):
    with pytest.raises(InputError, match=r"has no report\.json: it is not a run folder"):
        Report.load(tmp_path / "report.json")
    (tmp_path / "report.json").mkdir()
    with pytest.raises(InputError, match=r"report\.json is not a report: a folder"):
        Report.load(tmp_path / "report.json")
