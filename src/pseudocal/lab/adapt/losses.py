"""The losses of the adaptation methods: one short function of tensors each.

`logits` are `(n, classes)` before the softmax and losses are scalars to descend on. Entropies use
log(p + 1e-5), as the published code does. Weights and pseudo-labels are detached, so no gradient
flows through them, unless the method's authors let it flow (CDAN+E): then the docstring says so.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  torch's own customary name

LOG_EPS = 1e-5  # inside every logarithm of a probability


def cross_entropy(
    logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, weights: Tensor | None = None
) -> Tensor:
    """The weighted mean cross-entropy with smoothed labels.

    The targets are (1 - smoothing) * onehot + smoothing / classes.

    Two classes at equal logits cost log 2 whatever the labels and weights are:

    >>> round(cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, 1]), smoothing=0.1).item(), 4)
    0.6931
    """
    rows = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
    if weights is None:
        return rows.mean()
    weights = weights.detach()
    return (weights * rows).sum() / weights.sum().clamp_min(LOG_EPS)


def entropies(p: Tensor) -> Tensor:
    """The entropy of each row of probabilities, `(n,)`.

    >>> entropies(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).round(decimals=3)
    tensor([0.6930, -0.0000])
    """
    return -(p * torch.log(p + LOG_EPS)).sum(dim=-1)


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the predictions."""
    return entropies(logits.softmax(dim=1)).mean()


def confidence_weights(p: Tensor) -> Tensor:
    """Larger weights for confident rows.

    1 + exp(-H), between 1 and 2 whatever the number of classes.

    >>> confidence_weights(torch.tensor([[1.0, 0.0]])).round(decimals=3)
    tensor([2.])
    """
    return 1 + torch.exp(-entropies(p))


def mcc(logits: Tensor, *, temperature: float = 1.0, weights: Tensor | None = None) -> Tensor:
    """Minimum class confusion (Jin et al., ECCV 2020).

    The fraction of the class correlation that lies off its diagonal.

    Confident and diverse predictions have no confusion:

    >>> round(mcc(torch.tensor([[99.0, 0.0], [0.0, 99.0]])).item(), 4)
    0.0
    >>> round(mcc(torch.zeros(4, 2)).item(), 4)
    0.5
    """
    p = (logits / temperature).softmax(dim=1)
    w = (confidence_weights(p) if weights is None else weights).detach()
    w = len(p) * w / w.sum()
    confusion = (w[:, None] * p).T @ p  # (classes, classes)
    confusion = confusion / confusion.sum(dim=1, keepdim=True)
    return (confusion.sum() - confusion.trace()) / logits.shape[1]


def bnm(logits: Tensor) -> Tensor:
    """Batch nuclear-norm maximisation (Cui et al., CVPR 2020).

    Minus the mean singular value of the predictions.

    >>> bnm(torch.tensor([[99.0, 0.0], [0.0, 99.0]])).item()
    -1.0
    """
    return -_nuclear_norm(logits.softmax(dim=1)) / min(logits.shape)


def bnm_atdoc(logits: Tensor) -> Tensor:
    """BNM as scaled in the ATDOC code, in which PseudoCal's models were trained.

    Times sqrt(min(n, classes)) / n.

    >>> round(bnm_atdoc(torch.tensor([[99.0, 0.0], [0.0, 99.0]])).item(), 4)
    -1.4142
    """
    return -_nuclear_norm(logits.softmax(dim=1)) * math.sqrt(min(logits.shape)) / len(logits)


