r"""Text cells of the CSV files that we write.

Quoted, and guarded so that no spreadsheet computes them.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, and so do some with
the full-width variants of these. It may read a file with another separator than we write, and then
a cell begins within ours: after a semicolon, a bar, a tab or a line break. So an apostrophe goes in
front of each place where a formula could begin.
"""

from __future__ import annotations

import re

FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"  # with the full-width variants; for a character class
LEADING = (
    "[ \x0b\x0c\xa0\u3000\ufeff\"']*"  # quotation marks, apostrophes and spaces before a formula
)
SEPARATOR = "[;|\t\r\n]"  # where a cell begins; our own comma is always within quotation marks
# of the text; a spreadsheet may remove a tab or a line break there
AT_START = f"^(?={LEADING}[{FORMULA}\t\r\n])"
WITHIN = f"({SEPARATOR})(?={LEADING}[{FORMULA}])"
GUARD_AT_START = re.compile(AT_START.replace("^", "^'", 1))
GUARD_WITHIN = re.compile(WITHIN.replace(")", ")'", 1))


def csv_cell(text: str) -> str:
    """A text as a cell of a CSV file: guarded and within quotation marks.

    Nothing for an empty text.

    >>> csv_cell("a.png"), csv_cell('12" tube'), csv_cell("")
    ('"a.png"', '"12"" tube"', '')
    """
    if not text:
        return ""
    return '"' + guarded_cell(text).replace('"', '""') + '"'


def guarded_cell(text: str) -> str:
    """A text in which no spreadsheet finds a formula; `plain_cell` gives the text back.

    >>> guarded_cell("=1+1.png"), guarded_cell("a;=1+1;.png"), guarded_cell("'=1"), guarded_cell("'80s.png")
    ("'=1+1.png", "a;'=1+1;.png", "''=1", "'80s.png")
    """
    return re.sub(AT_START, "'", re.sub(WITHIN, r"\1'", text))


def plain_cell(text: str) -> str:
    """The text that `guarded_cell` has guarded. Other texts stay as they are.

    >>> plain_cell("'=1+1.png"), plain_cell("a;'=1+1;.png"), plain_cell("''-a"), plain_cell("'80s"), plain_cell("=1")
    ('=1+1.png', 'a;=1+1;.png', "'-a", "'80s", '=1')
    """
    return GUARD_AT_START.sub("", GUARD_WITHIN.sub(r"\1", text))
