"""The error of a temperature from rows that come in groups."""

from __future__ import annotations

import numpy as np
import pytest

from pseudocal.scaling import TemperatureScaling, fit_temperature

GROUPS = np.repeat(np.arange(40), 9)


@pytest.fixture
def pixels():
    """Forty images of nine pixels, some of them sharper than others."""
    rng = np.random.default_rng(0)
    sharpness = np.exp(0.5 * rng.standard_normal(40))[GROUPS]
    z = 2 * rng.standard_normal((360, 4))
    return z, (sharpness[:, None] * z + rng.gumbel(size=z.shape)).argmax(axis=1)


def test_the_error_is_that_of_the_jackknife(pixels):
    z, y = pixels
    fitted = fit_temperature(z, y, groups=GROUPS)
    skipped = [
        fit_temperature(z[kept], y[kept]).temperature for kept in (g != GROUPS for g in range(40))
    ]
    shifts = np.log(np.array(skipped) / fitted.temperature)
    assert fitted.log_se == pytest.approx(np.sqrt((shifts**2).sum()), rel=0.02)


def test_pairs_of_images_are_skipped_together(pixels):
    """Each pair of images that share no other.

    The two images of a mixup sample tell no more than one would.
    """
    z, y = pixels
    alone = fit_temperature(z, y, groups=GROUPS)
    paired = fit_temperature(z, y, groups=np.stack([GROUPS, GROUPS + 40], axis=1))
    assert (
        alone.log_se < paired.log_se < 1.15 * alone.log_se
    )  # only `TWICE` of the second is taken off
    assert paired.groups == pytest.approx(2 * alone.groups)


def test_where_one_image_has_the_mistakes_there_is_more_room_above():
    z = np.tile([3.0, 0.0, 0.0], (360, 1))
    y = np.where(GROUPS == 7, 1, 0)
    y[::30] = 2
    fitted = fit_temperature(z, y, groups=GROUPS)
    assert fitted.skew < -0.3
    low, high = fitted.interval()
    straight = TemperatureScaling(
        fitted.temperature, fitted.log_se, groups=fitted.groups
    ).interval()
    assert straight[0] < low < fitted.temperature < straight[1] < high


def test_an_interval_holds_its_temperature_at_any_level():
    leaning = TemperatureScaling(2.0, log_se=0.1, groups=5, skew=-0.9)
    for level in (0.001, 0.1, 0.5, 0.999):
        low, high = leaning.interval(level)
        assert low <= 2.0 <= high
