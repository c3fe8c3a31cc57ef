"""The paper's comparison on freely available data: tasks, stages, tables, figures."""

from __future__ import annotations

from pseudocal.lab.bench.run import FailedTask, run
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.suites import PLANS, built_in
from pseudocal.lab.bench.task import Suite, Task

__all__ = ["PLANS", "FailedTask", "Store", "Suite", "Task", "built_in", "run"]
