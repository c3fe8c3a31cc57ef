"""The paper's comparison on freely available data: tasks, stages, tables, figures.

Only running it needs torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pseudocal.extras import on_demand
from pseudocal.lab.bench.suites import PLANS, built_in
from pseudocal.lab.bench.task import Suite, Task

if TYPE_CHECKING:
    from pseudocal.lab.bench.grid import FailedTask, run
    from pseudocal.lab.bench.store import Store
else:
    __getattr__ = on_demand(__name__, {"FailedTask": "grid", "Store": "store", "run": "grid"})

__all__ = ["PLANS", "FailedTask", "Store", "Suite", "Task", "built_in", "run"]
