"""Results appear all at once or not at all.

On a full disk, in a folder that refuses, in one that vanishes.
"""

from __future__ import annotations

import errno
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pseudocal.app.cli import main
from pseudocal.app.publishing import STAGED

from .conftest import WRITTEN, in_child, names, rows, seed_of


def test_no_room_at_all_is_found_before_the_first_forward_pass(calibrate, disk, passes):
    out = disk("128k")
    (out / "mine").write_bytes(bytes(2**17 - 2**13))
    code, err = calibrate(out)
    assert code == 4
    assert err.startswith(
        f"pseudocal: expected room for {out / STAGED}, got No space left on device"
    )
    assert err.count("\n") == 1
    assert names(out) == {"mine"}
    assert passes == []


def test_no_room_for_the_logits(calibrate, disk, tmp_path):
    out = disk("256k")
    np.save(tmp_path / "many.npy", rows(40_000))
    code, err = calibrate(out / "deep" / "er", data=tmp_path / "many.npy")
    assert code == 4
    assert err.startswith(
        f"pseudocal: expected room for {out / 'deep' / 'er'}, got No space left on device"
    )
    assert err.count("\n") == 1
    assert names(out) == set()


def test_no_room_for_the_report(calibrate, disk):
    out = disk("1m")
    assert calibrate(out / "results", "--seed", 1)[0] == 0
    _, used, free = shutil.disk_usage(out)
    (out / "mine").write_bytes(
        bytes(free - used + 2**13)
    )  # enough for all but the end of what is written last
    before = {name: (out / "results" / name).read_bytes() for name in names(out / "results")}
    code, err = calibrate(out / "results", "--seed", 2)
    assert code == 4
    assert err.startswith("pseudocal: expected room for ")
    assert "report.html" in err
    assert {
        name: (out / "results" / name).read_bytes() for name in names(out / "results")
    } == before
    (out / "mine").unlink()
    assert calibrate(out / "results", "--seed", 2)[0] == 0
    assert seed_of(out / "results") == (2, 2)


@pytest.mark.parametrize("suffix", [pytest.param("pt", marks=pytest.mark.slow), "pt2"])
def test_no_room_for_a_model_of_torch(suffix, disk, tmp_path):
    """Torch aborts the process when it writes to a full disk, so it is not what writes."""
    torch = pytest.importorskip("torch")
    module, x, path = torch.nn.Linear(5, 3), torch.zeros(2, 5), tmp_path / f"model.{suffix}"
    with torch.no_grad():
        module.weight.mul_(5)
    module = torch.nn.Sequential(torch.nn.Linear(5, 5000), torch.nn.Linear(5000, 5), module).eval()
    if suffix == "pt":
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            torch.jit.trace(module, x).save(path)
    else:
        program = torch.export.export(
            module, (x,), dynamic_shapes=({0: torch.export.Dim("n", max=4096)},)
        )
        torch.export.save(program, path)
    np.save(tmp_path / "x.npy", rows(200))
    out = disk("160k")
    words = ["calibrate", str(path), str(tmp_path / "x.npy"), "-o", str(out), "-q", "--trust-model"]
    done = in_child(words)
    assert done.returncode == 4, done.stderr
    assert f"pseudocal: expected room for {out}, got No space left on device" in done.stderr
    assert names(out) == set()


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, 2**17))


def test_files_that_may_not_be_so_large(features, tmp_path):
    (tmp_path / "plain.py").write_text("import numpy as np\npredict = lambda x: x[:, :3] * 5\n")
    np.save(tmp_path / "many.npy", rows(40_000))
    words = ["calibrate", "plain:predict", str(tmp_path / "many.npy"), "-o", "out", "-q"]
    done = in_child(words, preexec_fn=small_files, cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("pseudocal: expected room for out, got File too large")
    assert not (tmp_path / "out").exists()


def test_apply_says_that_there_is_no_room(disk, features, tmp_path, capsys, calibrate):
    assert calibrate(tmp_path / "out")[0] == 0
    np.save(tmp_path / "logits.npy", rows(10_000)[:, :3])
    target = disk("64k") / "p.npy"
    words = ["apply", tmp_path / "out" / "calibration.json", tmp_path / "logits.npy", "-o", target]
    assert main([str(word) for word in words]) == 4
    assert capsys.readouterr().err.startswith(
        f"pseudocal: expected room for {target}, got No space left on device"
    )
    assert names(target.parent) == set()


def test_a_read_only_disk_is_found_before_the_first_forward_pass(calibrate, disk, passes):
    out = disk("256k")
    subprocess.run(["mount", "-o", "remount,ro", str(out)], check=True)
    for place in (out, out / "below" / "it"):
        code, err = calibrate(place)
        assert code == 4
        assert err.startswith("pseudocal: expected an output that can be written, got ")
        assert err.endswith(": Read-only file system\n")
    assert passes == []


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_folder_that_vanishes(comes_back, calibrate, passes, tmp_path, monkeypatch):
    out = tmp_path / "out"
    predict = sys.modules["staging_model"].predict

    def and_vanish(x):
        if out.exists() and len(passes) == 3:
            shutil.rmtree(out)
            if comes_back:
                (out / STAGED).mkdir(parents=True)
                (out / STAGED / "logits.npy").touch()
        return predict(x)

    monkeypatch.setattr(sys.modules["staging_model"], "predict", and_vanish)
    code, err = calibrate(out)
    assert code == 4
    assert f"{out} was removed or replaced before the results were written" in err
    assert not out.exists() or names(out) == set()


def test_a_folder_in_the_place_of_a_file_is_found_before_the_first_forward_pass(
    calibrate, passes, tmp_path
):
    (tmp_path / "out" / "report.json").mkdir(parents=True)
    code, err = calibrate(tmp_path / "out")
    assert (code, passes) == (4, [])
    assert (
        f"{tmp_path / 'out' / 'report.json'} cannot be written: there is a folder of that name"
        in err
    )


def test_a_mount_point(calibrate, disk):
    out = disk("1m")
    assert calibrate(out)[0] == 0
    assert names(out) == WRITTEN


@pytest.mark.parametrize("far", [False, True])
def test_behind_a_symlink(far, calibrate, disk, tmp_path):
    real = disk("1m") / "real" if far else tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    assert calibrate(tmp_path / "link")[0] == 0
    assert names(real) == WRITTEN
    assert (tmp_path / "link").is_symlink()


def test_a_symlink_to_nowhere(calibrate, passes, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    code, err = calibrate(tmp_path / "link")
    assert (code, passes) == (4, [])
    assert err.startswith("pseudocal: expected an output that can be written, got ")


def test_a_rename_across_disks_is_an_output_error(calibrate, tmp_path, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(self), None, str(target))

    monkeypatch.setattr(Path, "rename", refuse)
    code, err = calibrate(tmp_path / "out")
    assert code == 4
    assert err.startswith("pseudocal: expected an output that can be written, got ")
    assert not (tmp_path / "out").exists()


def test_a_file_system_without_locks(calibrate, tmp_path, monkeypatch):
    import fcntl

    def none_here(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none_here)
    assert calibrate(tmp_path / "out")[0] == 0
