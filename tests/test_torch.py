from __future__ import annotations

import numpy as np
import pytest

from pseudocal import Calibration, MatrixScaling, TemperatureScaling, VectorScaling

torch = pytest.importorskip("torch")
nn = torch.nn
calibrated = pytest.importorskip("pseudocal.torch").calibrated

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "scaling",
    [
        TemperatureScaling(1.7),
        VectorScaling(RNG.normal(size=3), RNG.normal(size=3)),
        MatrixScaling(RNG.normal(size=(3, 3)), RNG.normal(size=3)),
    ],
)
def test_the_module_gives_what_the_calibration_gives(scaling):
    model, x = nn.Linear(4, 3), torch.randn(10, 4)
    calibration = Calibration("any", scaling)
    whole = calibrated(model, calibration)
    expected = calibration(model(x).detach().numpy())
    assert np.allclose(whole(x).detach().numpy(), expected, atol=1e-6)


def test_it_saves_and_exports_with_the_correction_inside(tmp_path):
    whole = calibrated(nn.Linear(4, 3), Calibration("any", TemperatureScaling(2.5))).eval()
    again = calibrated(nn.Linear(4, 3), Calibration("any", TemperatureScaling(1.0))).eval()
    torch.save(whole.state_dict(), tmp_path / "model.pt")
    again.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    x = torch.randn(5, 4)
    assert torch.equal(whole(x), again(x))
    exported = torch.export.export(whole, (x,))
    assert torch.allclose(exported.module()(x), whole(x))


def test_outputs_with_logits_and_half_precision():
    class Wrapped(nn.Linear):  # type: ignore[name-defined]
        def forward(self, x):
            return (super().forward(x), "more")

    model = Wrapped(4, 3).to(torch.bfloat16)
    whole = calibrated(model, Calibration("any", TemperatureScaling(2.0)))
    x = torch.randn(2, 4, dtype=torch.bfloat16)
    assert whole(x).dtype == torch.bfloat16
    assert torch.allclose(whole(x), model(x)[0] / 2)
