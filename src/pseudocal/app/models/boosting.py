"""Boosted trees in the model files of XGBoost (JSON, UBJSON), LightGBM (text) and CatBoost (.cbm).

The formats hold data, not code. But the libraries do not check the indices in them: a wrong one
could crash the process or read foreign memory. So the trees are checked before anything is
predicted. Models with categorical splits are refused.

CatBoost itself may crash on a damaged file. So another process reads the file and writes it as JSON,
which is checked. The trees are evaluated here with NumPy. Models with text or embedding features are
refused too, and so are trees that do not have one split for each level.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.models.model import Expects, OpenModel, require_sound
from pseudocal.arrays import InputError, Inputs, Logits, binary_logits
from pseudocal.extras import MissingExtraError, require
from pseudocal.skipped import one_line

XGBOOST_OBJECTIVES = ("binary:logistic", "binary:logitraw", "multi:softmax", "multi:softprob")
LIGHTGBM_OBJECTIVES = ("binary", "multiclass")
# the lists of a tree with one value per node
XGBOOST_NODES = (
    "base_weights",
    "default_left",
    "left_children",
    "loss_changes",
    "parents",
    "right_children",
    "split_conditions",
    "split_indices",
    "split_type",
    "sum_hessian",
)
NO_PARENT = 2**31 - 1  # of the root
# markers of numbers in UBJSON, as big-endian NumPy dtypes
UBJSON_NUMBERS = {
    b"i": ">i1",
    b"U": ">u1",
    b"I": ">i2",
    b"l": ">i4",
    b"L": ">i8",
    b"d": ">f4",
    b"D": ">f8",
}
UBJSON_CONSTANTS = {b"T": True, b"F": False, b"Z": None}
CATBOOST = b"CBM1"  # how the files of CatBoost begin
CATBOOST_LOSSES = ("CrossEntropy", "Logloss", "MultiClass")  # those whose scores are logits
DEEPEST = 16  # levels of a tree, the most that CatBoost grows
# what a missing value counts as
MISSING = {"AsIs": -np.inf, "AsFalse": -np.inf, "AsTrue": np.inf}
CONVERT_CATBOOST = """
import sys
import catboost

model = catboost.CatBoost()
try:
    model.load_model(sys.argv[1], format="cbm")
    model.save_model(sys.argv[2], format="json")
except Exception as error:
    sys.exit(str(error))
"""
LARGEST = 2**20  # features or classes
UNSUPPORTED = "pass the model as module:function"


def boosting_kind(start: bytes) -> str | None:
    r"""Recognise a file of boosted trees by its first bytes.

    >>> boosting_kind(b'{"learner":{"attributes"'), boosting_kind(b"tree\nversion=v4\n")
    ('xgboost', 'lightgbm')
    >>> boosting_kind(b"CBM1"), boosting_kind(b"{}")
    ('catboost', None)
    """
    text = start.lstrip()
    if start.startswith(CATBOOST):
        return "catboost"
    if text.startswith(b"{") and b"learner" in text[:64]:
        return "xgboost"
    if text.startswith(b"tree") and b"version=" in text[:64]:
        return "lightgbm"
    return None


@contextmanager
def _naming(model: str) -> Iterator[None]:
    """Name the model in errors; a damaged file may raise anything."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{model} {error}") from error
    except Exception as error:
        raise InputError(f"{model} cannot be read: {one_line(error)}") from error


def _check_children(children: NDArray[Any], nodes: int) -> None:
    """Check that children exist and have one parent each: then every path ends in a leaf.

    Node 0 is the root.
    """
    require_sound(((children > 0) & (children < nodes)).all())
    require_sound(len(np.unique(children)) == len(children))


def _check_features(split: NDArray[Any], features: int) -> None:
    require_sound(((split >= 0) & (split < features)).all())


# ------------------------------------------------------------------------------ XGBoost


