"""DINE: distil from a black box, then fine-tune (Liang et al., CVPR 2022).

Only the source model's outputs are seen.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pseudocal.lab.adapt.losses import adaptive_smoothing, distillation, information_maximisation
from pseudocal.lab.adapt.method import Moment, Preset, Problem, TargetBatch, Update, Updates
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.tensors import predict_tensors


class Distil(nn.Module):
    """Learn the smoothed outputs of the black box, mixed more and more with the network's own.

    Inputs are mixed in pairs: images, or their features above a frozen backbone.
    """

    teacher: Tensor  # (target rows, classes)

    def __init__(
        self,
        problem: Problem,
        *,
        probabilities: Tensor,
        keep: int = 1,
        beta: float = 0.3,
        memory: float = 0.6,
        mix: bool = True,
        smooth: bool = True,
    ) -> None:
        super().__init__()
        self.target = problem.target
        self.beta = beta
        self.memory = memory
        self.mix = mix
        self.register_buffer(
            "teacher", adaptive_smoothing(probabilities, keep=keep) if smooth else probabilities
        )

    def steps(self, network: Network, batch: TargetBatch, now: Moment) -> Updates:
        """Distillation, information maximisation and consistency under mixing, in one step."""
        if now.step > 1 and now.starts_interval(10):
            own = predict_tensors(network, self.target)[1].softmax(dim=1)
            self.teacher = self.memory * self.teacher + (1 - self.memory) * own
        logits = network(batch.target)
        loss = distillation(logits, self.teacher[batch.rows]) + information_maximisation(logits)
        if self.mix:
            loss = loss + self.consistency(network, batch.target, logits.softmax(dim=1).detach())
        yield Update(loss)

    def consistency(self, network: Network, x: Tensor, p: Tensor) -> Tensor:
        """The prediction of a mixup sample should be the mix of the predictions."""
        lam = torch.distributions.Beta(self.beta, self.beta).sample().item()
        partner = torch.randperm(len(x)).to(x.device)  # drawn on the CPU: the same on every device
        mixed = network(lam * x + (1 - lam) * x[partner])
        return distillation(mixed, lam * p + (1 - lam) * p[partner])


class FineTune(nn.Module):
    """Information maximisation alone, until the predictions on the target stop changing."""

    predictions: Tensor  # (target rows,)
    converged: Tensor

    def __init__(self, problem: Problem, *, looks: int = 10) -> None:
        super().__init__()
        self.target = problem.target
        self.looks = looks
        self.register_buffer("predictions", torch.full((len(problem.target),), -1))
        self.register_buffer("converged", torch.tensor(False))
        self.stopped: bool | None = None  # what `converged` was when last read

    def steps(self, network: Network, batch: TargetBatch, now: Moment) -> Updates:
        """Nothing more once converged."""
        if now.starts_interval(self.looks) or self.stopped is None:
            self.stopped = bool(self.converged)  # a GPU waits for this, so not in every step
        if now.starts_interval(self.looks) and not self.stopped:
            predictions = predict_tensors(network, self.target)[1].argmax(dim=1)
            self.converged = (predictions == self.predictions).all()
            self.predictions = predictions
            self.stopped = bool(self.converged)
        if not self.stopped:
            yield Update(information_maximisation(network(batch.target)))


DINE_PRESETS = {
    "paper": Preset(Distil, head="weightnorm", width=256, batch=64, schedule="steep"),
    "official": Preset(Distil, head="weightnorm", width=256, batch=64, schedule="steep"),
    "imagenet": Preset(
        Distil, head="weightnorm", width=256, batch=64, schedule="steep", own_classifier=True
    ),
}
FINE_TUNE = Preset(FineTune, head="weightnorm", width=256, batch=64, schedule="late")
