"""What a notebook shows of results: its last expression, as the HTML that a front end asks for."""

from __future__ import annotations

import ast
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal import Calibration, TemperatureScaling
from pseudocal.app import Result
from pseudocal.metrics import Outcomes, Reliability

SETUP = """
import numpy as np
from pseudocal import PseudoCal
from pseudocal.metrics import Outcomes, Reliability
rng = np.random.default_rng(0)
x = rng.normal(size=(600, 2)) + 2 * rng.integers(0, 2, size=(600, 1))
model = lambda x: np.stack([np.zeros(len(x)), 9 * (x.sum(axis=1) - 2)], axis=1)
"""
CELLS = (
    SETUP,
    "calibration = PseudoCal().fit(model, x)\ncalibration",
    "Reliability.of(Outcomes.from_logits(model(x), (x[:, 0] > 1) * 1))",
)


class Seen(HTMLParser):
    """The text of some HTML and the names of its elements; every one that opens must close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.names, self.open = "", list[str](), list[str]()
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def run(cells: tuple[str, ...]) -> list[Any]:
    """Run cells in one namespace, as a notebook does.

    Return the value of the last expression of each.
    """
    namespace: dict[str, Any] = {}
    values = []
    for cell in cells:
        *body, last = ast.parse(cell).body
        if not isinstance(last, ast.Expr):
            body, last = [*body, last], None
        exec(compile(ast.Module(body, []), "cell", "exec"), namespace)
        values.append(
            None
            if last is None
            else eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
        )
    return values


def test_a_notebook_shows_the_verdict_and_the_diagram():
    _, calibration, reliability = run(CELLS)
    shown = Seen(calibration._repr_html_())
    assert shown.text.startswith("caution")
    assert repr(calibration) in shown.text
    assert repr(calibration).endswith(", verdict: caution)")
    assert str(calibration.trust.reasons[0]) in shown.text
    assert "estimated accuracy" not in shown.text  # unknown with two classes
    _, fitted = run((SETUP, "PseudoCal(estimator='mixup').fit(model, x)"))
    assert "estimated accuracy" in Seen(fitted._repr_html_()).text
    drawn = Seen(reliability._repr_html_())
    assert drawn.names.count("rect") == (reliability.count > 0).sum()
    assert f"ECE {reliability.ece:.2%}, 600 predictions in 15 bins" in drawn.text


def test_what_has_no_verdict_is_shown_without_one():
    plain = Calibration("oracle", TemperatureScaling(2.0, rows=10))
    assert Seen(plain._repr_html_()).text == repr(plain)
    assert "verdict" not in repr(plain)


def test_everything_from_outside_is_escaped():
    nasty = "<script>alert(1)</script>"
    shown = Seen(Calibration(nasty, TemperatureScaling(2.0))._repr_html_())
    assert "script" not in shown.names
    assert nasty in shown.text


def test_a_result_shows_the_first_sentence_and_where_the_page_is(made):
    run, report = made.make_run(), made.make_report()
    shown = Seen(Result(run.calibration, report, Path("out"), None)._repr_html_())
    assert str(report.headline) in shown.text
    assert str(Path("out") / "report.html") in shown.text


def test_an_empty_bin_is_not_drawn():
    outcomes = Outcomes.from_probabilities(np.array([[0.9, 0.1]] * 4), [0, 0, 0, 1])
    assert Seen(Reliability.of(outcomes)._repr_html_()).names.count("rect") == 1
