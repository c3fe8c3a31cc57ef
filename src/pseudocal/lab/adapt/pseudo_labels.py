"""Pseudo-labels of target inputs.

ATDOC's neighbours and centroids (Liang et al., CVPR 2021), SHOT's clusters.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  torch's own customary name


def neighbour_labels(
    features: Tensor, rows: Tensor, *, memory: Tensor, predictions: Tensor, k: int = 5
) -> tuple[Tensor, Tensor]:
    """Label each feature by its k nearest neighbours in the memory.

    Its weight is how strongly they agree.

    `rows` are the features' own rows in the memory: none may vote for itself.

    >>> memory = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> predictions = torch.tensor([[0.0, 1.0], [0.8, 0.2], [0.0, 1.0]])
    >>> neighbour_labels(memory[:1], torch.tensor([0]), memory=memory, predictions=predictions, k=1)
    (tensor([0]), tensor([0.8000]))
    """
    likeness = features.detach() @ memory.T  # (n, slots)
    likeness.scatter_(1, rows[:, None], -torch.inf)
    nearest = likeness.topk(min(k, len(memory) - 1), dim=1).indices  # (n, k)
    votes = predictions[nearest].mean(dim=1)  # (n, classes)
    weights, labels = votes.max(dim=1)
    return labels, weights


def sharpened(p: Tensor) -> Tensor:
    """What the memory keeps of a batch.

    P**2 over its column sums, so that common classes weigh less.

    Columns sum to one, rows do not. That balances the classes, as the published code does.

    >>> sharpened(torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]])
    """
    return p.square() / p.square().sum(dim=0).clamp_min(1e-12)


def centroid_labels(features: Tensor, centroids: Tensor) -> Tensor:
    """Label each feature by the class centroid of the most similar direction.

    >>> centroid_labels(torch.tensor([[3.0, 1.0]]), torch.tensor([[0.0, 9.0], [1.0, 0.0]]))
    tensor([1])
    """
    return (features.detach() @ F.normalize(centroids, dim=1).T).argmax(dim=1)


def moved_centroids(
    centroids: Tensor, features: Tensor, labels: Tensor, *, momentum: float = 0.1
) -> Tensor:
    """Move centroids towards the class means of a batch; the centroid of an absent class shrinks.

    >>> features = torch.tensor([[3.0], [5.0]])
    >>> moved_centroids(torch.ones(2, 1), features, torch.tensor([0, 0]), momentum=0.5)
    tensor([[2.5000],
            [0.5000]])
    """
    onehot = F.one_hot(labels, len(centroids)).to(features.dtype)  # (n, classes)
    means = onehot.T @ features / (onehot.sum(dim=0)[:, None] + 1e-8)
    return (1 - momentum) * centroids + momentum * means


def cluster_labels(features: Tensor, p: Tensor, *, threshold: int = 0) -> Tensor:
    """SHOT's pseudo-labels.

    The nearest class centroid by cosine, centroids weighted by p, then by those labels.

    Classes that `threshold` rows or fewer are predicted to have are left out.

    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> p = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.1, 0.9]])
    >>> cluster_labels(features, p)
    tensor([0, 0, 1])
    """
    features = F.normalize(torch.cat([features, torch.ones_like(features[:, :1])], dim=1), dim=1)
    weights = p
    labels = p.argmax(dim=1)
    for _ in range(2):
        sums = weights.T @ features
        centroids = F.normalize(sums / (1e-8 + weights.sum(dim=0)[:, None]), dim=1)
        kept = torch.bincount(labels, minlength=p.shape[1]) > threshold
        if not kept.any():  # every class is too rare: the predictions are all there is
            return labels
        likeness = (features @ centroids.T).masked_fill(~kept, -torch.inf)
        labels = likeness.argmax(dim=1)
        weights = F.one_hot(labels, p.shape[1]).to(p.dtype)
    return labels
