"""One answer, whoever does the work: here, one worker, two, and one that is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pseudocal import InputError, PseudoCal
from pseudocal.app import model_file, shards
from pseudocal.distributed import Deferred, LocalExecutor, RayExecutor
from pseudocal.mixup import STRATEGIES

from ..conftest import clusters, linear, npz_files


def test_an_array_in_blocks_gives_the_very_digits_of_one_pass(model):
    x = clusters(9000)
    whole = PseudoCal(seed=3).fit(model, x)
    divided = PseudoCal(seed=3).fit(model, x, executor=LocalExecutor())
    assert divided.scaling == whole.scaling
    assert divided.counts == whole.counts
    assert divided.settings["blocks"] == divided.settings["blocks_used"] == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_ray_gives_the_very_digits_of_one_pass(ray, model, workers):
    x = clusters(9000)
    whole = PseudoCal().fit(model, x)
    divided = PseudoCal().fit(model, x, executor=RayExecutor(workers=workers))
    assert divided.scaling == whole.scaling
    assert divided.counts == whole.counts


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_model_and_its_surrogate_give_the_very_digits_of_one_pass(ray, workers):
    x = clusters(5000)  # three blocks
    first = linear()

    def second(x):
        return first(x + 0.5 * np.sin(7 * x))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = PseudoCal().fit(first, x, second_opinion=second)
        there = PseudoCal().fit(
            first, x, second_opinion=second, executor=RayExecutor(workers=workers)
        )
    assert "surrogate accuracy" in here.trust.evidence
    assert there.trust == here.trust
    assert there.temperature == here.temperature


@pytest.mark.slow
def test_above_the_memory_they_lie_inside_each_others_intervals(ray, model, tmp_path):
    blocks = shards(npz_files(tmp_path, 30))
    method = PseudoCal(memory=2**18)  # a sample of some thousand rows
    local = method.fit(model, blocks, executor=LocalExecutor())
    spread = method.fit(model, blocks, executor=RayExecutor(workers=2))
    whole = PseudoCal().fit(model, blocks, executor=LocalExecutor())
    assert local.scaling == spread.scaling
    assert 200 < local.scaling.rows < whole.scaling.rows
    assert local.interval[0] < whole.temperature < local.interval[1]


def test_epochs_and_strategies_go_to_the_workers_as_well(model):
    x = clusters(3000)
    twice = PseudoCal(epochs=2).fit(model, x, executor=LocalExecutor())
    assert twice.counts["pairs"] == 6000
    assert twice.scaling == PseudoCal(epochs=2).fit(model, x).scaling
    few = PseudoCal().fit(model, x[:300], executor=LocalExecutor())
    assert few.settings["epochs"] == 4
    assert few.scaling == PseudoCal().fit(model, x[:300]).scaling
    cut = PseudoCal().fit(model, x, executor=LocalExecutor(), strategy=STRATEGIES["PseudoCal-same"])
    assert cut.settings["strategy"] == "mixup_same"


@pytest.mark.slow
def test_a_memory_map_goes_to_the_workers_by_name(ray, model, tmp_path):
    x = clusters(5000)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert (
        PseudoCal().fit(model, mapped, executor=RayExecutor()).scaling
        == PseudoCal().fit(model, x).scaling
    )


def test_a_tolerance_stops_after_the_same_blocks_for_everyone(ray, model):
    x = clusters(60_000)
    method = PseudoCal(tolerance=0.02)
    local = method.fit(model, x, executor=LocalExecutor())
    assert method.fit(model, x, executor=RayExecutor(workers=2)).scaling == local.scaling
    assert local.settings["blocks_used"] < 6 < local.settings["blocks"]
    assert local.scaling.log_se < 0.02
    assert abs(np.log(local.temperature / PseudoCal().fit(model, x).temperature)) < 3 * 0.02


def test_stopping_cancels_the_rest(ray, tmp_path, capfd):
    """Far fewer of a thousand blocks are touched than there are, and soon none any more."""
    predict, folder = linear(), str(tmp_path)

    def noting(x):
        Path(folder, f"{time.monotonic_ns()}").touch()
        return predict(x)

    blocks = [Drawn(i) for i in range(1000)]
    done = PseudoCal(tolerance=0.03).fit(
        noting, blocks, executor=RayExecutor(workers=2), batch_size=500
    )
    touched, before = len(os.listdir(folder)), -1
    while touched > before:  # being dismissed takes a moment
        time.sleep(0.5)
        touched, before = len(os.listdir(folder)), touched
    assert done.settings["blocks_used"] < 50
    assert touched <= 2 * (
        done.settings["blocks_used"] + 2 * 4
    )  # two passes a block; four ahead for each worker
    assert not capfd.readouterr().out  # nothing of it on a terminal


def test_killing_a_worker_changes_nothing(ray, tmp_path, caplog):
    predict, folder = linear(), str(tmp_path)

    def slow(x):
        Path(folder, str(os.getpid())).touch()
        time.sleep(0.02)
        return predict(x)

    killed: list[str] = []

    def kill_one():
        while not killed:
            time.sleep(0.05)
            for pid in os.listdir(folder)[:1]:
                os.kill(int(pid), signal.SIGKILL)
                killed.append(pid)

    blocks = [Drawn(i) for i in range(20)]
    thread = threading.Thread(target=kill_one)
    thread.start()
    survived = PseudoCal().fit(slow, blocks, executor=RayExecutor(workers=2))
    thread.join()
    assert len(os.listdir(folder)) == 3  # two workers and the one that took a dead one's place
    assert survived.settings["skipped"] == {}
    assert [
        m
        for m in caplog.messages
        if "a worker died on block" in m and "try 1" in m and "\n" not in m
    ]
    assert survived.scaling == PseudoCal().fit(predict, blocks, executor=LocalExecutor()).scaling


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_a_block_that_always_fails_is_reported_and_skipped(ray, model, how):
    blocks = [Broken(i, how) if i == 4 else Drawn(i) for i in range(10)]
    executor = RayExecutor(workers=1, max_bad=0.1, tries=2)
    done = PseudoCal().fit(model, blocks, executor=executor)
    assert list(done.settings["skipped"]) == ["drawn 4"]
    assert done.settings["blocks_used"] == 9
    assert done.counts["pairs"] == 9 * 300


def test_more_than_a_share_of_failing_blocks_is_fatal(model):
    blocks = [Broken(i, "raises") if i == 4 else Drawn(i) for i in range(10)]
    assert list(
        PseudoCal().fit(model, blocks, executor=LocalExecutor(0.1)).settings["skipped"]
    ) == ["drawn 4"]
    with pytest.raises(
        InputError,
        match=r"at most 5% of 10 blocks to fail, got at least 1: drawn 4: OSError: truncated",
    ):
        PseudoCal().fit(model, blocks, executor=LocalExecutor(max_bad=0.05))


@pytest.mark.slow
def test_a_block_that_fails_now_and_then_is_tried_again(ray, model, tmp_path):
    blocks = [Flaky(i, str(tmp_path)) if i == 2 else Drawn(i) for i in range(5)]
    done = PseudoCal().fit(model, blocks, executor=RayExecutor(workers=1, max_bad=0, tries=3))
    well = [Drawn(i) for i in range(5)]
    assert done.scaling == PseudoCal().fit(model, well, executor=LocalExecutor()).scaling


@pytest.mark.slow
def test_a_model_that_cannot_be_made_is_told_as_such(ray):
    with pytest.raises(InputError, match=r"blocks to fail.*no such file"):
        PseudoCal().fit(
            model_file("missing.onnx"), clusters(500), executor=RayExecutor(workers=1, tries=1)
        )


@pytest.mark.slow
def test_a_model_file_is_opened_by_the_workers(ray, tmp_path):
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(16, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(module, torch.zeros(2, 16)).save(tmp_path / "model.pt")
    x = clusters(600).astype(np.float32)
    file = model_file(str(tmp_path / "model.pt"), trust=True)
    by_name = PseudoCal().fit(file, x, executor=RayExecutor(workers=1))
    made = PseudoCal().fit(Deferred(lambda: lambda x: 3 * x), x, executor=LocalExecutor())
    assert by_name.temperature == pytest.approx(PseudoCal().fit(module, x).temperature, rel=1e-5)
    assert made.temperature > 0


def test_more_than_there_is_room_for_is_refused(ray, model):
    with pytest.raises(
        InputError, match=r"expected a cluster with room for a worker of .*'GPU': 1"
    ):
        PseudoCal().fit(model, clusters(500), executor=RayExecutor(num_gpus=1))


def test_refuses_what_workers_cannot_read(model):
    for data in ([], iter([clusters(10)]), [clusters(10)]):
        with pytest.raises(InputError, match="an array, or a list of blocks"):
            PseudoCal().fit(model, data, executor=LocalExecutor())
    with pytest.raises(InputError, match="at least one worker"):
        RayExecutor(workers=0)


@dataclass(frozen=True)
class Drawn:
    """A block of clusters that is drawn rather than read."""

    number: int

    @property
    def name(self):
        return f"drawn {self.number}"

    def read(self, source):
        return clusters(300, seed=self.number)


@dataclass(frozen=True)
class Broken(Drawn):
    how: str

    def read(self, source):
        if self.how == "dies":
            os._exit(1)
        raise OSError("truncated")


@dataclass(frozen=True)
class Flaky(Drawn):
    folder: str

    def read(self, source):
        if len(os.listdir(self.folder)) < 2:
            Path(self.folder, f"{time.monotonic_ns()}").touch()
            raise OSError("not just now")
        return super().read(source)
