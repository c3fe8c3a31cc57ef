"""The application.

Takes the names of a model file and of a data set, and writes a folder of results.
"""

from pseudocal.app.inputs.blocks import Shard, shards
from pseudocal.app.jobs.answers import ask_about as ask
from pseudocal.app.jobs.job import Job, Result
from pseudocal.app.jobs.pipeline import calibrate
from pseudocal.app.jobs.pipeline import refine_out as refine
from pseudocal.app.jobs.predictions import predict_blocks
from pseudocal.app.jobs.saved_outputs import keep_outputs
from pseudocal.app.models.files import model_file

__all__ = [
    "Job",
    "Result",
    "Shard",
    "ask",
    "calibrate",
    "keep_outputs",
    "model_file",
    "predict_blocks",
    "refine",
    "shards",
]
