"""The sentences that a label-free verdict consists of; `trust.py` decides which of them are said."""

from __future__ import annotations

BOUND = "The temperature lies at the {end} end of the range that was searched: the data do not determine it."
ONE_CLASS = "One of {classes} classes takes {largest:.0%} of all predictions: the model hardly tells inputs apart."
MUCH_OF_ONE_CLASS = (
    "One of {classes} classes takes {largest:.0%} of all predictions. Unless it is as frequent here, others are taken "
    "for it, perhaps by all models alike."
)
MOSTLY_ONE_CLASS = "One class takes {largest:.0%} of all pixels: the mixes say little of most of them."

ALONE = (
    "There was no second opinion. A model that is consistently wrong looks the same from within as one that is right. "
    "A person's answers on a few inputs would tell, or, with more than two classes, another model that was trained "
    "from another seed or on other features."
)
PIXELS = (
    "For models that label every pixel no second opinion is taken, so the verdict is caution at best: in our tests two "
    "of them shared far more mistakes on real pixels than on mixes. Masks of a few images tell how often it is right."
)
SAME_MODEL = (
    "The second model makes {shared:.0%} of the first one's mistakes as well: it is not an independent opinion, and "
    "neither the temperature nor the forecast is taken from it. Train another from another seed or on other features."
)
TWO_CLASSES = (
    "There are two classes, so no mix can show a mistake that two models share, and their agreement is no more than an "
    "upper bound: they agree on {rate:.0%} of the inputs, so the first is right on at most {most:.0%} if the second is "
    "as accurate. A person's answers on a few inputs would tell how often it is right."
)
STUDENT_TWO_CLASSES = (
    "There are two classes, so no mix can show a mistake that a student repeats, and nothing follows from its "
    "agreement ({rate:.0%}). A person's answers on a few inputs would tell how often the model is right."
)
SAME_STUDENT = (
    "The student makes {shared:.0%} of the model's mistakes on mixes as well: it is no opinion of its own, and neither "
    "the temperature nor the forecast is taken from it. Other features, or another model, may be one."
)
STUDENT_AT_CHANCE = (
    "A student of its predictions agrees with the model on {rate:.0%} of the inputs, and on {shared:.0%} of its "
    "mistakes on mixes, which is too little to learn anything from: neither the temperature nor the forecast is taken "
    "from it. Either these features do not tell the classes apart, or there are too few inputs, or the model is hardly "
    "ever right. Other features, or a person's answers on a few inputs, would tell which."
)
BLIND_STUDENT = (
    "The only usable second opinion is a student of the model's own predictions. It is reliable if its features tell "
    "the classes apart and the model is right on most inputs. With poor features the forecast is too low; and it is "
    "blind to whole groups of inputs that have the wrong name, since the student has learned the name. A second model, "
    "or a person's answers on a few inputs, would show them."
)
UNUSED_STUDENT = "The student has no part in this: beside a second model nothing is taken from it."
MIXES_OF_TWO = "With two classes, temperatures from mixes made the confidences worse on average in our tests."
FROM_MIXES = "So T comes from the mixes alone, and the forecast is no more than the mean confidence after calibration."
UNSURE = (
    "The second opinion has a mean confidence of {second:.0%}, the first model one of {before:.0%}. If it is less "
    "accurate too, the forecast is too low."
)

ONE_OPINION = (
    "Two models agree on {rate} of the inputs, and on {shared} of the first one's mistakes on mixes: it is right on "
    "about {accuracy:.0%}."
)
OPINIONS = (
    "{others} other models agree with it on {rate} of the inputs, and on {shared} of its mistakes on mixes: it is "
    "right on about {accuracy:.0%}."
)
NO_MISTAKES = (
    "The models agree on {rate} of the inputs, and no mix was surely mistaken, so how many mistakes they share is not "
    "known: the first is right on about {accuracy:.0%}."
)
STUDENT_OPINION = (
    "A student of its predictions agrees with the model on {rate} of the inputs, and on {shared} of its mistakes on "
    "mixes: it is right on about {accuracy:.0%}."
)
STUDENT_NO_MISTAKES = (
    "A student of its predictions agrees with the model on {rate} of the inputs, and no mix was surely mistaken, so "
    "how many mistakes the student repeats is not known: the model is right on about {accuracy:.0%}."
)

AT_CHANCE = (
    "The models agree on {rate} of the inputs, hardly more often than they share the first one's mistakes on mixes "
    "({shared}). No temperature follows from that."
)

OF_A_STUDENT = {  # what is said instead if the only second opinion is a student
    TWO_CLASSES: STUDENT_TWO_CLASSES,
    SAME_MODEL: SAME_STUDENT,
    ONE_OPINION: STUDENT_OPINION,
    NO_MISTAKES: STUDENT_NO_MISTAKES,
}

# on a temperature from the agreement or from a student, after one of ONE_OPINION, OPINIONS, NO_MISTAKES
TOO_NEAR = (
    "Its mean confidence is {before:.0%} without calibration: the forecast is too uncertain to tell whether "
    "T = {agreement:.3g} is better than none."
)
LOWERED = "T = {agreement:.3g} lowers its mean confidence from {before:.0%} to that."
RAISED = "T = {agreement:.3g} raises its mean confidence from {before:.0%} to that."
BACKED = "The temperature that is fitted on mixes is on the same side of 1 (T = {mixes:.3g})."
UNDECIDED = "The temperature that is fitted on mixes may be on either side of 1 (T = {mixes:.3g})."
CONTRADICTED = (
    "But the temperature that is fitted on mixes is on the other side of 1 (T = {mixes:.3g}). A person's answers on a "
    "few inputs would tell which is right."
)

# on a temperature from the mixes, after one of these three
NEARER = "Its mean confidence is {before:.0%} before and {after:.0%} after calibration, which is nearer."
STILL_HIGH = (
    "Its mean confidence is {before:.0%} before and {after:.0%} after calibration, which is nearer but still {gap:.0f} "
    "points too high."
)
STILL_LOW = (
    "Its mean confidence is {before:.0%} before and {after:.0%} after calibration, which is nearer but still {gap:.0f} "
    "points too low."
)
NO_TELLING = (
    "Its mean confidence is {before:.0%} before and {after:.0%} after calibration: the forecast cannot tell which is "
    "nearer."
)
FURTHER = "Its mean confidence is {before:.0%} before and {after:.0%} after calibration, which is further off."
OTHER_TEMPERATURE = "T = {agreement:.3g}, from the {source}, is expected to be nearer."
