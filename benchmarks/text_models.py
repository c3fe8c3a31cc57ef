"""Text classifiers for `text_mixes.py`: training, and outputs on other texts and on mixup samples.

There are three kinds of models on a pretrained BERT. `head` is a small network on the mean of the
frozen encoder's last states. `careful` is a strongly regularised regression on it, which is not
overconfident on its own kind of text. `tuned` also trains the last layer, the pooler and the
classifier.

There are two places to mix. `words` mixes the token embeddings position by position: the shorter
text is padded with zeros, and a position counts if either text has a token there. `pooled` mixes
the input of the head: the mean, or the last state of the first token. Frozen layers run once for
all models.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import nn

from pseudocal.batches import blend
from pseudocal.mixup import partners
from pseudocal.predictors import as_predictor
from two_class_data import OPINION, TEXTS

LAM = 0.65
TOKENS = 32  # of a text; four of five are shorter
TRAIN, DRAWN, TARGET = (
    1000,
    800,
    600,
)  # texts of a domain, those that a seed draws of them, those that are predicted
BATCH, EPOCHS, RATE = 50, 5, 2e-4
EDGES = {
    2: (0.0,),
    3: (-0.5, 0.5),
    5: (-1.5, -0.5, 0.5, 1.5),
}  # of the mean valence, by number of classes


class Seen(NamedTuple):
    """What the layers that stay as they are make of texts.

    Attributes:
        states: below the last layer, `(n, tokens, width + 1)`; the last number says whether there
            is a token.
        means: over the tokens, of the states above it.

    """

    states: np.ndarray
    means: np.ndarray


class Texts(NamedTuple):
    """Texts of one domain.

    Mean valence, what the encoder sees in them, and in mixup samples of the words of the first.
    """

    valence: np.ndarray
    real: Seen
    mixed: Seen

    def labels(self, classes: int) -> np.ndarray:
        """The classes."""
        return np.digitize(self.valence, EDGES[classes])


class Said(NamedTuple):
    """What a model says of texts, of mixup samples of their words, and of mixup samples of what its head gets."""

    logits: np.ndarray
    words: np.ndarray
    pooled: np.ndarray


def word_embeddings(base: Any, tokenizer: Any, texts: list[str]) -> np.ndarray:
    """Of shape `(n, tokens, width + 1)`.

    The last number says whether there is a token, and all are 0 where not.
    """
    padded = {
        "padding": "max_length",
        "truncation": True,
        "max_length": TOKENS,
        "return_tensors": "pt",
    }
    tokens = tokenizer(texts, **padded)
    mask = tokens["attention_mask"].unsqueeze(2)
    with torch.inference_mode():
        found = base.get_input_embeddings()(tokens["input_ids"]) * mask
    return torch.cat([found, mask], dim=2).numpy()


def seen(base: Any, words: np.ndarray) -> Seen:
    """Run the encoder on word embeddings, or on mixup samples of them.

    A token counts where either text has one.
    """
    found = Seen(np.zeros_like(words), np.empty((len(words), words.shape[2] - 1), np.float32))
    lengths = (words[..., -1] > 0).sum(axis=1)
    for rows in in_batches(np.argsort(lengths)):  # of about one length, so that little is padding
        x = torch.from_numpy(words[rows, : lengths[rows].max()])
        mask = x[..., -1:] > 0
        with torch.inference_mode():
            out = base(
                inputs_embeds=x[..., :-1],
                attention_mask=mask[..., 0].long(),
                output_hidden_states=True,
            )
        found.states[rows, : x.shape[1]] = torch.cat(
            [out.hidden_states[-2] * mask, mask], dim=2
        ).numpy()
        found.means[rows] = ((out.last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)).numpy()
    return found


def in_batches(x: np.ndarray) -> Iterator[np.ndarray]:
    """In the order that they have."""
    for start in range(0, len(x), BATCH):
        yield np.ascontiguousarray(x[start : start + BATCH])


def texts_of(path: Path, base: Any, tokenizer: Any, domain: str, *, with_opinion: bool) -> Texts:
    """Some texts of a domain; for two classes those that have an opinion."""
    with np.load(path, allow_pickle=False) as file:
        valence, texts = file[f"{domain}_valence"], file[f"{domain}_text"]
    kept = np.flatnonzero(np.abs(valence) > OPINION) if with_opinion else np.arange(len(valence))
    rows = np.random.default_rng(0).permutation(kept)[:TRAIN]
    words = word_embeddings(base, tokenizer, [str(text) for text in texts[rows]])
    mixup_samples = blend(words, np.arange(TARGET), partners(TARGET), LAM)
    return Texts(valence[rows], seen(base, words), seen(base, mixup_samples))


def said(head: Any, real: np.ndarray, mixed: np.ndarray) -> Said:
    """From what the head gets for texts, and for mixup samples of their words."""
    n, predict = len(real), as_predictor(head)
    pooled = blend(real, np.arange(n), partners(n), LAM)
    return Said(*(np.asarray(predict(x), np.float64) for x in (real, mixed, pooled)))


def drawn(n: int, seed: int) -> np.ndarray:
    """The texts that a seed trains on."""
    return np.random.default_rng(100 + seed).permutation(n)[:DRAWN]


def head(
    base: Any, source: Texts, others: dict[str, Texts], classes: int, seed: int
) -> dict[str, Said]:
    """A small network on the mean of the frozen encoder's last states."""
    return on_means(
        MLPClassifier((64,), max_iter=60, random_state=seed), source, others, classes, seed
    )


