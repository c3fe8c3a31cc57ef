"""Models of CatBoost (`.cbm`).

The format holds data, not code, but CatBoost itself may crash on a damaged file. So another process
reads the file and writes it as JSON, which is checked. The trees are evaluated here with NumPy.
Models with categorical, text or embedding features are refused, and so are trees that do not have
one split for each level.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.models.boosting import LARGEST, UNSUPPORTED, naming, require_sound
from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.arrays import InputError, Inputs, Logits, binary_logits
from pseudocal.extras import MissingExtraError

CONVERT = """
import sys
import catboost

model = catboost.CatBoost()
try:
    model.load_model(sys.argv[1], format="cbm")
    model.save_model(sys.argv[2], format="json")
except Exception as error:
    sys.exit(str(error))
"""
LOSSES = ("CrossEntropy", "Logloss", "MultiClass")  # those whose scores are logits
DEEPEST = 16  # levels of a tree, the most that CatBoost grows
# what a missing value counts as
MISSING = {"AsIs": -np.inf, "AsFalse": -np.inf, "AsTrue": np.inf}


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
    with naming(f"the CatBoost model {path}"):
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
        words = [sys.executable, "-P", "-c", CONVERT, str(path.absolute()), str(target)]
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
    if loss not in LOSSES:
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
    require_sound(((columns >= 0) & (columns < features)).all())
    require_sound(leaves.size == scores << len(splits) and np.isfinite(leaves).all())
    return Tree(columns, borders, leaves.reshape(-1, scores))


def _class_names(saved: dict[str, Any], classes: int) -> tuple[str, ...]:
    """The class names, if they are texts."""
    names = saved["model_info"].get("class_params", {}).get("class_names", [])
    if len(names) != classes or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)
