"""Targets of any size.

On a Ray cluster, on the ranks of `torchrun`, or block by block in this process.
"""

from pseudocal.calibrators.executors import Executor, Failure
from pseudocal.distributed.local import LocalExecutor
from pseudocal.distributed.ranks import fit_across_ranks
from pseudocal.distributed.ray_data import dataset_blocks
from pseudocal.distributed.ray_executor import RayExecutor
from pseudocal.predictors import Deferred

__all__ = [
    "Deferred",
    "Executor",
    "Failure",
    "LocalExecutor",
    "RayExecutor",
    "dataset_blocks",
    "fit_across_ranks",
]
