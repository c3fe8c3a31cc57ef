"""Two processes with a shard each come to one calibration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pseudocal import InputError, PseudoCal, UnreliableCalibrationWarning
from pseudocal.arrays import Labelled
from pseudocal.distributed import fit_across_ranks, ranks
from pseudocal.reservoir import Reservoir

from ..conftest import CENTRES, clusters

SCRIPT = """
import json, os, sys
import numpy as np
import torch.distributed as dist
from pseudocal import PseudoCal
from pseudocal.arrays import Labelled
from pseudocal.distributed import fit_across_ranks, ranks
from pseudocal.reservoir import Reservoir

folder = sys.argv[1]
if len(sys.argv) > 2:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=int(sys.argv[2]), world_size=2)
else:
    dist.init_process_group("gloo")
rank = dist.get_rank()
centres, x = np.load(f"{folder}/centres.npy"), np.load(f"{folder}/x.npy")[rank::2]
model = lambda x: 3 * (x @ centres.T - 0.5 * (centres**2).sum(axis=1))
found = {}
for tolerance in (None, 0.05):
    calibration = fit_across_ranks(PseudoCal(tolerance=tolerance), model, x, second_opinion=lambda x: model(x + 0.1))
    found[str(tolerance)] = [calibration.temperature, calibration.scaling.log_se, calibration.counts]
if rank == 1:
    x = x[:1]  # too little to mix, so that one rank has nothing to send
found["lopsided"] = [fit_across_ranks(PseudoCal(), model, x).temperature]
with open(f"{folder}/{rank}.json", "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
"""


def results(folder: Path, commands: list[list[str]]):
    np.save(folder / "centres.npy", CENTRES)
    np.save(folder / "x.npy", clusters(4000))
    (folder / "script.py").write_text(SCRIPT)
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in started:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def check(model, results):
    zero, one = results
    assert zero == one
    parts = PseudoCal().empty_evidence()
    for rank in (0, 1):
        shard = clusters(4000)[rank::2]
        parts.merge(
            PseudoCal()
            .collect(model, shard, second_opinion=lambda x: model(x + 0.1), part=rank)
            .pack()
        )
    assert parts.opinions
    temperature, _, counts = zero["None"]
    assert temperature == PseudoCal().conclude(parts).temperature
    assert counts == parts.counts
    assert zero["0.05"][2]["pairs"] < 3000
    assert 0.025 < zero["0.05"][1] < 0.05  # one rank alone stops at 0.07
    alone = PseudoCal().collect(model, clusters(4000)[::2], part=0)
    assert zero["lopsided"][0] == PseudoCal().conclude(alone).temperature


def test_two_gloo_processes_find_what_their_parts_merge_into(model, tmp_path):
    pytest.importorskip("torch")
    script = str(tmp_path / "script.py")
    check(
        model, results(tmp_path, [[sys.executable, script, str(tmp_path), rank] for rank in "01"])
    )


@pytest.mark.slow
def test_torchrun(model, tmp_path):
    pytest.importorskip("torch")
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    check(model, results(tmp_path, [[*launch, str(tmp_path / "script.py"), str(tmp_path)]]))


@pytest.mark.parametrize("groups", [None, np.arange(6), np.arange(12).reshape(6, 2)])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_rows_of_every_kind_are_described_in_full(groups, precision):
    reservoir = Reservoir(2**16, np.random.default_rng(0))
    reservoir.add(
        Labelled(np.zeros((6, 3), dtype=precision), np.zeros(6, dtype=int), groups=groups)
    )
    rows = reservoir.sample.rows
    count, size, kind, classes, per_row = ranks._header(rows).view(np.int64).tolist()
    assert (count, size) == (6, rows.dtype.itemsize)
    assert ranks._dtype(kind, classes, per_row) == rows.dtype


def test_without_a_process_group_it_says_so(model):
    pytest.importorskip("torch")
    with pytest.raises(InputError, match="expected a process group"):
        fit_across_ranks(PseudoCal(), model, clusters(100))


def test_a_temperature_that_should_not_be_applied_is_warned_of(monkeypatch):
    one = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: 1)
    monkeypatch.setattr(ranks, "_group", lambda: one)
    monkeypatch.setattr(ranks, "_broadcast_packed", lambda packed, sender: packed)
    x = np.random.default_rng(0).normal(size=(500, 3)) + 3 * np.eye(3)[0]  # mostly the first class
    with pytest.warns(UnreliableCalibrationWarning, match="One of 3 classes gets"):
        fit_across_ranks(PseudoCal(), lambda z: z, x)
