"""The sentences of reasons."""

import string

import pytest

from pseudocal import InputError
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.calibrators.trust import Trust
from pseudocal.calibrators.wording import TEMPLATES

OLD_WORDS = ("answer", "student", "forecast", "mixes", " sure ", "first one's", "{", "}")
COUNTS = {
    "labels": 1234.0,
    "more": 1234.0,
    "fell": 9.0,
    "models": 3.0,
    "classes": 1000.0,
    "inputs": 20.0,
    "enough": 100.0,
    "right": 2.0,
}


def example(code):
    """A reason with each number of its sentence."""
    numbers: dict[str, float] = {}
    for _, name, spec, _ in string.Formatter().parse(TEMPLATES[code]):
        if name and not spec:  # a range
            numbers |= {f"{name}_low": 0.123, f"{name}_high": 0.987}
        elif name:
            numbers[name] = COUNTS.get(name, 0.123)
    return Reason(code, numbers)


@pytest.mark.parametrize("code", ReasonCode)
def test_each_reason_has_a_readable_sentence(code):
    reason = example(code)
    text = str(reason)
    assert text[0].isupper() or text[0].isdigit()
    assert text.endswith(".")
    assert len(text) < 300
    assert not any(word in text for word in OLD_WORDS)
    for name in reason.numbers:
        assert name in COUNTS or "12" in text, text


@pytest.mark.parametrize("code", ReasonCode)
def test_each_reason_survives_json(code):
    reason = example(code)
    content = reason.to_dict()
    assert content == {"code": code.value, "numbers": reason.numbers}
    assert Reason.from_dict(content) == reason
    if reason.numbers:
        with pytest.raises(InputError, match=f"the numbers of the reason {code}, got"):
            Reason.from_dict(content | {"numbers": {}})


def test_numbers_agree_with_their_nouns_and_ranges_collapse():
    numbers = {"labels": 1.0, "low": 0.5, "high": 2.0, "more": 1.0}
    assert str(Reason(ReasonCode.LABELS_UNDECIDED, numbers)) == (
        "With 1 label, T is between 0.5 and 2 (90% interval, valid however many labels you add), "
        "which includes T = 1 (no calibration). "
        "About 1 more label would probably decide the verdict."
    )
    unbounded = {"labels": 20.0, "low": 1.63, "high": 1e6}
    assert str(Reason(ReasonCode.LABELS_OVERCONFIDENT, unbounded)) == (
        "With 20 labels, T is between 1.63 and 1,000 or more (90% interval, valid however many "
        "labels you add): the model is overconfident."
    )
    numbers = {"labels": 50.0, "low": 0.9, "high": 1.1}
    assert str(Reason(ReasonCode.LABELS_ALREADY_CALIBRATED, numbers)) == (
        "With 50 labels, T is between 0.9 and 1.1 (90% interval, valid however many labels you "
        "add): no temperature in this range changes the confidence much. You can skip calibration."
    )
    numbers = {"agreement_low": 0.621, "agreement_high": 0.624, "accuracy": 0.46}
    one = numbers | {"shared_low": 0.35, "shared_high": 0.35}
    assert str(Reason(ReasonCode.SECOND_MODEL_AGREES, one)) == (
        "The models agree on 62% of inputs and share 35% of the first model's errors on mixup "
        "samples. That implies an accuracy of about 46%."
    )
    several = numbers | {"shared_low": 0.3, "shared_high": 0.35, "models": 2.0}
    assert "on 62% of inputs and share 30% to 35% of its errors" in str(
        Reason(ReasonCode.SECOND_MODELS_AGREE, several)
    )


@pytest.mark.parametrize(
    "content",
    [
        None,
        "mixup_only",
        {"code": "mixup_only"},
        {"code": "no_such_code", "numbers": {}},
        {"code": "mixup_only", "numbers": {"x": "many"}},
        {"code": "mixup_only", "numbers": {"x": float("nan")}},
    ],
)
def test_a_reason_from_elsewhere_is_checked(content):
    with pytest.raises(InputError, match="expected a reason with a known code and its numbers"):
        Reason.from_dict(content)
    record = {"verdict": "apply", "reasons": [content]}
    with pytest.raises(InputError, match="expected a reason with a known code and its numbers"):
        Trust.from_dict(record)
