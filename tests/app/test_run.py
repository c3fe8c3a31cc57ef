"""The store of logits refuses what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from pseudocal.app.jobs.local import LogitStore

from pseudocal import InputError


def test_the_store_refuses_what_does_not_fit(tmp_path):
    store = LogitStore(tmp_path / "z.npy", total=4)
    with pytest.raises(InputError, match="at least one"):
        _ = store.logits
    store.keep(np.array([0]), np.zeros((1, 3)))
    with pytest.raises(InputError, match="shape"):
        store.keep(np.array([1]), np.zeros((1, 2)))