def open_xgboost(path: Path, **_: Any) -> OpenModel:
    """Open a classifier that XGBoost's `save_model` wrote."""
    xgboost = require("xgboost", "xgboost")
    with _naming(f"the XGBoost model {path}"):
        content = path.read_bytes()
        is_text = content.lstrip()[1:].lstrip().startswith(b'"')
        saved = json.loads(content) if is_text else decode_ubjson(content)
        rounds = _check_xgboost(saved["learner"])
        booster = xgboost.Booster()
        booster.load_model(bytearray(json.dumps(saved).encode()))  # what was checked, not the file
    features = booster.num_features()
    names = booster.feature_names

    def predict(x: Inputs, /) -> Logits:
        margins = booster.inplace_predict(
            np.asarray(x, dtype=np.float32),
            predict_type="margin",
            iteration_range=(0, rounds),
            validate_features=False,
        )
        return binary_logits(margins) if margins.ndim == 1 else margins

    return OpenModel(
        kind="xgboost",
        predict=predict,
        expects=Expects(
            (features,), "float32", None if names is None else tuple(names), frames=True
        ),
        notes=(f"XGBoost model of {features} features",),
    )


def _check_xgboost(learner: dict[str, Any]) -> int:
    """Check a model, and return the number of rounds to use; 0 for all."""
    objective = learner["objective"]
    if objective["name"] not in XGBOOST_OBJECTIVES:
        raise InputError(
            f"has the objective {objective['name']}, which gives no probabilities of classes"
        )
    booster = learner["gradient_booster"]
    if booster["name"] == "dart":
        require_sound(len(booster["weight_drop"]) == len(booster["gbtree"]["model"]["trees"]))
        booster = booster["gbtree"]
    if booster["name"] != "gbtree":
        raise InputError(f"is a {booster['name']}, not a model of trees: {UNSUPPORTED}")
    parameters = learner["learner_model_param"]
    groups = max(1, int(parameters["num_class"]))
    features = int(parameters["num_feature"])
    require_sound(0 < features < LARGEST and groups < LARGEST)
    require_sound(int(parameters.get("num_target", 1)) == 1)
    require_sound(parameters["base_score"].count(",") + 1 in (1, groups))
    if "softmax_multiclass_param" in objective:
        require_sound(int(objective["softmax_multiclass_param"]["num_class"]) == groups)
    require_sound(len(learner["feature_names"]) in (0, features))
    require_sound(len(learner["feature_types"]) in (0, features))
    model = booster["model"]
    if "c" in learner["feature_types"] or any(model.get("cats", {}).values()):
        raise InputError(f"has categorical features: {UNSUPPORTED}")
    trees = model["trees"]
    require_sound(len(model["tree_info"]) == len(trees) > 0)
    require_sound(int(model["gbtree_model_param"]["num_trees"]) == len(trees))
    require_sound(all(0 <= group < groups for group in model["tree_info"]))
    for number, tree in enumerate(trees):
        require_sound(tree["id"] == number)
        _check_xgboost_tree(tree, features)
    each = groups * int(model["gbtree_model_param"]["num_parallel_tree"])
    starts = list(range(0, len(trees) + 1, max(1, each)))
    require_sound(model.get("iteration_indptr", starts) == starts and starts[-1] == len(trees))
    best = int(learner["attributes"].get("best_iteration", -1)) + 1  # of early stopping
    require_sound(0 <= best < len(starts))
    return best


