"""Files near and far are the same blocks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pseudocal import InputError, PseudoCal
from pseudocal.app import shards
from pseudocal.calibrators.executors import block_order
from pseudocal.distributed import LocalExecutor, RayExecutor, dataset_blocks

from ...conftest import clusters, npz_files


def parquet(path, x):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({f"c{i}": x[:, i] for i in range(x.shape[1])}), path)


def test_a_folder_a_pattern_a_list_and_a_far_folder_are_one(tmp_path):
    paths = npz_files(tmp_path, 3)
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".000.npz.17").touch()
    names = [str(path) for path in paths]
    assert [s.name for s in shards(tmp_path)] == names
    assert [s.name for s in shards(f"{tmp_path}/*.npz")] == names
    assert [s.name for s in shards(reversed(paths))] == names[::-1]
    assert [s.name for s in shards(f"file://{tmp_path}")] == [f"file://{name}" for name in names]
    assert [s.name for s in shards(f"file://{tmp_path}/00[01]*.npz")] == [
        f"file://{name}" for name in names[:2]
    ]


def test_every_kind_of_file_holds_the_same_rows(tmp_path):
    import fsspec

    x = clusters(20)
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "b.npz", other=x[:1], x=x)
    parquet(tmp_path / "c.parquet", x)
    fsspec.filesystem("memory").pipe_file("/far/d.npy", (tmp_path / "a.npy").read_bytes())
    (read,) = [s.read() for s in shards("memory://far/d.npy")]
    np.testing.assert_array_equal(read, x)
    for name in ("a.npy", "b.npz", "c.parquet"):
        (shard,) = shards(tmp_path / name, field="x")
        np.testing.assert_array_equal(shard.read(), x)
    (some,) = shards(tmp_path / "c.parquet", columns=["c3", "c1"], dtype="float32")
    np.testing.assert_array_equal(some.read(), x[:, [3, 1]].astype(np.float32))


def test_far_files_on_ray_agree_with_near_ones_here(ray, model, tmp_path):
    for i in range(4):
        parquet(tmp_path / f"{i}.parquet", clusters(200, seed=i))
    near = PseudoCal().fit(model, shards(tmp_path), executor=LocalExecutor())
    far = PseudoCal().fit(
        model, shards(f"file://{tmp_path}/*.parquet"), executor=RayExecutor(workers=1)
    )
    assert far.scaling == near.scaling


@pytest.mark.slow
def test_a_dataset_of_ray_in_its_own_blocks(ray, model):
    arrays = [clusters(200, seed=i) for i in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        dataset = ray.data.from_numpy(arrays).map_batches(lambda batch: {"x": 2 * batch["data"]})
        blocks = dataset_blocks(dataset, "x")
    halved = PseudoCal().fit(lambda x: model(x / 2), blocks, executor=RayExecutor(workers=1))
    merged = PseudoCal().empty_evidence()
    for i, j in enumerate(block_order(0, 4)):
        merged.merge(PseudoCal().collect(model, arrays[j], part=i).pack())
    assert halved.temperature == pytest.approx(PseudoCal().conclude(merged).temperature, rel=1e-6)


def test_what_cannot_be_read_says_where_it_is(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(tmp_path / "flat.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"objects.npy holds a pickle"):
        shards(tmp_path / "objects.npy")[0].read()
    with pytest.raises(InputError, match=f"file://{tmp_path}/objects.npy holds a pickle"):
        shards(f"file://{tmp_path}/objects.npy")[0].read()
    with pytest.raises(InputError, match=r"got float64 of shape \(3,\)"):
        shards(tmp_path / "flat.npy")[0].read()
    np.savez(tmp_path / "cut.npz", x=np.zeros((99, 3)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:500])
    with pytest.raises(InputError, match=r"cut.npz is truncated"):
        shards(tmp_path / "cut.npz")[0].read()
    np.savez_compressed(tmp_path / "worn.npz", x=np.random.default_rng(0).normal(size=(99, 3)))
    worn = bytearray((tmp_path / "worn.npz").read_bytes())
    worn[200:900] = bytes(700)
    (tmp_path / "worn.npz").write_bytes(worn)
    with pytest.raises(InputError, match=r"worn.npz is truncated or damaged"):
        shards(tmp_path / "worn.npz")[0].read()
    for content, what in ((b"hello", "not a NumPy file"), (b"", "empty")):
        (tmp_path / "text.npy").write_bytes(content)
        with pytest.raises(InputError, match=rf"text.npy is {what}"):
            shards(tmp_path / "text.npy")[0].read()
    with pytest.raises(InputError, match="no such file"):
        shards(tmp_path / "missing.npy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no files that end in"):
        shards(tmp_path / "empty")
