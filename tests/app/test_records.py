"""Records of other format versions."""

from __future__ import annotations

import json

import pytest

from pseudocal import InputError
from pseudocal.app.records import decode_json
from pseudocal.app.report.record import Report
from pseudocal.app.run import RunRecord


@pytest.mark.parametrize("kind", [Report, RunRecord])
@pytest.mark.parametrize("version", [0, 99, -1])
def test_another_format_version_is_refused_by_name(kind, version, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"format_version": version}))
    with pytest.raises(InputError, match="format version") as raised:
        decode_json(path, kind, "a record")
    assert f"reads version {kind.format_version}" in str(raised.value)


def test_a_record_without_a_version_is_read_as_before(tmp_path):
    path = tmp_path / "record.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="is not a record: Object missing required field"):
        decode_json(path, RunRecord, "a record")