def _nuclear_norm(p: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.matrix_norm(p, "nuc")
    return norm


def bnm_fast(logits: Tensor) -> Tensor:
    """BNM with column norms in place of singular values, the min(n, classes) largest of them.

    >>> bnm_fast(torch.tensor([[99.0, 0.0], [0.0, 99.0]])).item()
    -1.0
    """
    columns = logits.softmax(dim=1).square().sum(dim=0).sqrt()  # (classes,)
    return -columns.topk(min(logits.shape)).values.mean()


def information_maximisation(logits: Tensor, *, diversity: bool = True) -> Tensor:
    """SHOT's objective (Liang et al., ICML 2020).

    Each prediction confident, all together spread over the classes.

    Without `diversity` (partial sets, where some classes should stay empty) only the first term is
    left.

    >>> round(information_maximisation(torch.tensor([[99.0, 0.0], [0.0, 99.0]])).item(), 3)
    -0.693
    """
    p = logits.softmax(dim=1)
    mean_entropy = entropies(p).mean()
    if diversity:
        return mean_entropy - entropies(p.mean(dim=0))
    return mean_entropy


def domain_confusion(
    source: Tensor, target: Tensor, source_weights: Tensor, target_weights: Tensor
) -> Tensor:
    """Binary cross-entropy of a discriminator's logits (source is 1, target 0), rows weighted.

    The weights are not normalised here: see `per_domain` and `over_batch` for the two ways to
    normalise them.

    >>> half = torch.tensor([0.5])
    >>> round(domain_confusion(torch.zeros(1), torch.zeros(1), half, half).item(), 4)
    0.6931
    """
    return (source_weights * F.softplus(-source)).sum() + (
        target_weights * F.softplus(target)
    ).sum()


def per_domain(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """CDAN's own normalisation: each domain's weights sum to a half.

    Gradients pass through the numerator only.

    >>> per_domain(torch.tensor([1.0, 3.0]), torch.tensor([2.0]))
    (tensor([0.1250, 0.3750]), tensor([0.5000]))
    """
    return source / (2 * source.sum().detach()), target / (2 * target.sum().detach())


def over_batch(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """TLlib's normalisation: all weights of both domains sum to one, and no gradient passes.

    >>> over_batch(torch.tensor([1.0, 1.0]), torch.tensor([2.0]))
    (tensor([0.2500, 0.2500]), tensor([0.5000]))
    """
    total = (source.sum() + target.sum()).detach()
    return source.detach() / total, target.detach() / total


def multilinear(p: Tensor, features: Tensor) -> Tensor:
    """CDAN's condition: every feature times every class probability, `(n, classes * width)`.

    P is detached.

    >>> multilinear(torch.tensor([[0.25, 0.75]]), torch.tensor([[4.0, 8.0]]))
    tensor([[1., 2., 3., 6.]])
    """
    return (p.detach()[:, :, None] * features[:, None, :]).flatten(1)


def stepwise_norm(features: Tensor, *, step: float = 1.0) -> Tensor:
    """SAFN (Xu et al., ICCV 2019): each feature norm should be larger than it is now by `step`.

    The value is always step**2; the gradient raises the norms at a constant rate.

    >>> round(stepwise_norm(torch.tensor([[3.0, 4.0]]), step=0.5).item(), 4)
    0.25
    """
    norms: Tensor = torch.linalg.vector_norm(features, dim=1)
    return (norms - (norms.detach() + step)).square().mean()


def discrepancy(logits: Tensor, other: Tensor) -> Tensor:
    """MCD (Saito et al., CVPR 2018).

    How far two heads' predictions are apart, mean over rows and classes.

    >>> round(discrepancy(torch.tensor([[99.0, 0.0]]), torch.zeros(1, 2)).item(), 4)
    0.5
    """
    return (logits.softmax(dim=1) - other.softmax(dim=1)).abs().mean()


def class_balance(logits: Tensor) -> Tensor:
    """MCD's balance term.

    The cross-entropy of the mean prediction against the uniform distribution.

    >>> round(class_balance(torch.zeros(3, 2)).item(), 4)
    0.6931
    """
    return -torch.log(logits.softmax(dim=1).mean(dim=0) + 1e-6).mean()


def class_weights(logits: Tensor, *, sharpness: float = 1.0, over_max: bool = False) -> Tensor:
    """PADA (Cao et al., ECCV 2018).

    The fraction of each class in the target, relative to the mean fraction (or the largest).

    >>> class_weights(torch.tensor([[999.0, 0.0, 0.0, 0.0], [0.0, 999.0, 0.0, 0.0]]))
    tensor([2., 2., 0., 0.])
    """
    gamma = (sharpness * logits).softmax(dim=1).mean(dim=0).detach()
    return gamma / (gamma.max() if over_max else gamma.mean())


def adaptive_smoothing(p: Tensor, *, keep: int = 1) -> Tensor:
    """DINE (Liang et al., CVPR 2022): keep the largest probabilities, spread the rest evenly.

    >>> adaptive_smoothing(torch.tensor([[0.5, 0.375, 0.125]]))
    tensor([[0.5000, 0.2500, 0.2500]])
    """
    top, where = p.topk(keep, dim=1)
    rest = (1 - top.sum(dim=1, keepdim=True)) / max(p.shape[1] - keep, 1)
    return rest.expand_as(p).scatter(1, where, top)


def distillation(logits: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || prediction), mean over rows; the teacher's probabilities are detached.

    >>> round(distillation(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """
    return F.kl_div(logits.log_softmax(dim=1), teacher.detach(), reduction="batchmean")
