"""Time and memory by rows, classes and workers, and a model of the running time on a cluster.

    python benchmarks/scaling.py [map rows classes forty fit anytime workers blocks model]

Every figure comes from a separate process. On a shared machine wall-clock time says little, so
tables also have the CPU time, and the load average at their start. `map` writes a file of 2 GB into
the temporary folder and removes it at the end.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

CENTRES = np.random.default_rng(1).normal(size=(10, 16))
MAPPED = (10_000_000, 100)


def cheap(x: np.ndarray) -> np.ndarray:
    """A linear classifier that is three times too sure of itself."""
    return 3 * (x @ CENTRES.T - 0.5 * (CENTRES**2).sum(axis=1))


def target(n: int, seed: int = 2) -> np.ndarray:
    """Clusters that overlap."""
    rng = np.random.default_rng(seed)
    return CENTRES[rng.integers(0, 10, n)] + 1.5 * rng.normal(size=(n, 16))


@dataclass(frozen=True)
class Drawn:
    """A block of the target that is drawn where it is needed."""

    number: int
    rows: int

    @property
    def name(self) -> str:
        """Which it is."""
        return f"block {self.number}"

    def read(self, source: Any) -> np.ndarray:
        """Its rows."""
        return target(self.rows, seed=1000 + self.number)


def network(folder: str, width: int) -> Callable[[np.ndarray], np.ndarray]:
    """The classifier behind six layers of work.

    Each process notes the CPU time it has spent in it.
    """
    weights = (
        np.random.default_rng(3).normal(size=(width, width)).astype(np.float32) if width else None
    )
    spent = 0.0

    def predict(x: np.ndarray) -> np.ndarray:
        nonlocal spent
        start = time.process_time()
        if weights is not None:
            h = np.ones((len(x), width), dtype=np.float32)
            for _ in range(6):
                h = np.tanh(h @ weights)
        logits = cheap(x)
        spent += time.process_time() - start
        Path(folder, str(os.getpid())).write_text(str(spent))
        return logits

    return predict


# ------------------------------------------------------------------------------------------------
# what is measured


def write_logits(path: str, rows: str | int, classes: str | int) -> dict[str, Any]:
    """Float16 logits whose labels were drawn at T = 2, and the labels beside them."""
    rng, rows, classes = np.random.default_rng(0), int(rows), int(classes)
    out = np.lib.format.open_memmap(path, "w+", np.float16, (rows, classes))
    labels = np.empty(rows, dtype=np.int64)
    step = max(1, 10_000_000 // classes)
    for i in range(0, rows, step):
        z = 2 * rng.standard_normal((min(step, rows - i), classes), dtype=np.float32)
        sums = np.exp(z).cumsum(axis=1)
        drawn = (sums < rng.random((len(z), 1), dtype=np.float32) * sums[:, -1:]).sum(axis=1)
        labels[i : i + step] = np.minimum(drawn, classes - 1)
        out[i : i + step] = 2 * z
    out.flush()
    np.save(path + ".labels.npy", labels)
    return {}


def read_file(path: str, cold: str) -> dict[str, Any]:
    """Read a file once, from the disk or from the memory that the system keeps of it."""
    if cold == "cold":
        forget(path)
    with open(path, "rb", buffering=0) as file:
        buffer, start = bytearray(2**22), time.perf_counter()
        while file.readinto(buffer):
            pass
        return {"step": time.perf_counter() - start}


def forget(path: str) -> None:
    """Let the system drop what it keeps of a file."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def fit_and_score(path: str, rows: str, cold: str = "warm") -> dict[str, Any]:
    """`fit_temperature` and the ECE on the first rows of a memory map."""
    from pseudocal import fit_temperature, metrics

    if cold == "cold":
        forget(path)
    logits = np.load(path, mmap_mode="r")[: int(rows)]
    labels = np.load(path + ".labels.npy", mmap_mode="r")[: int(rows)]
    start = time.perf_counter()
    temperature = fit_temperature(logits, labels).temperature
    fitted = time.perf_counter()
    ece = metrics.ece(metrics.Outcomes.from_logits(logits, labels))
    return {
        "fit": fitted - start,
        "ece": time.perf_counter() - fitted,
        "temperature": temperature,
        "value": ece,
    }


