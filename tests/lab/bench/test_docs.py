"""What the README claims is what the page of results says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pseudocal.lab.bench import built_in
from pseudocal.lab.bench.suite_file import parse_suite

ROOT = Path(__file__).parents[3]
NUMBER = re.compile(r"\d+\.\d+")


def table_in_readme() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split("<!-- results -->")[1].strip().splitlines()


def test_every_number_of_the_readme_stands_in_the_results():
    rows = [line for line in table_in_readme() if NUMBER.search(line)]
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert len(rows) >= 5
    for row in rows:
        name = row.split("|")[1].strip()
        assert row in results.splitlines(), f"{name} has other numbers in docs/results.md"
        assert set(NUMBER.findall(row)) <= set(NUMBER.findall(results))


def test_what_is_said_of_make_and_of_segmenters_is_so():
    readme, makefile = (
        (ROOT / "README.md").read_text(encoding="utf-8"),
        (ROOT / "Makefile").read_text(encoding="utf-8"),
    )
    named, targets = (
        set(re.findall(r"\bmake ([a-z]\S*)", readme)),
        set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE)),
    )
    assert {"setup", "demo", "test"} <= {name.strip("`") for name in named} & targets
    command = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    assert "segmentation.md#the-command" in command
    assert "(segmentation) are refused" not in command


def test_the_suite_files_of_the_page_are_suites():
    text = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    found = [
        parse_suite(tomllib.loads(each), "s")
        for each in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    ]
    assert len(found) >= 4
    without = next(suite for suite in found if len(suite.tasks) == 72)
    assert "ensemble" not in without.calibrators
    assert set(without.tasks) == set(
        built_in("office-home", weights="weights/").tasks
    )  # so their models are shared
