"""Boosted trees in the model files of XGBoost (JSON, UBJSON) and LightGBM (text).

Both formats hold data, not code. But the libraries do not check the indices in them: a wrong one
could crash the process or read foreign memory. So the trees are checked before anything is
predicted. Models with categorical splits are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.app.models.ubjson import decode_ubjson
from pseudocal.arrays import InputError, Inputs, Logits, binary_logits
from pseudocal.extras import require
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
CATBOOST = b"CBM1"  # how the files of CatBoost begin (`catboost.py`)
NO_PARENT = 2**31 - 1  # of the root
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
def naming(model: str) -> Iterator[None]:
    """Name the model in errors; a damaged file may raise anything."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{model} {error}") from error
    except Exception as error:
        raise InputError(f"{model} cannot be read: {one_line(error)}") from error


# ------------------------------------------------------------------------------ XGBoost


@dataclass(frozen=True)
class XGBoostPredictor:
    """Logits of an XGBoost model."""

    booster: Any
    rounds: int = 0  # boosting rounds to use; 0 for all

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of rows."""
        margins = self.booster.inplace_predict(
            np.asarray(x, dtype=np.float32),
            predict_type="margin",
            iteration_range=(0, self.rounds),
            validate_features=False,
        )
        return binary_logits(margins) if margins.ndim == 1 else margins


def open_xgboost(path: Path, **_: Any) -> OpenModel:
    """Open a classifier that XGBoost's `save_model` wrote."""
    xgboost = require("xgboost", "xgboost")
    with naming(f"the XGBoost model {path}"):
        content = path.read_bytes()
        is_text = content.lstrip()[1:].lstrip().startswith(b'"')
        saved = json.loads(content) if is_text else decode_ubjson(content)
        rounds = _check_xgboost(saved["learner"])
        booster = xgboost.Booster()
        booster.load_model(bytearray(json.dumps(saved).encode()))  # what was checked, not the file
    features = booster.num_features()
    names = booster.feature_names
    return OpenModel(
        kind="xgboost",
        predict=XGBoostPredictor(booster, rounds),
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


# ------------------------------------------------------------------------------ LightGBM


@dataclass(frozen=True)
class LightGBMPredictor:
    """Logits of a LightGBM model."""

    booster: Any
    scale: float = 1.0  # what the scores of a binary model are multiplied by

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of rows."""
        scores = self.booster.predict(np.asarray(x, dtype=np.float64), raw_score=True)
        return binary_logits(self.scale * scores) if scores.ndim == 1 else scores


def open_lightgbm(path: Path, **_: Any) -> OpenModel:
    """Open a classifier that the `save_model` of a LightGBM booster wrote."""
    lightgbm = require("lightgbm", "lightgbm")
    with naming(f"the LightGBM model {path}"):
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        # without the sizes LightGBM splits the text as we do
        lines = [line for line in lines if not line.startswith("tree_sizes=")]
        header, *trees = _sections(lines)
        scale = _check_lightgbm(header, trees)
        booster = lightgbm.Booster(model_str="\n".join(lines) + "\n")
    names = tuple(booster.feature_name())
    given = names != tuple(f"Column_{i}" for i in range(len(names)))
    return OpenModel(
        kind="lightgbm",
        predict=LightGBMPredictor(booster, scale),
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
        require_sound(leaves > 0 and len(_numbers(tree, "leaf_value", float)) == leaves)
        if leaves == 1:
            continue
        children = np.concatenate([_numbers(tree, "left_child"), _numbers(tree, "right_child")])
        split = _numbers(tree, "split_feature")
        require_sound(len(split) == leaves - 1 and len(children) == 2 * (leaves - 1))
        require_sound(len(_numbers(tree, "left_child")) == leaves - 1)
        _check_children(children[children >= 0], leaves - 1)
        require_sound((~children[children < 0] < leaves).all())
        _check_features(split, features)
        require_sound(not (_numbers(tree, "decision_type") & 1).any())  # 1 stands for categories
    scales = [float(each.partition(":")[2]) for each in settings if each.startswith("sigmoid:")]
    return scales[0] if scales else 1.0


def _numbers(tree: dict[str, str], name: str, kind: type = int) -> NDArray[Any]:
    return np.array([kind(number) for number in tree[name].split()])


# ------------------------------------------------------------------------------ trees


def require_sound(condition: Any) -> None:
    """Refuse trees that do not fulfil a condition."""
    if not condition:
        raise InputError("cannot be read: its trees are damaged")


def _check_children(children: NDArray[Any], nodes: int) -> None:
    """Check that children exist and have one parent each: then every path ends in a leaf.

    Node 0 is the root.
    """
    require_sound(((children > 0) & (children < nodes)).all())
    require_sound(len(np.unique(children)) == len(children))


def _check_features(split: NDArray[Any], features: int) -> None:
    require_sound(((split >= 0) & (split < features)).all())