def fit_forty(folder: str) -> dict[str, Any]:
    """A map of 40 GB.

    A million rows of 100 classes in ten places, and holes of zeros, which say nothing, between.
    """
    from pseudocal import fit_temperature, metrics

    real, labels = (
        np.load(f"{folder}/logits.npy", mmap_mode="r"),
        np.load(f"{folder}/logits.npy.labels.npy"),
    )
    n, path = 200_000_000, f"{folder}/forty.npy"
    written, y = (
        np.lib.format.open_memmap(path, "w+", np.float16, (n, 100)),
        np.zeros(n, dtype=np.uint8),
    )
    for k in range(10):
        here, there = (
            slice(100_000 * k, 100_000 * (k + 1)),
            slice(20_000_000 * k, 20_000_000 * k + 100_000),
        )
        written[there], y[there] = real[here], labels[here]
    written.flush()
    del written
    try:
        logits = np.load(path, mmap_mode="r")
        start, cpu = time.perf_counter(), time.process_time()
        fitted = fit_temperature(logits, y).temperature
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        parts = (slice(i, i + 10_000_000) for i in range(0, n, 10_000_000))
        whole = sum(
            metrics.Reliability.of(metrics.Outcomes.from_logits(logits[part], y[part]))
            for part in parts
        )
        return {
            "gigabytes": os.path.getsize(path) / 1e9,
            "fit": seconds,
            "fit_cpu": cpu,
            "ece": time.perf_counter() - start - seconds,
            "temperature": fitted,
            "alone": fit_temperature(real[:1_000_000], labels[:1_000_000]).temperature,
            "rows": int(whole.count.sum()),
        }
    finally:
        os.unlink(path)


def fit_array(rows: str) -> dict[str, Any]:
    """`PseudoCal().fit` in one process."""
    from pseudocal import PseudoCal

    x = target(int(rows))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of drawing them
    start, cpu = time.perf_counter(), time.process_time()
    calibration = PseudoCal().fit(cheap, x)
    status = Path("/proc/self/status").read_text()
    return {
        "held": int(status.partition("VmHWM:")[2].split()[0]) / 1024,
        "step": time.perf_counter() - start,
        "cpu_step": time.process_time() - cpu,
        "input": x.nbytes / 2**20,
        "temperature": calibration.temperature,
        "passes": calibration.counts["forward_passes"],
    }


def anytime(rows: str) -> dict[str, Any]:
    """All of the target beside a tolerance, block by block."""
    from pseudocal import PseudoCal
    from pseudocal.distributed import LocalExecutor

    x = target(int(rows))
    full = PseudoCal().fit(cheap, x, batch_size=4096)
    quick = [
        PseudoCal(tolerance=0.01, seed=s).fit(cheap, x, executor=LocalExecutor()) for s in range(10)
    ]
    return {
        "full": full.temperature,
        "full_passes": full.counts["forward_passes"],
        "passes": [c.counts["forward_passes"] for c in quick],
        "off": [c.temperature / full.temperature - 1 for c in quick],
        "blocks": quick[0].settings["blocks"],
        "used": [c.settings["blocks_used"] for c in quick],
    }


def on_workers(
    workers: str, blocks: str, rows: str, width: str, memory: str = str(2**29)
) -> dict[str, Any]:
    """Blocks on the workers of a Ray session that is already there."""
    from pseudocal import PseudoCal
    from pseudocal.distributed import Deferred, RayExecutor

    executor = RayExecutor(workers=int(workers))
    cut = [Drawn(i, int(rows)) for i in range(int(blocks))]
    with executor.connected(), tempfile.TemporaryDirectory() as folder:
        start, cpu = time.perf_counter(), time.process_time()
        model = Deferred(partial(network, folder, int(width)))
        calibration = PseudoCal(memory=int(memory)).fit(model, cut, executor=executor)
        spent = [float(path.read_text()) for path in Path(folder).iterdir()]
        return {
            "step": time.perf_counter() - start,
            "driver_cpu": time.process_time() - cpu,
            "busiest": max(spent),
            "spent": sum(spent),
            "temperature": calibration.temperature,
            "passes": calibration.counts["forward_passes"],
        }


def constants() -> dict[str, Any]:
    """What a block costs beyond its forward passes: bytes sent back, time to merge them."""
    from pseudocal import PseudoCal

    packed = [PseudoCal().collect(cheap, target(2048, seed=i), part=i).pack() for i in range(50)]
    collected = PseudoCal().empty_evidence()
    start = time.process_time()
    for part in packed:
        collected.merge(part)
    merged = time.process_time()
    rows = collected.temperature().rows
    return {
        "bytes": sum(array.nbytes for array in packed[0].values()),
        "merge": (merged - start) / len(packed),
        "final_fit": time.process_time() - merged,
        "rows": rows,
    }