def careful(
    base: Any, source: Texts, others: dict[str, Texts], classes: int, seed: int
) -> dict[str, Said]:
    """A strongly regularised regression on the same."""
    return on_means(LogisticRegression(C=0.003, max_iter=500), source, others, classes, seed)


def on_means(
    model: Any, source: Texts, others: dict[str, Texts], classes: int, seed: int
) -> dict[str, Said]:
    """Train on the means of the texts that the seed draws."""
    rows, scale = drawn(len(source.valence), seed), source.real.means.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it did not converge
        model.fit(source.real.means[rows] / scale, source.labels(classes)[rows])
    return {
        name: said(model, texts.real.means[:TARGET] / scale, texts.mixed.means / scale)
        for name, texts in others.items()
    }


def tuned(
    base: Any, source: Texts, others: dict[str, Texts], classes: int, seed: int
) -> dict[str, Said]:
    """The last layer, the pooler and a classifier, trained."""
    top = trained(base, source, classes, seed)
    found = {}
    for name, texts in others.items():
        with torch.inference_mode():
            real, mixed = (
                torch.cat(
                    [top.first_token(torch.from_numpy(x)) for x in in_batches(states)]
                ).numpy()
                for states in (texts.real.states[:TARGET], texts.mixed.states)
            )
        found[name] = said(top.head, real, mixed)
    return found


KINDS = {"head": head, "careful": careful, "tuned": tuned}


class Top(nn.Module):
    """The last layer of a BERT, its pooler and a classifier.

    Only the last state of the first token is computed.
    """

    def __init__(self, base: Any, classes: int) -> None:
        super().__init__()
        self.layer = copy.deepcopy(base.encoder.layer[-1])
        pooler, classifier = copy.deepcopy(base.pooler), nn.Linear(base.config.hidden_size, classes)
        self.head = nn.Sequential(pooler.dense, nn.Tanh(), nn.Dropout(0.1), classifier)

    def first_token(self, x: torch.Tensor) -> torch.Tensor:
        """What the head gets."""
        states, mask = x[..., :-1], x[..., -1] > 0
        attention, first = self.layer.attention, states[:, :1]
        parts = (
            (attention.self.query, first),
            (attention.self.key, states),
            (attention.self.value, states),
        )
        width = attention.self.attention_head_size
        query, key, value = (
            linear(s).unflatten(2, (-1, width)).transpose(1, 2) for linear, s in parts
        )
        found = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[:, None, None]
        )
        found = attention.output(found.transpose(1, 2).flatten(2), first)
        return self.layer.output(self.layer.intermediate(found), found)[:, 0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.head(self.first_token(x))


def trained(base: Any, texts: Texts, classes: int, seed: int) -> Top:
    """Train on the texts that the seed draws."""
    torch.manual_seed(seed)
    top, labels = Top(base, classes).train(), torch.from_numpy(texts.labels(classes))
    optimiser, rng = torch.optim.AdamW(top.parameters(), lr=RATE), np.random.default_rng(seed)
    for _ in range(EPOCHS):
        for rows in in_batches(rng.permutation(drawn(len(texts.valence), seed))):
            loss = nn.functional.cross_entropy(
                top(torch.from_numpy(texts.real.states[rows])), labels[rows]
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return top.eval()


def whole(folder: Path, top: Top) -> Any:
    """A classifier of transformers with what was trained inside, as a user has it."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=top.head[-1].out_features, local_files_only=True, use_safetensors=True
    )
    model.base_model.encoder.layer[-1] = top.layer
    model.base_model.pooler.dense, model.classifier = top.head[0], top.head[-1]
    return model.eval()


def open_encoder(folder: Path) -> tuple[Any, Any]:
    """A BERT without a head, and its tokenizer."""
    base = transformers.AutoModel.from_pretrained(
        folder, local_files_only=True, use_safetensors=True
    ).eval()
    return base, transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


def domains(path: Path, folder: Path, out: Path, *, with_opinion: bool) -> dict[str, Texts]:
    """Some texts of all domains; what the encoder sees in them is kept in `out`."""
    base, tokenizer = open_encoder(folder)
    found = {}
    for name in TEXTS:
        kept = out / f"seen-{name}{'-with-opinion' if with_opinion else ''}.npz"
        if not kept.exists():
            texts = texts_of(path, base, tokenizer, name, with_opinion=with_opinion)
            np.savez(kept.with_suffix(".tmp.npz"), texts.valence, *texts.real, *texts.mixed)
            kept.with_suffix(".tmp.npz").rename(kept)
        with np.load(kept, allow_pickle=False) as file:
            valence, *arrays = file.values()
        found[name] = Texts(valence, Seen(*arrays[:2]), Seen(*arrays[2:]))
    return found