def _check_xgboost_tree(tree: dict[str, Any], features: int) -> None:
    if any(tree["split_type"]) or tree["categories"] or tree["categories_nodes"]:
        raise InputError(f"has categorical splits: {UNSUPPORTED}")
    require_sound(not tree["categories_segments"] and not tree["categories_sizes"])
    parameters = tree["tree_param"]
    nodes = len(tree["left_children"])
    require_sound(int(parameters["num_nodes"]) == nodes > 0)
    require_sound(int(parameters["num_feature"]) == features)
    require_sound(int(parameters["size_leaf_vector"]) <= 1)
    require_sound(all(len(tree[name]) == nodes for name in XGBOOST_NODES))
    left = np.array(tree["left_children"], dtype=np.int64)
    right = np.array(tree["right_children"], dtype=np.int64)
    parents = np.array(tree["parents"], dtype=np.int64)
    inner = left != -1
    require_sound((right[~inner] == -1).all())
    _check_children(np.concatenate([left[inner], right[inner]]), nodes)
    for children in (left, right):
        require_sound((parents[children[inner]] == np.flatnonzero(inner)).all())
    require_sound(((parents[1:] >= 0) & (parents[1:] < nodes)).all() and parents[0] == NO_PARENT)
    _check_features(np.array(tree["split_indices"])[inner], features)


def decode_ubjson(content: bytes) -> Any:
    r"""Return the value in UBJSON, the binary variant of JSON that XGBoost writes.

    >>> decode_ubjson(b"{i\x01a[$i#i\x02\x05\x06i\x01bSi\x02hi}")
    {'a': [5, 6], 'b': 'hi'}
    """
    file = BytesIO(content)
    return _value(file, _take(file))


def _take(file: BytesIO, size: int = 1) -> bytes:
    found = file.read(max(0, size))
    if len(found) != size:
        raise InputError("is cut off or damaged")
    return found


def _value(file: BytesIO, marker: bytes) -> Any:
    """The value behind its marker."""
    if marker == b"{":
        found = dict[str, Any]()
        while (marker := _take(file)) != b"}":
            name = _text(file, marker)
            found[name] = _value(file, _take(file))
        return found
    if marker == b"[":
        return _array(file)
    if marker == b"S":
        return _text(file, _take(file))
    if marker in UBJSON_CONSTANTS:
        return UBJSON_CONSTANTS[marker]
    return _numbers(file, marker)[0]


def _array(file: BytesIO) -> list[Any]:
    marker = _take(file)
    if marker == b"$":  # numbers of one kind
        kind = _take(file)
        if _take(file) != b"#":
            raise InputError("is damaged")
        return _numbers(file, kind, _length(file, _take(file)))
    if marker == b"#":
        return [_value(file, _take(file)) for _ in range(_length(file, _take(file)))]
    found = []
    while marker != b"]":
        found.append(_value(file, marker))
        marker = _take(file)
    return found


def _text(file: BytesIO, marker: bytes) -> str:
    return _take(file, _length(file, marker)).decode("utf-8")


def _length(file: BytesIO, marker: bytes) -> int:
    return int(_numbers(file, marker)[0])


def _numbers(file: BytesIO, marker: bytes, count: int = 1) -> list[Any]:
    if marker not in UBJSON_NUMBERS:
        raise InputError("is damaged")
    dtype = np.dtype(UBJSON_NUMBERS[marker])
    found: list[Any] = np.frombuffer(_take(file, count * dtype.itemsize), dtype).tolist()
    return found


# ------------------------------------------------------------------------------ LightGBM


def open_lightgbm(path: Path, **_: Any) -> OpenModel:
    """Open a classifier that the `save_model` of a LightGBM booster wrote."""
    lightgbm = require("lightgbm", "lightgbm")
    with _naming(f"the LightGBM model {path}"):
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        # without the sizes LightGBM splits the text as we do
        lines = [line for line in lines if not line.startswith("tree_sizes=")]
        header, *trees = _sections(lines)
        scale = _check_lightgbm(header, trees)
        booster = lightgbm.Booster(model_str="\n".join(lines) + "\n")
    names = tuple(booster.feature_name())
    given = names != tuple(f"Column_{i}" for i in range(len(names)))

    def predict(x: Inputs, /) -> Logits:
        scores = booster.predict(np.asarray(x, dtype=np.float64), raw_score=True)
        return binary_logits(scale * scores) if scores.ndim == 1 else scores

    return OpenModel(
        kind="lightgbm",
        predict=predict,
        expects=Expects((len(names),), "float64", names if given else None, frames=True),
        notes=(f"LightGBM model of {len(names)} features",),
    )


