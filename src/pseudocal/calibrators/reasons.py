"""The sentences that a label-free verdict consists of.

`trust.py` decides which of them are said.
"""

from __future__ import annotations

BOUND = "The temperature lies at the {end} end of the range that was searched: the data do not determine it."
ONE_CLASS = "One of {classes} classes takes {largest:.0%} of all predictions: the model hardly tells inputs apart."
MUCH_OF_ONE_CLASS = (
    "One of {classes} classes takes {largest:.0%} of all predictions. Unless it is as frequent here, others are taken "
    "for it, perhaps by all models alike."
)
MOSTLY_ONE_CLASS = (
    "One class takes {largest:.0%} of all pixels: the mixup samples say little of most of them."
)

ALONE = (
    "There was no second opinion. A model that is consistently wrong looks the same from within as one that is right. "
    "A person's answers on a few inputs would tell, or, with more than two classes, another model that was trained "
    "from another seed or on other features."
)
PIXELS = (
    "For segmentation models no second opinion is taken, so the verdict is caution at best: in our tests two "
    "of them shared far more mistakes on real pixels than on mixup samples. Masks of a few images tell how often it is right."
)
SAME_MODEL = (
    "The second model makes {shared:.0%} of the first one's mistakes as well: it is not an independent opinion, and "
    "neither the temperature nor the estimate is taken from it. Train another from another seed or on other features."
)
TWO_CLASSES = (
    "There are two classes, so no mixup sample can show a mistake that two models share, and their agreement is no more than an "
    "upper bound: they agree on {rate:.0%} of the inputs, so the first is right on at most {most:.0%} if the second is "
    "as accurate. A person's answers on a few inputs would tell how often it is right."
)
SURROGATE_TWO_CLASSES = (
    "There are two classes, so no mixup sample can show a mistake that a surrogate repeats, and nothing follows from its "
    "agreement ({rate:.0%}). A person's answers on a few inputs would tell how often the model is right."
)
SAME_SURROGATE = (
    "The surrogate makes {shared:.0%} of the model's mistakes on mixup samples as well: it is no opinion of its own, and neither "
    "the temperature nor the estimate is taken from it. Other features, or another model, may be one."
)
SURROGATE_AT_CHANCE = (
    "A surrogate of its predictions agrees with the model on {rate:.0%} of the inputs, and on {shared:.0%} of its "
    "mistakes on mixup samples, which is too little to learn anything from: neither the temperature nor the estimate is taken "
    "from it. Either these features do not tell the classes apart, or there are too few inputs, or the model is hardly "
    "ever right. Other features, or a person's answers on a few inputs, would tell which."
)
BLIND_SURROGATE = (
    "The only usable second opinion is a surrogate of the model's own predictions. It is reliable if its features tell "
    "the classes apart and the model is right on most inputs. With poor features the estimate is too low; and it is "
    "blind to whole groups of inputs that have the wrong name, since the surrogate has learned the name. A second model, "
    "or a person's answers on a few inputs, would show them."
)
UNUSED_SURROGATE = (
    "The surrogate has no part in this: beside a second model nothing is taken from it."
)
MIXUP_OF_TWO = "With two classes, temperatures from mixup samples made the confidences worse on average in our tests."
FROM_MIXUP = "So T comes from the mixup samples alone, and the estimate is no more than the mean confidence after calibration."
UNSURE = (
    "The second opinion has a mean confidence of {second:.0%}, the first model one of {before:.0%}. If it is less "
    "accurate too, the estimate is too low."
)

ONE_OPINION = (
    "Two models agree on {rate} of the inputs, and on {shared} of the first one's mistakes on mixup samples: it is right on "
    "about {accuracy:.0%}."
)
OPINIONS = (
    "{others} other models agree with it on {rate} of the inputs, and on {shared} of its mistakes on mixup samples: it is "
    "right on about {accuracy:.0%}."
)
NO_MISTAKES = (
    "The models agree on {rate} of the inputs, and no mixup sample was surely mistaken, so how many mistakes they share is not "
    "known: the first is right on about {accuracy:.0%}."
)
SURROGATE_OPINION = (
    "A surrogate of its predictions agrees with the model on {rate} of the inputs, and on {shared} of its mistakes on "
    "mixup samples: it is right on about {accuracy:.0%}."
)
SURROGATE_NO_MISTAKES = (
    "A surrogate of its predictions agrees with the model on {rate} of the inputs, and no mixup sample was surely mistaken, so "
    "how many mistakes the surrogate repeats is not known: the model is right on about {accuracy:.0%}."
)

AT_CHANCE = (
    "The models agree on {rate} of the inputs, hardly more often than they share the first one's mistakes on mixup samples "
    "({shared}). No temperature follows from that."
)

OF_A_SURROGATE = {  # what is said instead if the only second opinion is a surrogate
    TWO_CLASSES: SURROGATE_TWO_CLASSES,
    SAME_MODEL: SAME_SURROGATE,
    ONE_OPINION: SURROGATE_OPINION,
    NO_MISTAKES: SURROGATE_NO_MISTAKES,
}

# on a temperature from the agreement or from a surrogate, after one of ONE_OPINION, OPINIONS,
# NO_MISTAKES
TOO_NEAR = (
    "Its mean confidence is {before:.0%} without calibration: the estimate is too uncertain to tell whether "
    "T = {agreement:.3g} is better than none."
)
LOWERED = "T = {agreement:.3g} lowers its mean confidence from {before:.0%} to that."
RAISED = "T = {agreement:.3g} raises its mean confidence from {before:.0%} to that."
BACKED = (
    "The temperature that is fitted on mixup samples is on the same side of 1 (T = {mixup:.3g})."
)
UNDECIDED = (
    "The temperature that is fitted on mixup samples may be on either side of 1 (T = {mixup:.3g})."
)
CONTRADICTED = (
    "But the temperature that is fitted on mixup samples is on the other side of 1 (T = {mixup:.3g}). A person's answers on a "
    "few inputs would tell which is right."
)

# on a temperature from the mixup samples, after one of these three
NEARER = (
    "Its mean confidence is {before:.0%} before and {after:.0%} after calibration, which is nearer."
)
STILL_HIGH = (
    "Its mean confidence is {before:.0%} before and {after:.0%} after calibration, which is nearer but still {gap:.0f} "
    "points too high."
)
STILL_LOW = (
    "Its mean confidence is {before:.0%} before and {after:.0%} after calibration, which is nearer but still {gap:.0f} "
    "points too low."
)
NO_TELLING = (
    "Its mean confidence is {before:.0%} before and {after:.0%} after calibration: the estimate cannot tell which is "
    "nearer."
)
FURTHER = "Its mean confidence is {before:.0%} before and {after:.0%} after calibration, which is further off."
OTHER_TEMPERATURE = "T = {agreement:.3g}, from the {source}, is expected to be nearer."
