from collections.abc import Callable

import numpy as np
import pytest

from pseudocal.metrics import Outcomes

Draw = Callable[..., tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Logits whose true temperature is known: labels are drawn from softmax(z / T)."""

    def logits_and_labels(
        n: int, *, classes: int = 10, T: float = 1.0, seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        z = 3 * rng.normal(size=(n, classes))
        return z, (z / T + rng.gumbel(size=z.shape)).argmax(
            axis=1
        )  # the Gumbel trick draws from a softmax

    return logits_and_labels


@pytest.fixture(scope="session")
def overconfident(draw: Draw) -> Outcomes:
    return Outcomes.from_logits(*draw(2000, T=2.0))
