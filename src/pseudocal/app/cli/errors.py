"""Turn errors into one line on standard error and an exit code.

| code | meaning |
|------|---------|
| 0 | done |
| 1 | a bug in the program |
| 2 | wrong usage of the command line |
| 3 | the model, the data or the labels cannot be used |
| 4 | the output cannot be written |
| 5 | an optional package is missing |
| 130 | interrupted |

With `--exit-code` every verdict but `apply` has a code of its own: see `VERDICT_CODES`.
"""

from __future__ import annotations

import errno
import re

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError
from pseudocal.files import OutputError

BUG = 1
USAGE = 2
INPUT = 3
OUTPUT = 4
MISSING = 5
INTERRUPTED = 130
VERDICT_CODES = {"apply": 0, "already calibrated": 10, "caution": 11, "do not apply": 12}
SETTING_NAMES = (
    "answers|binary|classes|drawn_by|features|field|labels|layout|max_bad|max_samples|out|outputs?|ray|resize|size|table"
    "|text|trust|trust_paths"
)
SETTING = re.compile(
    rf'(?<=\s)({SETTING_NAMES})=("[^"]*"|\([^)]*\)|\w+(?:,\w+)*)'
)  # how errors name a setting
# flags whose name differs from the setting's
OTHER_FLAGS = {"drawn_by": "--labels-are", "table": "--format", "trust": "--trust-model"}
SPELLED_OUT = {"classes": "--classes FILE", "size": "--size HEIGHTxWIDTH"}
MODEL_FAILED = "pseudocal: while the model predicted"


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the line for an error.

    >>> explain(InputError("expected a folder, got a file"))
    (3, 'expected a folder, got a file')
    """
    text = " ".join(str(error).split()) or type(error).__name__
    note = next((n for n in getattr(error, "__notes__", ()) if n.startswith(MODEL_FAILED)), None)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, InputError):
        return INPUT, SETTING.sub(_flag, text)
    if isinstance(error, MissingExtraError):
        return MISSING, text
    if isinstance(error, OutputError) or getattr(error, "errno", None) in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
    ):
        return OUTPUT, text
    if note:
        return (
            INPUT,
            f"expected a model that runs, got {type(error).__name__} {note.partition(': ')[2]}: {text[:300]}",
        )
    if isinstance(error, OSError):
        return INPUT, text
    return (
        BUG,
        f"unexpected {type(error).__name__}: {text[:300]} (run again with --debug and report it)",
    )


def _flag(setting: re.Match[str]) -> str:
    """Turn a setting of the library into a flag of the command.

    >>> SETTING.sub(_flag, "give max_bad=SHARE to allow more")
    'give --max-bad SHARE to allow more'
    >>> SETTING.sub(_flag, 'give size=(height, width), output="z", outputs="logits" or binary=True, features=a,b')
    'give --size HEIGHTxWIDTH, --output z, --outputs logits or --binary, --features a,b'
    """
    name, value = setting.groups()
    if name in SPELLED_OUT:
        return SPELLED_OUT[name]
    flag = OTHER_FLAGS.get(name, f"--{name.replace('_', '-')}")
    return flag if value in ("True", "False") else f"{flag} {value}".replace('"', "")
