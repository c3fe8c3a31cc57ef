"""What a release consists of agrees: versions, licences, and the targets that workflows call."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if not (ROOT / ".github").exists():
    pytest.skip("the sdist has no workflows", allow_module_level=True)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "docs", "test"}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_all_files_name_the_same_version():
    (cited,) = re.findall(r"^version: (.+)$", text("CITATION.cff"), re.MULTILINE)
    newest = re.findall(r"^## ([\d.]+)", text("CHANGELOG.md"), re.MULTILINE)[0]
    assert cited == newest == PROJECT["version"]


def test_the_table_of_licences_has_every_dependency_with_its_extras():
    needed = {re.split(r"[\[>]", each)[0]: {"always"} for each in PROJECT["dependencies"]}
    for extra in EXTRAS.keys() - FOR_DEVELOPERS:
        for each in EXTRAS[extra]:
            package = re.split(r"[\[>]", each)[0]
            if package != "pseudocal":
                needed.setdefault(package, set()).add(extra)
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| .+ \|$", text("docs/project/licences.md"), re.M)
    listed = {
        package: set(re.findall(r"[\w-]+", extras))
        for packages, extras in rows[1:]
        for package in packages.split(", ")
    }
    assert listed == needed


def test_workflows_and_hooks_call_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+(?: [\w-]+)*):", text("Makefile"), re.MULTILINE))
    targets = {target for line in targets for target in line.split()}
    calls = [".pre-commit-config.yaml", ".github/workflows/ci.yml", ".github/workflows/nightly.yml"]
    called = {name for file in calls for name in re.findall(r"make ([\w-]+)", text(file))}
    assert len(called) > 4
    assert called <= targets
