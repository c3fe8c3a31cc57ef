"""Check the packages that would be published: `make release`.

Builds the sdist and the wheel, checks their metadata, installs the wheel alone and with each extra
into a separate environment, without constraints, and runs a few lines that use the extra. Then
it runs the commands of docs/howto/tables.md from the wheel, with the versions of constraints.txt,
and the library's tests from the sdist. It prints sizes. If all of this passes, the two files are in
`dist/`, ready for `twine upload`. `python .ci/release.py cli onnx` tries these extras only, and
`python .ci/release.py tables` the page only; they leave `dist/` alone. `--oldest`
(`make test-oldest`) installs the oldest version that pyproject.toml allows of each direct
dependency.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOT_FOR_USERS = {"dev", "docs", "test"}  # extras for those who work on pseudocal
TABLES = "tables"  # the name of the page docs/howto/tables.md, beside those of the extras
TABLE_EXTRAS = "cli,lightgbm,parquet,sklearn,xgboost"  # those that the page installs
LIBRARY_TESTS = ["calibrators", "metrics", "mixup", "predictors", "scaling"]

LIBRARY = """
import sys
import numpy as np
from pseudocal import PseudoCal
rng = np.random.default_rng(0)
weights = 3 * rng.normal(size=(8, 4))
calibration = PseudoCal().fit(lambda x: x @ weights, rng.normal(size=(400, 8)))
assert calibration.temperature > 0
assert "torch" not in sys.modules

import subprocess
command = subprocess.run([sys.executable, "-m", "pseudocal"], capture_output=True, text=True)
assert (command.returncode, command.stderr.count("\\n")) == (5, 1), command.stderr
"""
TORCH = """
import torch
from pseudocal import PseudoCal
from pseudocal.torch import calibrated
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
inputs = torch.randn(400, 8)
calibration = PseudoCal(estimator="mixup").fit(model, inputs)
same = calibrated(model, calibration)(inputs).argmax(1) == model(inputs).argmax(1)
assert same.all()
"""
SKLEARN = """
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from pseudocal.sklearn import CalibratedClassifier
inputs, labels = load_digits(return_X_y=True)
model = LogisticRegression(max_iter=200).fit(inputs[:500], labels[:500])
calibrated = CalibratedClassifier(model).fit(inputs[500:])
assert abs(calibrated.predict_proba(inputs[500:]).sum(axis=1) - 1).max() < 1e-6
"""
BOOSTED = """
import numpy as np
import {module}
from pseudocal.app.models.files import open_model
rng = np.random.default_rng(0)
inputs = rng.normal(size=(300, 5))
data = {module}.{data}(inputs, label=rng.integers(0, 3, 300))
settings = dict(objective="{objective}", num_class=3, verbosity={verbosity})
{module}.train(settings, data, 5).save_model("{file}")
assert np.asarray(open_model("{file}").predict(inputs[:7])).shape == (7, 3)
"""
CATBOOST = """
import numpy as np
from catboost import CatBoostClassifier
from pseudocal.app.models.files import open_model
rng = np.random.default_rng(0)
inputs = rng.normal(size=(300, 5))
model = CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False)
model.fit(inputs, rng.integers(0, 3, 300)).save_model("m.cbm")
expected = model.predict(inputs[:7], prediction_type="RawFormulaVal")
assert np.allclose(open_model("m.cbm").predict(inputs[:7]), expected)
"""
COMMAND = """
import subprocess, sys
from pathlib import Path
import numpy as np
np.save("logits.npy", np.random.default_rng(0).normal(size=(200, 4)).astype("float32"))
command = [sys.executable, "-m", "pseudocal"]
subprocess.run([*command, "label", "logits.npy", "-o", "out", "-n", "50"], check=True)
assert Path("out/to-label.csv").exists()
"""
REPORT = """
from pathlib import Path
import numpy as np
from pseudocal.app import calibrate
Path("linear.py").write_text("def model(x): return x @ [[3.0, 0, 0], [0, 3.0, 0], [0, 0, 3.0]]")
np.save("x.npy", np.random.default_rng(0).normal(size=(200, 3)))
calibrate("linear:model", "x.npy", "out", trust=True)
assert Path("out/report.html").exists()
"""
ONNX = """
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from pseudocal.app.models.files import open_model
weights = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["logits"])],
    "linear",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])],
    [numpy_helper.from_array(weights, "w")],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
