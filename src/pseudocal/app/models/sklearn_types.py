"""Types of scikit-learn that may be loaded from a skops file without consent.

skops trusts scikit-learn's public estimators (`sklearn.utils.all_estimators`) and NumPy's and
SciPy's functions of arrays. Fitted models also hold private objects of scikit-learn. `TRUSTED` lists
those that only hold numbers and names. No function of scikit-learn that can import, read or call
something is on it, and nothing is trusted because its name begins with `sklearn.`.

Trees are read by compiled code that does not check their indices: a file with a wrong index could
crash the process or read foreign memory. `check_trees` refuses such a file before anything is
predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
            _require(isinstance(holder, BaseDecisionTree))
            _check_tree(found, getattr(holder, "n_features_in_", None))
        elif isinstance(found, TreePredictor):
            _require(isinstance(holder, histogram))
            _check_predictor(found, holder)
        elif isinstance(found, KDTree | BallTree):
            _check_neighbours(found)
        elif isinstance(found, BaseEstimator):
            replaced = [name for name in vars(found) if callable(getattr(type(found), name, None))]
            _require(not replaced)  # a method that checks inputs may be among them
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


def _require(condition: Any) -> None:
    if not condition:
        raise ValueError("its trees are damaged")


def _check_nodes(
    left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], features: Any
) -> None:
    """Check the inner nodes of a tree: children come later, and features exist.

    Leaves have a negative feature.
    """
    _require(isinstance(features, int | np.integer))
    own = np.arange(len(left))
    for child in (left, right):
        _require(((child > own) & (child < len(left)))[feature >= 0].all())
    _require((feature < features).all())


def _check_tree(tree: Any, features: Any) -> None:
    _require(0 < tree.node_count <= tree.capacity)
    _require(tree.n_features == features)
    leaf = tree.children_left == -1
    _require((tree.feature[~leaf] >= 0).all())
    inner = np.where(leaf, -1, tree.feature)
    _check_nodes(tree.children_left, tree.children_right, inner, features)


def _check_predictor(predictor: Any, model: Any) -> None:
    nodes = predictor.nodes
    _require(isinstance(nodes, np.ndarray) and nodes.ndim == 1 and len(nodes))
    leaf = nodes["is_leaf"].astype(bool)
    feature = nodes["feature_idx"]
    _require((feature[~leaf] >= 0).all())
    features = model._n_features
    _check_nodes(
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        np.where(leaf, -1, feature),
        features,
    )
    splits = ~leaf & nodes["is_categorical"].astype(bool)
    if splits.any():
        bitsets = predictor.raw_left_cat_bitsets
        _require(bitsets.ndim == 2 and bitsets.shape[1] == 8)
        _require((nodes["bitset_idx"][splits] < len(bitsets)).all())
        categorical = np.asarray(model._bin_mapper.is_categorical_, dtype=bool)
        _require(categorical.shape == (features,))
        _require(categorical[feature[splits]].all())


def _check_neighbours(tree: Any) -> None:
    from sklearn.metrics._dist_metrics import DistanceMetric64

    data, order, nodes, bounds, _, _, count, *_, metric, _ = tree.__getstate__()
    _require(isinstance(metric, DistanceMetric64))
    rows, columns = data.shape
    _require(rows > 0 and columns > 0)
    _require(order.shape == (rows,) and order.min() >= 0 and order.max() < rows)
    _require(count > 0 and nodes.shape == (count,))
    _require(bounds.ndim == 3 and bounds.shape[0] == (2 if "KD" in type(tree).__name__ else 1))
    _require(bounds.shape[1:] == (count, columns))
    start, end = nodes["idx_start"], nodes["idx_end"]
    _require(((start >= 0) & (start <= end) & (end <= rows)).all())
    childless = 2 * np.arange(count) + 2 >= count
    _require((nodes["is_leaf"][childless] != 0).all())


def _check_boosting(model: Any) -> None:
    """Check that the trees have the features of the model and add to as many columns as it has."""
    trees = model.estimators_
    _require(isinstance(trees, np.ndarray) and trees.ndim == 2)
    features: Any = getattr(model, "n_features_in_", None)
    _require(all(tree.tree_.n_features == features for tree in trees.ravel()))
    first = model._raw_predict_init(np.zeros((1, features), dtype=np.float32))
    _require(first.shape == (1, trees.shape[1]))
