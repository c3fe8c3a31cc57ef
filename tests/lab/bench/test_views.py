from __future__ import annotations

import numpy as np

from pseudocal.lab.bench import Store, views
from pseudocal.lab.bench.views import View, domains_of, view_features


def test_cached_features_are_those_of_the_pairs_of_today(tiny, cache, tmp_path, monkeypatch):
    task = tiny.tasks[0]
    images, view = domains_of(task, Store(tmp_path))[1].inputs, View(0.65)
    before = view_features(task, images, view)
    assert np.array_equal(view_features(task, images, view), before)
    monkeypatch.setattr(views, "partners", lambda n, **_: np.roll(np.arange(n), 1))
    assert not np.array_equal(view_features(task, images, view), before)
    monkeypatch.undo()
    assert np.array_equal(view_features(task, images, view), before)
