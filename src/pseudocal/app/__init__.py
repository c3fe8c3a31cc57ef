"""The application: takes the names of a model file and of a data set, and writes a folder of results."""

from pseudocal.app.inputs.blocks import Shard, shards
from pseudocal.app.jobs.job import Job, Result
from pseudocal.app.jobs.pipeline import calibrate
from pseudocal.app.jobs.predictions import predict_blocks
from pseudocal.app.models.files import model_file

__all__ = ["Job", "Result", "Shard", "calibrate", "model_file", "predict_blocks", "shards"]
