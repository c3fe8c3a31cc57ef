"""A scikit-learn model saved with skops.

All types in the file are known before any object is built. skops trusts scikit-learn's public
estimators (`sklearn.utils.all_estimators`) and NumPy's and SciPy's functions of arrays. Fitted
models also hold private objects of scikit-learn. `TRUSTED` lists those that only hold numbers and
names. No function of scikit-learn that can import, read or call something is on it, and nothing is
trusted because its name begins with `sklearn.`.

Trees are read by compiled code that does not check their indices: a file with a wrong index could
crash the process or read foreign memory. `check_trees` refuses such a file before anything is
predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.models.model import (
    Expects,
    OpenModel,
    UntrustedError,
    or_input_error,
    require_sound,
)
from pseudocal.arrays import InputError, Inputs, Predictor
from pseudocal.extras import require
from pseudocal.predictors.classifier import ClassifierPredictor

KERNELS = (
    "CompoundKernel",
    "ConstantKernel",
    "DotProduct",
    "ExpSineSquared",
    "Exponentiation",
    "Matern",
    "Product",
    "RBF",
    "RationalQuadratic",
    "Sum",
    "WhiteKernel",
)
TRUSTED = frozenset(
    {
        # nodes of trees, checked by `check_trees`
        "sklearn.tree._tree.Tree",  # decision trees, forests, gradient boosting
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neighbors._ball_tree.BallTree",
        # distances without parameters, in the trees of nearest neighbours
        "sklearn.metrics._dist_metrics.ChebyshevDistance64",
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.metrics._dist_metrics.ManhattanDistance64",
        # the state of an optimiser, which a fitted MLP keeps
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        # CalibratedClassifierCV: a classifier with the curve fitted to it
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.calibration._TemperatureScaling",
        # the dtype of a column, which imputers and encoders keep
        "numpy.dtype",
        # a dict with attributes: the estimators of voting and stacking by name
        "sklearn.utils._bunch.Bunch",
        # splits and the default score of a grid search
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.StratifiedKFold",
        # the columns of a ColumnTransformer by dtype or by a pattern
        "sklearn.compose._column_transformer.make_column_selector",
        # what is left over in a ColumnTransformer (scikit-learn up to 1.7)
        "sklearn.compose._column_transformer._RemainderColsList",
        # scores of features: functions of two arrays
        "sklearn.feature_selection._univariate_selection.chi2",
        "sklearn.feature_selection._univariate_selection.f_classif",
        # a Gaussian process of two classes, and covariance functions
        "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        *(f"sklearn.gaussian_process.kernels.{name}" for name in KERNELS),
    }
)


def open_skops(path: Path, *, trust: bool = False, **_: Any) -> OpenModel:
    """Open a classifier that `skops.io.dump` wrote, if all of its types are known to be safe.

    A trusted file may hold other types too, which can run code.
    """
    skops = require("skops.io", "sklearn")
    with or_input_error(f"the skops file {path} cannot be read"):
        unknown = skops.get_untrusted_types(file=path)
    foreign = [name for name in unknown if name not in TRUSTED]
    if foreign and not trust:
        raise UntrustedError(
            f"{path} holds types that are not scikit-learn's own data, {', '.join(foreign)}, and "
            "may run code: trust the file if you know who made it"
        )
    with or_input_error(f"the skops file {path} cannot be read"):
        model = skops.load(path, trusted=unknown)
        if not trust:
            check_trees(model)
    if not is_classifier(model):
        raise InputError(f"{path} holds a {type(model).__name__}, not a classifier")
    with or_input_error(f"{path} holds no fitted classifier"):  # scikit-learn would not write it
        return of_classifier(model)


def is_classifier(model: Any) -> bool:
    """Whether an object predicts probabilities or decision values, as scikit-learn names them."""
    return hasattr(model, "predict_proba") or hasattr(model, "decision_function")


@dataclass(frozen=True)
class OfArrays:
    """A classifier that was fitted to arrays: columns of numbers lose their names."""

    predict: Predictor

    def __call__(self, x: Inputs, /) -> Any:
        """Predict one batch."""
        dtypes = getattr(x, "dtypes", ())  # of a data frame
        if len(dtypes) and all(
            isinstance(each, np.dtype) and each.kind in "biuf" for each in dtypes
        ):
            x = x.to_numpy()
        return self.predict(x)


def of_classifier(model: Any) -> OpenModel:
    """Wrap a fitted classifier, with the names of its features and classes."""
    names = getattr(model, "feature_names_in_", None)
    width = getattr(model, "n_features_in_", None)
    first = getattr(model, "steps", [(None, model)])[0][1]  # of a pipeline
    texts = hasattr(first, "build_analyzer")  # which scikit-learn's vectorizers of texts have
    columns = None if names is None else tuple(str(name) for name in names)
    predict = ClassifierPredictor(model)
    return OpenModel(
        kind="sklearn",
        predict=predict if names is not None else OfArrays(predict),
        expects=Expects(
            None if width is None else (int(width),),
            None,
            columns,
            text=texts,
            frames=not texts,
        ),
        classes=tuple(str(c) for c in getattr(model, "classes_", ())),
        notes=(f"{type(model).__name__} of {'texts' if texts else f'{width} features'}",),
    )


def check_trees(model: Any) -> None:
    """Refuse a model with a tree whose nodes point outside of it or outside of its inputs."""
    from sklearn.base import BaseEstimator
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.ensemble._gb import BaseGradientBoosting
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
    from sklearn.neighbors import BallTree, KDTree
    from sklearn.tree._classes import BaseDecisionTree
    from sklearn.tree._tree import Tree

    histogram = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)
    boosted = []
    for found, holder in _objects(model):
        if isinstance(found, Tree):
            require_sound(isinstance(holder, BaseDecisionTree))
            _check_tree(found, getattr(holder, "n_features_in_", None))
        elif isinstance(found, TreePredictor):
            require_sound(isinstance(holder, histogram))
            _check_predictor(found, holder)
        elif isinstance(found, KDTree | BallTree):
            _check_neighbours(found)
        elif isinstance(found, BaseEstimator):
            replaced = [name for name in vars(found) if callable(getattr(type(found), name, None))]
            require_sound(not replaced)  # a method that checks inputs may be among them
            if isinstance(found, BaseGradientBoosting):
                boosted.append(found)
    for each in boosted:  # after the trees: the check runs the model's first estimator
        _check_boosting(each)


def _objects(model: Any) -> Iterator[tuple[Any, Any]]:
    """Every object that a model holds, each with the estimator that holds it.

    An object with two holders comes twice.

    >>> from types import SimpleNamespace
    >>> inner = SimpleNamespace(values=[3])
    >>> [found for found, holder in _objects(inner)]
    [namespace(values=[3]), [3], 3]
    """
    waiting: list[tuple[Any, Any]] = [(model, None)]
    seen = set[tuple[int, int]]()
    while waiting:
        found, holder = waiting.pop()
        if (id(found), id(holder)) in seen:
            continue
        seen.add((id(found), id(holder)))
        yield found, holder
        if isinstance(found, dict):
            waiting += [(each, holder) for each in (*found.keys(), *found.values())]
        elif isinstance(found, list | tuple | set | frozenset):
            waiting += [(each, holder) for each in found]
        elif isinstance(found, np.ndarray) and found.dtype.hasobject:
            waiting += [(each, holder) for each in found.ravel().tolist()]
        if hasattr(found, "__dict__") and not isinstance(found, type):
            waiting += [(each, found) for each in vars(found).values()]


def _check_nodes(
    left: NDArray[Any],
    right: NDArray[Any],
    feature: NDArray[Any],
    leaf: NDArray[Any],
    features: Any,
) -> None:
    """Check the inner nodes of a tree: children come later, and features exist."""
    require_sound(isinstance(features, int | np.integer))
    inner = np.flatnonzero(~leaf)
    for child in (left[inner], right[inner]):
        require_sound(((child > inner) & (child < len(left))).all())
    require_sound(((feature[inner] >= 0) & (feature[inner] < features)).all())


def _check_tree(tree: Any, features: Any) -> None:
    require_sound(0 < tree.node_count <= tree.capacity)
    require_sound(tree.n_features == features)
    leaf = tree.children_left == -1
    _check_nodes(tree.children_left, tree.children_right, tree.feature, leaf, features)


def _check_predictor(predictor: Any, model: Any) -> None:
    nodes = predictor.nodes
    require_sound(isinstance(nodes, np.ndarray) and nodes.ndim == 1 and len(nodes))
    leaf = nodes["is_leaf"].astype(bool)
    feature = nodes["feature_idx"]
    features = model._n_features
    left, right = (nodes[side].astype(np.int64) for side in ("left", "right"))
    _check_nodes(left, right, feature, leaf, features)
    splits = ~leaf & nodes["is_categorical"].astype(bool)
    if splits.any():
        bitsets = predictor.raw_left_cat_bitsets
        require_sound(bitsets.ndim == 2 and bitsets.shape[1] == 8)
        require_sound((nodes["bitset_idx"][splits] < len(bitsets)).all())
        categorical = np.asarray(model._bin_mapper.is_categorical_, dtype=bool)
        require_sound(categorical.shape == (features,))
        require_sound(categorical[feature[splits]].all())


def _check_neighbours(tree: Any) -> None:
    from sklearn.metrics._dist_metrics import DistanceMetric64

    data, order, nodes, bounds, _, _, count, *_, metric, _ = tree.__getstate__()
    require_sound(isinstance(metric, DistanceMetric64))
    rows, columns = data.shape
    require_sound(rows > 0 and columns > 0)
    require_sound(order.shape == (rows,) and order.min() >= 0 and order.max() < rows)
    require_sound(count > 0 and nodes.shape == (count,))
    require_sound(bounds.ndim == 3 and bounds.shape[0] == (2 if "KD" in type(tree).__name__ else 1))
    require_sound(bounds.shape[1:] == (count, columns))
    start, end = nodes["idx_start"], nodes["idx_end"]
    require_sound(((start >= 0) & (start <= end) & (end <= rows)).all())
    childless = 2 * np.arange(count) + 2 >= count
    require_sound((nodes["is_leaf"][childless] != 0).all())


def _check_boosting(model: Any) -> None:
    """Check that the trees have the features of the model and add to as many columns as it has."""
    trees = model.estimators_
    require_sound(isinstance(trees, np.ndarray) and trees.ndim == 2)
    features: Any = getattr(model, "n_features_in_", None)
    require_sound(all(tree.tree_.n_features == features for tree in trees.ravel()))
    first = model._raw_predict_init(np.zeros((1, features), dtype=np.float32))
    require_sound(first.shape == (1, trees.shape[1]))
