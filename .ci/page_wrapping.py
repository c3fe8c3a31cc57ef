"""Lines of the docs break where a reader would.

Not inside an option, inside `1.5 ± 0.1` or in a table of text.
"""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"<code[^>]*>.*?</code>", re.DOTALL)
BLOCK = re.compile(r'<div class="language-(?:console|text) highlight">.*?</div>', re.DOTALL)
OPTION = re.compile(r"(?<![\w&;-])--?[a-z][\w-]*(?=[^<>]*<)")
ARROW = re.compile(r"\w*-&gt;\w+(?=[^<>]*<)")  # from one domain to another
CELL = re.compile(
    r"(?<=<td>)(?:[+-]?[\d.]+e[+-]\d+|<code>\w{1,14}</code>)(?=</td>)"
)  # +7.0e-07, or a word of code
GAP = re.compile(r"\S {3,}[^\s#]")  # not the one before a comment
TABLE_LINES = 5  # a block with so many lines that hold a gap is a table


def whole_options(html: str) -> str:
    """Keep the options of commands in one piece: a browser breaks lines after a hyphen.

    >>> whole_options("<code>a --text b</code>")
    '<code>a <span class="whole">--text</span> b</code>'
    """
    return CODE.sub(lambda code: OPTION.sub(r'<span class="whole">\g<0></span>', code[0]), html)


def marked_tables(html: str) -> str:
    """Mark the blocks of text that hold a table.

    They scroll, since wrapped lines tear columns apart.
    """

    def marked(block: re.Match[str]) -> str:
        lines = re.sub(r"<[^>]*>", "", block[0]).splitlines()
        table = sum(bool(GAP.search(line)) for line in lines) >= TABLE_LINES
        return block[0].replace(" highlight", " highlight columns", 1) if table else block[0]

    return BLOCK.sub(marked, html)


def on_page_content(html: str, **_: Any) -> str:
    """Mend the page that MkDocs has made of Markdown."""
    html = whole_options(marked_tables(html))
    for piece in (ARROW, CELL):
        html = piece.sub(r'<span class="whole">\g<0></span>', html)
    return re.sub(r"(\d|</strong>) ± (\d)", "\\1\u00a0±\u00a0\\2", html)
