from __future__ import annotations

import shutil

import numpy as np
import pytest

from pseudocal.calibrators import ensemble
from pseudocal.lab.bench import Store
from pseudocal.lab.bench.stages import compare_calibrators


def test_an_ensemble_has_the_members_of_its_group(tiny, done):
    task = tiny.tasks[0]
    logits = [np.load(done.folder(member) / "target.npz")["logits"] for member in task.members()]
    assert len(logits) == 3
    assert not np.allclose(logits[0], logits[1])
    together = np.load(done.folder(task) / "calibrations" / "ensemble.npy")
    np.testing.assert_allclose(together, ensemble(logits))


def test_target_labels_lie_apart_and_only_scores_read_them(tiny, done, tmp_path):
    shutil.copytree(done.out, tmp_path / "copy")
    store, task = Store(tmp_path / "copy"), tiny.tasks[0]
    folder = store.folder(task)
    with np.load(folder / "target.npz") as outputs:
        assert set(outputs) == {"logits", "features"}
    (folder / "target_labels.npy").unlink()
    shutil.rmtree(folder / "mixup")
    shutil.rmtree(folder / "calibrations")
    with pytest.raises(FileNotFoundError, match="target_labels"):
        compare_calibrators(task, tiny.calibrators, store)
    before = done.folder(task) / "calibrations"
    (folder / "calibrations" / "oracle.error.json").unlink()
    assert {path.name for path in (folder / "calibrations").iterdir()} | {"oracle.json"} == {
        path.name for path in before.iterdir()
    }
    for path in (folder / "calibrations").iterdir():
        assert path.read_bytes() == (before / path.name).read_bytes()