inputs = np.ones((7, 5), dtype=np.float32)
assert np.allclose(open_model("m.onnx").predict(inputs), inputs @ weights, atol=1e-5)
"""
HUGGING_FACE = """
import numpy as np
from transformers import ResNetConfig, ResNetForImageClassification
from pseudocal.app.models.files import open_model
config = ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], num_labels=3)
ResNetForImageClassification(config).save_pretrained("model")
inputs = np.zeros((2, 3, 32, 32), dtype=np.float32)
assert np.asarray(open_model("model").predict(inputs)).shape == (2, 3)
"""
PARQUET = """
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({"a": [1.0, 2.0]}), "table.parquet")
assert pq.read_table("table.parquet").num_rows == 2
"""
DATA = """
from pseudocal.lab.data import load
assert len(load("digits")["optdigits"]) == 1797
"""
ADAPT = """
from pathlib import Path
from pseudocal.lab.data import load
from pseudocal.lab.adapt import TrainingRun, train
domains = load("digits")
run = TrainingRun(Path("run"), iterations=5)
trained = train(domains["optdigits"], domains["fonts"].unlabelled(), run, method="mcc", backbone="digits")
assert trained.load() is not None
"""
DEMO = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "pseudocal", "demo", "-o", "demo"], check=True)
"""
BENCH = """
import subprocess, sys
suite = [sys.executable, "-m", "pseudocal", "bench", "run", "digits", "--quick"]
subprocess.run([*suite, "--iterations", "5", "-o", "runs"], check=True)
"""
RAY = """
import numpy as np
from pseudocal import PseudoCal
from pseudocal.distributed import RayExecutor
rng = np.random.default_rng(0)
weights = 3 * rng.normal(size=(8, 4))
inputs = rng.normal(size=(400, 8))
alone = PseudoCal().fit(lambda x: x @ weights, inputs)
together = PseudoCal().fit(lambda x: x @ weights, inputs, executor=RayExecutor(workers=1))
assert alone.temperature == together.temperature
"""
AUGMENT = """
import torch
from pseudocal import PseudoCal
from pseudocal.mixup import randaug
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
inputs = torch.rand(64, 3, 8, 8)
settings = PseudoCal(estimator="mixup")
assert settings.fit(model, inputs, strategy=randaug).temperature > 0
"""
README = "\n".join(
    re.findall(
        r"^```python\n(.*?)^```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
USES = {
    "": LIBRARY,
    "torch": TORCH,
    "sklearn": SKLEARN + README,
    "xgboost": BOOSTED.format(
        module="xgboost", data="DMatrix", objective="multi:softprob", verbosity=0, file="m.json"
    ),
    "lightgbm": BOOSTED.format(
        module="lightgbm", data="Dataset", objective="multiclass", verbosity=-1, file="m.txt"
    ),
    "catboost": CATBOOST,
    "onnx": ONNX,
    "hf": HUGGING_FACE,
    "cli": COMMAND,
    "parquet": PARQUET,
    "report": REPORT,
    "data": DATA,
    "demo": DEMO,
    "adapt": ADAPT,
    "bench": BENCH,
    "ray": RAY,
    "augment": AUGMENT,
}


def main() -> None:
    """Build, check, install and try."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("extras", nargs="*", help="these extras only (default: all)")
    parser.add_argument("--oldest", action="store_true", help="install the oldest dependencies")
    given = parser.parse_args()
    chosen = given.extras
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    offered = ["", *project["optional-dependencies"]]
    untried = set(offered) - NOT_FOR_USERS - set(USES)
    if untried:
        sys.exit(f"expected lines that try each extra in USES, got none for {sorted(untried)}")
    with tempfile.TemporaryDirectory() as folder:
        wheel, sdist = build(Path(folder))
        limits = oldest(project, Path(folder)) if given.oldest else []
        for extra in offered:
            if extra not in NOT_FOR_USERS and (not chosen or extra in chosen):
                try_wheel(wheel, extra, Path(folder), limits)
        everything = not (chosen or given.oldest)
        if TABLES in chosen or everything:
            test_tables(wheel, Path(folder))
        if everything:
            test_sdist(sdist, Path(folder))
            keep_in(ROOT / "dist", wheel, sdist)


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, built and checked in a separate environment."""
    python = environment(folder / "build")
    install(python, "build", "twine")
    run(python, "-m", "build", "--outdir", str(folder / "dist"), str(ROOT))
    files = sorted((folder / "dist").iterdir())
    run(python, "-m", "twine", "check", "--strict", *map(str, files))
    for file in files:
        print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB", flush=True)
    sdist, wheel = sorted(files, key=lambda file: file.suffix == ".whl")
    return wheel, sdist


def oldest(project: dict[str, Any], folder: Path) -> list[str]:
    """Options of pip for the oldest version of each dependency: ">=2.0" becomes "==2.0.*"."""
    extras = project["optional-dependencies"]
    needed = list(project["dependencies"])
    for extra in sorted(set(extras) - NOT_FOR_USERS):
        needed += extras[extra]
    found = (re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", each) for each in needed)
    lines = {f"{each[1]}=={each[2]}.*" for each in found if each}
    constraints = folder / "oldest.txt"
    constraints.write_text("\n".join(sorted(lines)))
    return ["-c", str(constraints)]


def try_wheel(wheel: Path, extra: str, folder: Path, limits: list[str]) -> None:
    """Install the wheel with one extra, and run the lines that use it."""
    place = folder / f"with-{extra or 'nothing'}"
    python = environment(place)
    empty = size(place)
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    install(python, *limits, requirement)
    work = folder / "work"
    work.mkdir()
    run(python, "-c", USES[extra], cwd=work)
    print(f"pseudocal[{extra}]: works, {(size(place) - empty) / 1e6:,.0f} MB", flush=True)
    shutil.rmtree(place)
    shutil.rmtree(work)


def test_tables(wheel: Path, folder: Path) -> None:
    """Install the wheel with pinned versions, and run the code and commands of docs/howto/tables.md."""
    python = environment(folder / "for-tables")
    requirement = f"{wheel}[{TABLE_EXTRAS}]"
    pinned = ["-c", str(ROOT / "constraints.txt")]
    install(python, *pinned, requirement, "hypothesis", "pytest")
    work = folder / "tables"
    shutil.copytree(ROOT / "tests", work / "tests")
    shutil.copytree(ROOT / "docs", work / "docs")
    page = "tests/app/cli/test_tables_page.py"
    run(python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", page, cwd=work)
    print("the commands of docs/howto/tables.md run from the wheel", flush=True)


def test_sdist(sdist: Path, folder: Path) -> None:
    """Install the sdist, and run the library's tests that are in it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (source,) = (folder / "sdist").iterdir()
    python = environment(folder / "from-sdist")
    install(python, str(sdist), "hypothesis", "pytest")
    tests = [*map(str, sorted(source.glob("tests/test_*.py")))]
    tests += [str(source / "tests" / name) for name in LIBRARY_TESTS]
    skipping = "--doctest-ignore-import-errors"  # as make test-core: optional packages are missing
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", skipping, *tests, cwd=source)
    print("the library's tests pass from the sdist", flush=True)


def keep_in(dist: Path, *files: Path) -> None:
    """Replace the files of `dist` by those that were tried, and say how to upload them."""
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    for file in files:
        shutil.copy2(file, dist)
    names = " ".join(f"{dist.name}/{file.name}" for file in files)
    print(f"Everything passed. To publish: twine upload {names}", flush=True)


def environment(place: Path) -> Path:
    """A new environment. Returns its Python."""
    venv.create(place, with_pip=True, clear=True)
    windows = os.name == "nt"
    return place / ("Scripts/python.exe" if windows else "bin/python")


def install(python: Path, *requirements: str) -> None:
    """Install packages. What is used a single time need not be compiled."""
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", *requirements)


def run(*words: str | Path, cwd: Path | None = None) -> None:
    """Run a program without PYTHONPATH, and stop if it fails."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=clean, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, words))[:200]}")


def size(place: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(file.lstat().st_size for file in place.rglob("*") if not file.is_dir())


if __name__ == "__main__":
    main()
