"""The application: takes the names of a model file and of a data set, and writes a run folder."""

from pseudocal.extras import MissingExtraError

try:
    from pseudocal.app.inputs.blocks import Shard, shards
    from pseudocal.app.job import Job
    from pseudocal.app.labelling import label
    from pseudocal.app.models.files import model_file
    from pseudocal.app.monitor_labels import LabelledResult, label_monitor, refine_monitor
    from pseudocal.app.outputs import collect_outputs
    from pseudocal.app.pipeline import calibrate, conclude, refine, threshold
    from pseudocal.app.render import Result, render
    from pseudocal.app.run import Run
    from pseudocal.app.watching import WatchResult, watch
except ModuleNotFoundError as error:
    if error.name not in ("msgspec", "tomli_w"):
        raise
    raise MissingExtraError(error.name, "cli") from error

__all__ = [
    "Job",
    "LabelledResult",
    "Result",
    "Run",
    "Shard",
    "WatchResult",
    "calibrate",
    "collect_outputs",
    "conclude",
    "label",
    "label_monitor",
    "model_file",
    "refine",
    "refine_monitor",
    "render",
    "shards",
    "threshold",
    "watch",
]