# ------------------------------------------------------------------------------------------------------ the tables


def measured(function: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """Run a function in a process of its own; add its CPU time and the most memory it held."""
    command = [sys.executable, __file__, "--child", function.__name__, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def child(name: str, *arguments: str) -> None:
    result = globals()[name](*arguments)
    used = resource.getrusage(resource.RUSAGE_SELF)
    extra = {"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss / 1024}
    print(json.dumps(result | extra))


def title(text: str, *columns: str) -> None:
    load = os.getloadavg()[0]
    print(f"\n### {text}\n\nLoad average {load:.1f} on {os.cpu_count()} cores.\n")
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))


def table_map(folder: str) -> None:
    path = f"{folder}/logits.npy"
    if not Path(path).exists():
        measured(write_logits, path, *MAPPED)
    title(
        "A memory map of 10^7 x 100 float16 (2 GB)",
        "",
        "file read twice, s",
        "fit, s",
        "ECE, s",
        "ratio",
        "CPU, s",
        "peak, MB",
    )
    for how in ("cold", "warm"):
        read = sum(measured(read_file, path, how)["step"] for _ in range(2))
        got = measured(fit_and_score, path, MAPPED[0], how)
        ratio = (got["fit"] + got["ece"]) / read
        print(
            f"| {how} | {read:.2f} | {got['fit']:.2f} | {got['ece']:.2f} | {ratio:.2f} | {got['cpu']:.1f} "
            f"| {got['peak']:.0f} |"
        )
    print(f"\nT = {got['temperature']:.4f} (labels drawn at 2), ECE = {got['value']:.2%}")


def table_rows(folder: str) -> None:
    path = f"{folder}/logits.npy"
    if not Path(path).exists():
        measured(write_logits, path, *MAPPED)
    title(
        "Rows of 100 classes, float16, from a memory map",
        "rows",
        "fit, s",
        "ECE, s",
        "CPU, s",
        "peak, MB",
    )
    for rows in (10**3, 10**4, 10**5, 10**6, 10**7):
        got = measured(fit_and_score, path, rows)
        print(
            f"| {rows:,} | {got['fit']:.3f} | {got['ece']:.3f} | {got['cpu']:.1f} | {got['peak']:.0f} |"
        )


def table_classes(folder: str) -> None:
    title(
        "Classes, 2 x 10^8 float16 numbers in each file",
        "classes",
        "rows",
        "fit, s",
        "ECE, s",
        "CPU, s",
        "peak, MB",
        "T",
    )
    for classes in (2, 10, 100, 1000, 20_000):
        path, rows = f"{folder}/classes.npy", 200_000_000 // classes // (5 if classes == 2 else 1)
        measured(write_logits, path, rows, classes)
        got = measured(fit_and_score, path, rows)
        print(
            f"| {classes:,} | {rows:,} | {got['fit']:.2f} | {got['ece']:.2f} | {got['cpu']:.1f} | {got['peak']:.0f} "
            f"| {got['temperature']:.4f} |"
        )
        os.unlink(path)


def table_forty(folder: str) -> None:
    if not Path(f"{folder}/logits.npy").exists():
        measured(write_logits, f"{folder}/logits.npy", *MAPPED)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    title(
        "A map larger than memory",
        "file, GB",
        "memory, GB",
        "fit, s",
        "CPU, s",
        "ECE in parts, s",
        "peak, MB",
        "T",
    )
    got = measured(fit_forty, folder)
    print(
        f"| {got['gigabytes']:.0f} | {memory:.0f} | {got['fit']:.0f} | {got['fit_cpu']:.0f} | {got['ece']:.0f} "
        f"| {got['peak']:.0f} | {got['temperature']:.6f} |"
    )
    print(
        f"\nT of the million rows by themselves: {got['alone']:.6f}. ECE over {got['rows']:,} rows."
    )


def table_fit(folder: str) -> None:
    title(
        "PseudoCal().fit, 16 features, 10 classes, a model that costs nothing",
        "rows",
        "s",
        "CPU, s",
        "us a row",
        "input, MB",
        "peak, MB",
        "T",
    )
    for rows in (10**3, 10**4, 10**5, 10**6, 10**7):
        got = measured(fit_array, rows)
        each = 1e6 * got["cpu_step"] / rows
        print(
            f"| {rows:,} | {got['step']:.2f} | {got['cpu_step']:.2f} | {each:.1f} | {got['input']:.0f} "
            f"| {got['held']:.0f} | {got['temperature']:.4f} |"
        )


def table_anytime(folder: str) -> None:
    title(
        "tolerance=0.01 on 1,000,000 rows, 10 seeds",
        "",
        "forward passes",
        "T against that of all rows",
    )
    got = measured(anytime, 10**6)
    off = [f"{100 * o:+.2f}%" for o in got["off"]]
    print(f"| all | {got['full_passes']:,} | T = {got['full']:.4f} |")
    print(f"| tolerance | {min(got['passes']):,} to {max(got['passes']):,} | {', '.join(off)} |")
    print(f"\n{min(got['used'])} to {max(got['used'])} of {got['blocks']} blocks were used.")


def table_workers(folder: str) -> None:
    title(
        "Workers: 60 blocks of 512 rows, a network of six layers of 1,024",
        "workers",
        "s",
        "CPU of the busiest worker, s",
        "CPU of all workers, s",
        "CPU of the driver, s",
        "T",
    )
    got = {w: measured(on_workers, w, 60, 512, 1024) for w in (1, 2)}
    for workers, g in got.items():
        print(
            f"| {workers} | {g['step']:.1f} | {g['busiest']:.1f} | {g['spent']:.1f} | {g['driver_cpu']:.2f} "
            f"| {g['temperature']:.9f} |"
        )
    one, two = got[1], got[2]
    wall, cpu = two["step"] / one["step"], two["busiest"] / one["busiest"]
    print(f"\nTime of two over one: {wall:.2f}; CPU of the busiest worker: {cpu:.2f}")


def table_blocks(folder: str) -> None:
    title(
        "Driver against the number of blocks",
        "blocks",
        "rows in each",
        "memory=",
        "peak, MB",
        "driver CPU, s",
        "ms a block",
    )
    for blocks, rows, memory in (
        (10, 25_600, 2**29),
        (1000, 256, 2**29),
        (10, 256, 2**23),
        (1000, 256, 2**23),
    ):
        g = measured(on_workers, 2, blocks, rows, 0, memory)
        each = 1e3 * g["driver_cpu"] / blocks
        print(
            f"| {blocks:,} | {rows:,} | {memory >> 20} MB | {g['peak']:.0f} | {g['driver_cpu']:.2f} | {each:.1f} |"
        )


def table_model(folder: str) -> None:
    title("Constants", "what", "measured")
    got, many = measured(constants), measured(on_workers, 2, 300, 2048, 0)
    driver = many["driver_cpu"] / 300
    fraction = many["passes"] / (300 * 2048)
    print(
        f"| forward passes for each row: itself, and its mix if the two were told apart | {fraction:.2f} |"
    )
    print(
        f"| sent back by a block of 2,048 rows and 10 classes in float64 | {got['bytes'] / 1024:.0f} KB |"
    )
    print(f"| CPU of the driver to merge one | {1e3 * got['merge']:.2f} ms |")
    print(
        f"| CPU of the driver for each block, all that Ray does included | {1e3 * driver:.1f} ms |"
    )
    print(
        f"| CPU of the final fit of {got['rows']:,} mixup samples | {1e3 * got['final_fit']:.1f} ms |"
    )
    print("\nBy the model, 500 million inputs, 1,000 forward passes a second on a worker:\n")
    print(
        "| workers | all rows, h | of which the driver is busy | tolerance=0.01, s | predictions, h |"
    )
    print("|---|---|---|---|---|")
    for workers in (1, 8, 64, 512, 4096):
        print("| " + " | ".join(extrapolated(workers, fraction, driver)) + " |")


def extrapolated(
    workers: int, fraction: float, driver: float, rows: float = 5e8, rate: float = 1000.0
) -> list[str]:
    """The model of docs/howto/cluster.md: whoever is busier, the workers or the driver, sets the time."""
    blocks = rows / 2048
    work, driven = rows * fraction / rate / workers, blocks * driver
    rounds = math.ceil(6 / workers)  # blocks that a tolerance of 0.01 took, see above
    quick = rounds * 2048 * fraction / rate
    predictions = max(rows / rate / workers, driven)
    whole = max(work, driven)
    return [
        f"{workers:,}",
        f"{whole / 3600:.1f}",
        f"{driven / whole:.0%}",
        f"{quick:.0f}",
        f"{predictions / 3600:.1f}",
    ]


def main(names: list[str]) -> None:
    tables = {
        name.removeprefix("table_"): table
        for name, table in globals().items()
        if name.startswith("table_")
    }
    with tempfile.TemporaryDirectory() as folder:
        for name in names or tables:
            tables[name](os.environ.get("SCALING_FOLDER", folder))
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main(sys.argv[1:])