def _sections(lines: list[str]) -> Iterator[dict[str, str]]:
    """The settings at the top of a LightGBM file, and those of each tree.

    >>> list(_sections(["tree", "num_class=1", "", "Tree=0", "num_leaves=2", "end of trees", "x=1"]))
    [{'num_class': '1'}, {'num_leaves': '2'}]
    """
    section = dict[str, str]()
    for line in lines:
        if line == "end of trees":
            break
        name, _, value = line.partition("=")
        if name == "Tree":
            yield section
            section = {}
        elif "=" in line:
            require_sound(name not in section)
            section[name] = value
        elif line == "average_output":
            raise InputError(f"is a random forest of LightGBM: {UNSUPPORTED}")
    yield section


def _check_lightgbm(header: dict[str, str], trees: list[dict[str, str]]) -> float:
    """Check the trees of a model, and return the scale of its scores."""
    objective, *settings = header.get("objective", "none").split()
    if objective not in LIGHTGBM_OBJECTIVES:
        raise InputError(f"has the objective {objective}, which gives no probabilities of classes")
    features = int(header["max_feature_idx"]) + 1
    groups = int(header["num_tree_per_iteration"])
    require_sound(features > 0 and len(header["feature_names"].split()) == features)
    require_sound(groups == int(header["num_class"]) > 0)
    require_sound((objective == "binary") == (groups == 1))
    require_sound(len(trees) > 0 and len(trees) % groups == 0)
    for tree in trees:
        if int(tree.get("num_cat", 0)) or int(tree.get("is_linear", 0)):
            raise InputError(f"splits categories or has linear leaves: {UNSUPPORTED}")
        leaves = int(tree["num_leaves"])
        require_sound(leaves > 0 and len(_column(tree, "leaf_value", float)) == leaves)
        if leaves == 1:
            continue
        left, right = _column(tree, "left_child"), _column(tree, "right_child")
        split = _column(tree, "split_feature")
        require_sound(len(left) == len(right) == len(split) == leaves - 1)
        children = np.concatenate([left, right])
        _check_children(children[children >= 0], leaves - 1)
        require_sound((~children[children < 0] < leaves).all())
        _check_features(split, features)
        require_sound(not (_column(tree, "decision_type") & 1).any())  # 1 stands for categories
    scales = [float(each.partition(":")[2]) for each in settings if each.startswith("sigmoid:")]
    return scales[0] if scales else 1.0


def _column(tree: dict[str, str], name: str, kind: type = int) -> NDArray[Any]:
    return np.array([kind(number) for number in tree[name].split()])


# ------------------------------------------------------------------------------ CatBoost


@dataclass(frozen=True)
class Tree:
    """A tree with one split for each level: a value above its border sets one bit of the leaf."""

    columns: NDArray[np.intp]  # of the inputs, one for each split
    borders: NDArray[np.float32]
    leaves: NDArray[np.float64]  # (leaves, scores)

    def __call__(self, x: NDArray[np.float32], /) -> NDArray[np.float64]:
        """Look up the scores of each row.

        >>> borders = np.array([0.5, 0.5], dtype=np.float32)
        >>> tree = Tree(np.array([0, 1]), borders, np.array([[0.0], [10.0], [20.0], [30.0]]))
        >>> tree(np.array([[1, 0], [0, 1]], dtype=np.float32)).ravel()
        array([10., 20.])
        """
        above = x[:, self.columns] > self.borders
        leaf = above @ (1 << np.arange(len(self.borders)))
        return self.leaves[leaf]


