"""Models of tables: scikit-learn's own types need no consent, and hostile files run nothing."""

from __future__ import annotations

import csv
import functools
import json
import operator
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal.app.models.files import open_model
from pseudocal.app.models.model import UntrustedError
from pseudocal.arrays import InputError

sklearn = pytest.importorskip("sklearn")
skops = pytest.importorskip("skops.io")

from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, StandardScaler  # noqa: E402
from sklearn.svm import LinearSVC  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402


def table(n: int, seed: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = (x[:, :classes] + rng.gumbel(size=(n, classes))).argmax(axis=1)
    return x, y


def write_csv(path: Path, x: np.ndarray) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c", "d"], *x.tolist()])
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    return write_csv(tmp_path_factory.mktemp("rows") / "rows.csv", table(300, 1)[0])


TWO = [("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=2))]
MODELS: dict[str, Any] = {
    "forest": RandomForestClassifier(5, max_depth=4, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=5, random_state=0),
    "histogram": HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "mlp": MLPClassifier((5,), solver="adam", max_iter=20, tol=1, random_state=0),
    "neighbours": KNeighborsClassifier(20),
    "ball tree": KNeighborsClassifier(20, algorithm="ball_tree", metric="manhattan"),
    "scaled": make_pipeline(StandardScaler(), LogisticRegression()),
    "calibrated": CalibratedClassifierCV(LinearSVC(), cv=2),
    "voting": VotingClassifier([*TWO, ("c", GaussianNB())], voting="soft"),
    "stacking": StackingClassifier(TWO, cv=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_goes_from_its_file_and_a_csv_to_a_verdict(pseudocal, rows, tmp_path, name):
    model = MODELS[name].fit(*table(200, 0))
    skops.dump(model, tmp_path / "model.skops")
    done = pseudocal("calibrate", tmp_path / "model.skops", rows, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert "verdict: " in done.out
    probabilities = np.exp(np.load(tmp_path / "out" / "logits.npy"))
    expected = model.predict_proba(table(300, 1)[0])
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_ignored_columns_are_listed_and_a_leftover_truth_is_not_shown(pseudocal, tmp_path):
    names = np.array(["ash", "beech", "oak"])
    x, y = table(200, 0)
    skops.dump(GaussianNB().fit(x, names[y]), tmp_path / "model.skops")
    new, truth = table(300, 1)
    header = ["a", "b", "c", "d", "region", "species"]
    cells = [[*row, "north", names[label]] for row, label in zip(new.tolist(), truth, strict=True)]
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *cells])
    out = tmp_path / "out"
    given = ("calibrate", tmp_path / "model.skops", tmp_path / "new.csv", "-o", out)
    done = pseudocal(*given, "--features", "a,b,c,d")
    assert done.code == 0, done.err
    assert "300 rows, unchanged; ignored columns: region, species" in done.err
    assert pseudocal("label", out, "-n", 5).code == 0
    header = (out / "to-label.csv").read_text().splitlines()[0]
    assert ("region" in header, "species" in header) == (True, False)
    assert '["species", ' not in (out / "label.html").read_text()


# ------------------------------------------------------------------------------ hostile files


def changed_schema(source: Path, target: Path, change) -> Path:
    """A copy of a skops file with a changed schema."""
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema).encode()
            after.writestr(name, content)
    return target


def text(value: Any) -> dict[str, Any]:
    return {
        "__class__": "str",
        "__module__": "builtins",
        "__loader__": "JsonNode",
        "content": json.dumps(value),
        "is_json": True,
    }


def tuple_of(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {
        "__class__": "tuple",
        "__module__": "builtins",
        "__loader__": "TupleNode",
        "content": list(nodes),
    }


CALLED = [
    "os.system",
    "posix.system",
    "builtins.eval",
    "builtins.exec",
    "builtins.open",
    "subprocess.call",
    "operator.methodcaller",
    "functools.partial",
    "numpy.load",
    "numpy.lib.npyio.load",
    "joblib.load",
    "pickle.loads",
    "importlib.import_module",
    "sklearn.datasets.load_files",
    "sklearn.datasets._base._fetch_remote",
    "sklearn.utils._testing.run_command",
    "sklearn.utils._mocking.CheckingClassifier",
    "sklearn.tree._tree.os.system",
    "sklearn.metrics._dist_metrics.PyFuncDistance64",
    "sklearn.pipeline.joblib",
]
LOADERS = ["ConstructorFromReduceNode", "ListNode", "TupleNode", "SetNode", "LossNode"]


def calling(folder: Path, called: str, loader: str) -> Path:
    """A skops file that calls something with a command that writes a canary file."""
    skops.dump(LogisticRegression().fit(*table(50, 0)), folder / "good.skops")
    module, _, name = called.rpartition(".")
    command = text(f"touch {folder / 'canary'}")

    def change(schema):
        node: dict[str, Any] = {"__class__": name, "__module__": module, "__loader__": loader}
        node["content"] = tuple_of(command)
        if loader in ("ListNode", "TupleNode", "SetNode"):
            node["content"] = [command]
        if loader == "LossNode":
            node["__reduce__"] = {"args": tuple_of(command)}
        schema["content"]["content"]["C"] = node

    return changed_schema(folder / "good.skops", folder / "bad.skops", change)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("called", CALLED)
def test_a_file_that_calls_something_runs_nothing(tmp_path, called, loader):
    path = calling(tmp_path, called, loader)
    with pytest.raises(UntrustedError, match=called.replace(".", r"\.")):
        open_model(str(path))
    assert not (tmp_path / "canary").exists()


def test_such_a_file_runs_its_command_if_it_is_trusted(tmp_path):
    path = calling(tmp_path, "os.system", "ConstructorFromReduceNode")
    open_model(str(path), trust=True)
    assert (tmp_path / "canary").exists()


FUNCTIONS = {
    "posix.system": os.system,
    "builtins.eval": eval,
    "functools.partial": functools.partial(os.system, "true"),
    "operator.methodcaller": operator.methodcaller("tofile", "canary"),
    "numpy.load": np.load,
    "<lambda>": lambda x: Path("canary").touch() or x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_pipeline_with_a_function_is_refused_by_name(pseudocal, rows, tmp_path, name):
    model = make_pipeline(FunctionTransformer(), LogisticRegression()).fit(*table(50, 0))
    model.steps[0][1].func = FUNCTIONS[name]
    skops.dump(model, tmp_path / "model.skops")
    done = pseudocal("calibrate", tmp_path / "model.skops", rows, "-o", tmp_path / "out")
    assert done.code == 3
    assert name in done.err
    assert "--trust-model" in done.err
    assert not (tmp_path / "out" / "calibration.json").exists()


class Doubled(LogisticRegression):
    """A type of the user."""


def test_a_type_of_the_user_needs_consent(pseudocal, rows, tmp_path, monkeypatch):
    import sys
    from types import ModuleType

    holder = ModuleType("my_types")
    holder.Doubled = Doubled  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_types", holder)
    monkeypatch.setattr(Doubled, "__module__", "my_types")
    skops.dump(Doubled().fit(*table(50, 0)), tmp_path / "model.skops")
    words = ["calibrate", tmp_path / "model.skops", rows, "-o", tmp_path / "out"]
    refused = pseudocal(*words)
    assert refused.code == 3
    assert "my_types.Doubled" in refused.err
    assert pseudocal(*words, "--trust-model").code == 0


# ------------------------------------------------------------------------------ damaged trees


def reset(tree: Any, name: str, value: int) -> None:
    """Change a value of the first node of a decision tree, as a hostile file could."""
    state = tree.__getstate__()
    state["nodes"][name][0] = value
    tree.__setstate__(state)


def wrong_child(model):
    reset(model.estimators_[0].tree_, "left_child", 10**9)


def endless(model):
    reset(model.estimators_[0].tree_, "right_child", 0)


def wrong_feature(model):
    reset(model.estimators_[0].tree_, "feature", 10**9)


def negative_feature(model):
    reset(model.estimators_[0].tree_, "feature", -(10**9))


def narrow_tree(model):
    model.estimators_[0].n_features_in_ = 2


def tree_as_estimator(model):
    model.estimators_[0] = model.estimators_[0].tree_


def method_replaced(model):
    model.estimators_[0]._validate_X_predict = np.multiply


@pytest.mark.parametrize(
    "damage",
    [
        wrong_child,
        endless,
        wrong_feature,
        negative_feature,
        narrow_tree,
        tree_as_estimator,
        method_replaced,
    ],
)
def test_a_forest_with_a_damaged_tree_is_refused(tmp_path, damage):
    model = RandomForestClassifier(2, random_state=0).fit(*table(50, 0))
    check_refused(model, damage, tmp_path)


def wrong_leaf(model):
    model._predictors[0][0].nodes["left"][0] = 10**9


def wrong_column(model):
    model._predictors[0][0].nodes["feature_idx"][0] = 4


def wrong_bitset(model):
    model._predictors[0][0].nodes["is_categorical"][0] = 1


@pytest.mark.parametrize("damage", [wrong_leaf, wrong_column, wrong_bitset])
def test_a_histogram_model_with_a_damaged_tree_is_refused(tmp_path, damage):
    model = HistGradientBoostingClassifier(max_iter=2).fit(*table(200, 0))
    check_refused(model, damage, tmp_path)


def fewer_features(model):
    model.n_features_in_ = 2


def fewer_outputs(model):
    model.n_trees_per_iteration_ = 1
    model.init_ = "zero"


@pytest.mark.parametrize("damage", [fewer_features, fewer_outputs])
def test_a_boosted_model_whose_parts_do_not_fit_is_refused(tmp_path, damage):
    check_refused(GradientBoostingClassifier(n_estimators=2).fit(*table(60, 0)), damage, tmp_path)


def tree_state(position, change):
    def damage(model):
        state = list(model._tree.__getstate__())
        state[position] = change(state[position])
        model._tree.__setstate__(tuple(state))

    return damage


def changed(name, value):
    def change(nodes):
        nodes = nodes.copy()
        nodes[name] = value
        return nodes

    return change


@pytest.mark.parametrize(
    "damage",
    [
        tree_state(1, lambda order: order + 10**9),
        tree_state(2, changed("idx_end", 10**9)),
        tree_state(2, changed("is_leaf", 0)),
        tree_state(3, lambda bounds: bounds[:, :, :1].copy()),
        tree_state(6, lambda count: 10**6),
    ],
    ids=["order", "rows", "leaves", "bounds", "count"],
)
def test_neighbours_with_a_damaged_tree_are_refused(tmp_path, damage):
    check_refused(KNeighborsClassifier().fit(*table(60, 0)), damage, tmp_path)


def check_refused(model, damage, folder: Path) -> None:
    skops.dump(model, folder / "model.skops")
    open_model(str(folder / "model.skops"))
    damage(model)
    skops.dump(model, folder / "bad.skops")
    with pytest.raises(InputError, match=r"bad\.skops cannot be read: .*trees are damaged"):
        open_model(str(folder / "bad.skops"))
