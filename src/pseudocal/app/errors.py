"""Turn errors into one line on standard error and an exit code.

| code | meaning |
|------|---------|
| 0 | done |
| 1 | a bug in the program |
| 2 | wrong usage of the command line |
| 3 | the model, the data or the labels cannot be used |
| 4 | the output cannot be written |
| 5 | an optional package is missing |
| 6 | the benchmark is done, but calibrators failed |
| 130 | interrupted |

With `--exit-code` every verdict but `apply` has a code of its own (`VERDICT_CODES`), and so has every
state of a monitor but "no alarm" (`ALARM_CODES`).
"""

from __future__ import annotations

import errno

from pseudocal.app.inputs.preprocessing_check import WrongPreprocessingError
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError
from pseudocal.files import OutputError
from pseudocal.predictors import WHILE_PREDICTING

BUG = 1
USAGE = 2
INPUT = 3
OUTPUT = 4
MISSING = 5
CALIBRATORS_FAILED = 6
INTERRUPTED = 130
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
VERDICT_CODES = {"apply": 0, "already calibrated": 10, "caution": 11, "do not apply": 12}
ALARM_CODES = {"no alarm": 0, "alarm": 20, "not enough data": 21}
# flags whose name differs from that of the setting
FLAGS = {
    "job_file": "--job",
    "n": "-n",
    "normalisation": "--preprocess",
    "order": "--channel-order",
    "resample": "--interpolation",
    "second_preprocessing": "--second-preprocess",
    "table": "--format",
    "trust": "--trust-model",
}
# values that are written differently on the command line and in Python
VALUES = {"classes": "FILE", "size": "HEIGHTxWIDTH"}


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the line for an error.

    >>> explain(InputError("the images have no size", setting="size", value="(224, 224)"))
    (3, 'the images have no size; pass --size HEIGHTxWIDTH')
    """
    message = with_flag(error) if isinstance(error, InputError) else str(error)
    text = " ".join(message.split()) or type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, WrongPreprocessingError):
        return INPUT, f"{text}\n{error.table}"
    if isinstance(error, InputError):
        return INPUT, text
    if isinstance(error, MissingExtraError):
        return MISSING, text
    if isinstance(error, OutputError) or getattr(error, "errno", None) in DISK_ERRORS:
        return OUTPUT, text
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(WHILE_PREDICTING)]
    if notes:
        where = notes[0].partition(": ")[2]
        failed = f"expected a model that runs, got {type(error).__name__} {where}: {text[:300]}"
        return INPUT, failed
    if isinstance(error, OSError):
        return INPUT, text
    bug = f"unexpected {type(error).__name__}: {text[:300]} (run again with --debug and report it)"
    return BUG, bug


def with_flag(error: InputError) -> str:
    """The message of an error, and the flag to change.

    >>> with_flag(InputError("two arrays", setting="field", value="NAME"))
    'two arrays; pass --field NAME'
    >>> with_flag(InputError("one number per row", setting="binary", value="True"))
    'one number per row; pass --binary'
    >>> with_flag(InputError("expected at least 2, got 1", setting="batch_size"))
    'expected at least 2, got 1 (--batch-size)'
    """
    if error.setting is None:
        return error.message
    flag = FLAGS.get(error.setting, "--" + error.setting.replace("_", "-"))
    if error.value is None:
        return f"{error.message} ({flag})"
    if error.value == "True":
        return f"{error.message}; pass {flag}"
    value = VALUES.get(error.setting, error.value.replace('"', "").replace("'", ""))
    return f"{error.message}; pass {flag} {value}"