@dataclass(frozen=True)
class CatBoostPredictor:
    """Logits of a CatBoost model."""

    trees: list[Tree]
    scale: float
    bias: NDArray[np.float64]
    missing: NDArray[np.float32]  # what a missing value counts as, for each column

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of rows."""
        values = np.asarray(x, dtype=np.float32)
        values = np.where(np.isnan(values), self.missing, values)
        scores = np.zeros((len(values), len(self.bias)))
        for tree in self.trees:
            scores += tree(values)
        scores = self.scale * scores + self.bias
        return binary_logits(scores[:, 0]) if len(self.bias) == 1 else scores


def open_catboost(path: Path, **_: Any) -> OpenModel:
    """Open a classifier that CatBoost's `save_model` wrote."""
    if find_spec("catboost") is None:
        raise MissingExtraError("catboost", "catboost")
    with _naming(f"the CatBoost model {path}"):
        saved = _as_json(path)
        features = _check_kind(saved)
        predict = _predictor(saved, features)
    names = tuple(str(each["feature_id"]) for each in features)
    return OpenModel(
        kind="catboost",
        predict=predict,
        expects=Expects((len(features),), "float32", names if all(names) else None, frames=True),
        classes=_class_names(saved, max(2, len(predict.bias))),
        notes=(f"CatBoost model of {len(features)} features",),
    )


def _as_json(path: Path) -> dict[str, Any]:
    """The content of a file, read by CatBoost in another process, which may crash."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.json"
        # -P: nothing is imported from the current folder
        words = [sys.executable, "-P", "-c", CONVERT_CATBOOST, str(path.absolute()), str(target)]
        done = subprocess.run(words, capture_output=True, check=False)  # noqa: S603
        if done.returncode:
            said = done.stderr.decode(errors="replace").split("\n")
            why = next((line for line in said if line.strip()), "it is damaged")
            raise InputError(f"cannot be read: {why.strip()[:300]}")
        content: dict[str, Any] = json.loads(target.read_bytes())
    return content


def _check_kind(saved: dict[str, Any]) -> list[dict[str, Any]]:
    """Refuse models that are not classifiers of numbers; return the features by column."""
    loss = saved["model_info"]["params"]["loss_function"]["type"]
    if loss not in CATBOOST_LOSSES:
        raise InputError(f"has the loss {loss}, which gives no probabilities of classes")
    others = sorted(set(saved["features_info"]) - {"float_features"})
    if others:
        raise InputError(f"has {others[0].replace('_', ' ')}: {UNSUPPORTED}")
    if "oblivious_trees" not in saved:
        raise InputError(f"has trees that are not symmetric: {UNSUPPORTED}")
    features = saved["features_info"]["float_features"]
    require_sound(0 < len(features) < LARGEST)
    for i, each in enumerate(features):
        require_sound(each["feature_index"] == each["flat_feature_index"] == i)
    return list(features)


def _predictor(saved: dict[str, Any], features: list[dict[str, Any]]) -> CatBoostPredictor:
    scale, bias = saved["scale_and_bias"]
    require_sound(0 < len(bias) < LARGEST)
    missing = [MISSING[each["nan_value_treatment"]] for each in features]
    trees = [_tree(each, len(features), len(bias)) for each in saved["oblivious_trees"]]
    return CatBoostPredictor(
        trees, float(scale), np.array(bias, dtype=np.float64), np.array(missing, dtype=np.float32)
    )


def _tree(saved: dict[str, Any], features: int, scores: int) -> Tree:
    splits = saved["splits"] or []
    require_sound(len(splits) <= DEEPEST)
    require_sound(all(each["split_type"] == "FloatFeature" for each in splits))
    columns = np.array([each["float_feature_index"] for each in splits], dtype=np.intp)
    borders = np.array([each["border"] for each in splits], dtype=np.float32)
    leaves = np.array(saved["leaf_values"], dtype=np.float64)
    _check_features(columns, features)
    require_sound(leaves.size == scores << len(splits) and np.isfinite(leaves).all())
    return Tree(columns, borders, leaves.reshape(-1, scores))


def _class_names(saved: dict[str, Any], classes: int) -> tuple[str, ...]:
    """The class names, if they are texts."""
    names = saved["model_info"].get("class_params", {}).get("class_names", [])
    if len(names) != classes or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)
