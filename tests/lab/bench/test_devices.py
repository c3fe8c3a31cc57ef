"""The benchmark on a GPU: every stage on a device that records, and a GPU for each worker."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from pseudocal.arrays import InputError
from pseudocal.lab.bench import Store, Task, run
from pseudocal.lab.bench.executors import Pool, visible_gpus
from pseudocal.lab.bench.suite_file import parse_suite

pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)

SCENES = {
    "data": "scenes",
    "source": "noto",
    "target": "fluent",
    "method": "source-only",
    "width": 4,
    "iterations": 2,
}


@pytest.mark.parametrize(
    "number", [0, 2]
)  # a head on frozen features, and a network trained as a whole
def test_no_tensor_of_a_task_is_left_behind(recording, tiny, cache, tmp_path, number):
    wanted = ("none", "mc-dropout", "pseudocal", "cutmix", "manifoldmix", "oracle")
    task = replace(tiny.tasks[number], iterations=2)
    suite, store = replace(tiny, tasks=(task,), calibrators=wanted), Store(tmp_path, device="cuda")
    with recording() as places:
        assert run(suite, store) == []
        assert run(suite, store, redo="predict") == []
    assert len(places.heavy) > 10
    assert all(gpu for _, gpu in places.heavy)


def test_no_tensor_of_a_segmenter_is_left_behind(recording, cache, tmp_path):
    options = {"batch": 4, "scenes": 4, "pixels_per_image": 50}
    suite = parse_suite({"calibrators": ["tempscal", "pseudocal", "ensemble", "oracle"],
                         "tasks": [{**SCENES, "options": options}]}, "scenes")  # fmt: skip
    with recording() as places:
        assert run(suite, Store(tmp_path, device="cuda")) == []
    assert len(places.heavy) > 10
    assert all(gpu for _, gpu in places.heavy)


def test_the_device_is_no_part_of_a_task_and_the_precision_is():
    task = Task("emoji", "noto", "fluent", method="mcc", seed=4)
    assert (
        str(task.folder) == "emoji/closed-set/noto-fluent/mcc/4-3fc0fa4b"
    )  # as stores from before have it
    others = [replace(task, precision="mixed"), replace(task, batch=8), replace(task, lr=0.1)]
    assert len({each.folder for each in (task, *others)}) == 4
    with pytest.raises(InputError, match="among single, mixed, float16, got 'half'"):
        replace(task, precision="half")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected batch above zero, got 0"):
        replace(task, batch=0)


@pytest.mark.parametrize("precision", ["mixed", "float16"])
def test_mixed_precision_changes_digits_only(tiny, cache, tmp_path, precision):
    task = replace(tiny.tasks[-1], iterations=5)
    mixed = replace(task, precision=precision)
    store = Store(tmp_path)
    assert run(replace(tiny, tasks=(task, mixed), calibrators=("none", "oracle")), store) == []
    one, other = (store.scores(each)["none"]["nll"] for each in (task, mixed))
    assert one != other
    assert one == pytest.approx(other, rel=0.05)


SEEN = "CUDA_VISIBLE_DEVICES"  # each process looks it up by itself
ON_RAY = f"""
import os, ray
from pseudocal.lab.bench.executors import Ray
ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
with Ray(gpus=1) as jobs:
    print(*jobs(os.getenv, ["{SEEN}"] * 2))
"""  # in a process of its own: other tests may have a session in this one


@pytest.mark.slow
def test_each_process_sees_one_gpu():
    with Pool(2, gpus=["3"]) as pool:
        assert set(pool(os.getenv, [SEEN] * 4)) == {"3"}


@pytest.mark.slow
def test_a_job_on_ray_gets_a_gpu_of_its_own():
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, "-c", ON_RAY], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "0"]


def test_gpus_are_those_that_torch_may_use(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    assert visible_gpus() == ["2", "5"]
