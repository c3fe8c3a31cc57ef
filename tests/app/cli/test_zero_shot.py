"""`calibrate --second-opinion zero-shot:FOLDER`.

A CLIP or SigLIP that is told the class names, as a second opinion.

The encoders of these tests have random weights: they show that everything is put together, not how
good it is.
"""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, InputError
from pseudocal.app.models.files import logits_reader, open_model

NAMES = ("Red_fox", "grey wolf", "hare", "owl")
SIDE = 16


def save_encoder(kind: str, folder: Path) -> Path:
    """A tiny CLIP or SigLIP with random weights, a tokenizer of whole words, and a preprocessor."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = [
        "[PAD]",
        "[UNK]",
        "a",
        "photo",
        "of",
        "red",
        "fox",
        "grey",
        "wolf",
        "hare",
        "owl",
        "[BOS]",
        "[EOS]",
    ]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(word, words.index(word)) for word in ("[BOS]", "[EOS]")]
    tokenizer.post_processor = processors.TemplateProcessing("[BOS] $A [EOS]", special_tokens=ends)
    tiny = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    text = tiny | {
        "vocab_size": 13,
        "max_position_embeddings": 12,
        "bos_token_id": 11,
        "eos_token_id": 12,
    }
    vision = tiny | {"image_size": SIDE, "patch_size": 8}
    more = {"text_config": text | {"pad_token_id": 0}, "vision_config": vision}
    torch.manual_seed(0)
    if kind == "clip":
        model: Any = transformers.CLIPModel(transformers.CLIPConfig(**more, projection_dim=16))
    else:
        model = transformers.SiglipModel(transformers.SiglipConfig(**more))
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.normal_(0, 0.3)
        model.logit_scale.fill_(3.0)
    model.save_pretrained(folder)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]"
    )
    fast.save_pretrained(folder)
    settings = {
        "size": {"height": SIDE, "width": SIDE},
        "image_mean": [0.5] * 3,
        "image_std": [0.3] * 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("transformers")
    return {
        kind: save_encoder(kind, tmp_path_factory.mktemp("encoder") / kind)
        for kind in ("clip", "siglip")
    }


@pytest.fixture
def named(tmp_path: Path) -> Path:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(NAMES))
    return path


def read(out: Path) -> Calibration:
    return Calibration.load(out / "calibration.json")


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_logits_are_the_scaled_cosines_of_the_encoder(kind, encoders):
    import torch
    import transformers

    folder = encoders[kind]
    x = np.random.default_rng(0).normal(size=(5, 3, SIDE, SIDE)).astype(np.float32)
    found = open_model(f"zero-shot:{folder}", classes=NAMES)
    texts = [f"a photo of a {name}" for name in ("red fox", "grey wolf", "hare", "owl")]
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        texts,
        padding="max_length" if kind == "siglip" else True,
        max_length=12,
        truncation=True,
        return_tensors="pt",
    )
    given = {"input_ids": tokens["input_ids"]}
    if kind == "clip":
        given["attention_mask"] = tokens["attention_mask"]
    with torch.inference_mode():
        expected = transformers.AutoModel.from_pretrained(folder)(
            pixel_values=torch.tensor(x), **given
        )
    own = expected.logits_per_image.numpy()
    logits = found.predict(x)
    assert logits.shape == (5, 4)
    assert np.ptp(logits, axis=1).min() > 0.1  # the classes are told apart
    shift = (own - logits).mean()  # SigLIP adds the same number to all
    np.testing.assert_allclose(logits + shift, own, rtol=1e-4, atol=1e-4)
    assert abs(shift) < 1e-4 or kind == "siglip"
    assert found.expects.shape == (3, SIDE, SIDE)
    assert found.expects.preprocessing["mean"] == (0.5, 0.5, 0.5)
    assert "untested" in found.notes[0]


def test_it_returns_logits_whatever_the_model_returns(encoders):
    found = open_model(
        f"zero-shot:{encoders['clip']}", classes=NAMES, output_type="probabilities", binary=True
    )
    x = np.zeros((2, 3, SIDE, SIDE), dtype=np.float32)
    np.testing.assert_array_equal(logits_reader(found, "probabilities", True)(x), found.predict(x))


def test_a_second_opinion_by_names(
    pseudocal, hub, image_files, encoders, named, tmp_path, monkeypatch
):
    monkeypatch.chdir(encoders["clip"].parent)
    words = ("calibrate", hub, image_files, "-o", tmp_path / "out", "--classes", named)
    done = pseudocal(*words, "--second-opinion", "zero-shot:clip")
    assert done.code == 0, done.err
    assert (
        "second opinion: CLIPModel with 4 class names, zero-shot; how well this works is untested"
        in done.err
    )
    assert (
        "for the second opinion: stretched to 16 x 16, bilinear, pixels / 255, mean (0.5, 0.5, 0.5)"
        in done.err
    )
    calibration = read(tmp_path / "out")
    assert calibration.settings["second_opinion"] == [f"zero-shot:{encoders['clip']}"]
    assert 0 < calibration.trust.evidence["agreement"] < 1
    page = " ".join(html.unescape((tmp_path / "out" / "report.html").read_text()).split())
    # random weights agree by chance
    assert "Second opinion: a zero-shot model (untested), clip (not used)." in page
    monkeypatch.chdir(tmp_path)
    again = pseudocal("calibrate", "--job", tmp_path / "out" / "job.toml", "-o", tmp_path / "again")
    assert again.code == 0, again.err
    assert read(tmp_path / "again").trust == calibration.trust


def test_the_names_may_be_those_of_the_model(
    pseudocal, hub, image_files, encoders, named, tmp_path
):
    own = shutil.copytree(hub, tmp_path / "own")
    config = json.loads((own / "config.json").read_text())
    names = {
        "id2label": dict(enumerate(NAMES)),
        "label2id": {name: i for i, name in enumerate(NAMES)},
    }
    (own / "config.json").write_text(json.dumps(config | names))
    for out, model, more in (("own", own, ()), ("given", hub, ("--classes", named))):
        words = ("calibrate", model, image_files, "-o", tmp_path / "out" / out, *more)
        done = pseudocal(*words, "--second-opinion", f"zero-shot:{encoders['clip']}")
        assert done.code == 0, done.err
    assert read(tmp_path / "out" / "own").trust == read(tmp_path / "out" / "given").trust


def test_it_is_an_encoder_for_a_surrogate_too(pseudocal, hub, image_files, encoders, tmp_path):
    words = (
        "calibrate",
        hub,
        image_files,
        "-o",
        tmp_path / "out",
        "--second-opinion",
        f"surrogate:{encoders['clip']}",
    )
    done = pseudocal(*words)
    assert done.code == 0, done.err
    assert read(tmp_path / "out").trust.verdict in ("caution", "do not apply")


def test_what_is_refused(pseudocal, hub, image_files, tabular, features, encoders, named, tmp_path):
    clip, out = f"zero-shot:{encoders['clip']}", ("-o", tmp_path / "out")
    three = tmp_path / "three.txt"
    three.write_text("\n".join(NAMES[:3]))
    (tmp_path / "texts.txt").write_text("One text.\nAnother.\n")
    texts = ("numpy:negative", tmp_path / "texts.txt", *out, "--text", "text", "--classes", named)
    nameless, table = (
        (hub, image_files, *out),
        (tabular["onnx"], features, *out, "--classes", three),
    )
    for words, message in (
        ((*nameless, "--second-opinion", clip), "; pass --classes FILE"),
        (
            (*table[:4], "--second-opinion", clip),
            "a zero-shot encoder needs class names",
        ),
        (
            (*table, "--second-opinion", clip),
            "expected inputs of shape (3, 16, 16) for the second opinion, got ",
        ),
        (
            (*nameless, "--classes", named, "--second-opinion", f"zero-shot:{hub}"),
            "a zero-shot encoder is a CLIP or SigLIP",
        ),
        (
            (*nameless, "--classes", named, "--second-opinion", "zero-shot:no/folder"),
            "got zero-shot:no/folder",
        ),
        (
            (*texts, "--second-opinion", clip),
            "a second opinion needs mixup samples",
        ),
        ((*nameless, "--classes", three, "--second-opinion", clip), "4 classes"),
        (
            (clip, image_files, *out, "--classes", named),
            "can only be a second opinion, not the model to calibrate",
        ),
    ):
        done = pseudocal("calibrate", *words)
        assert (done.code, message in done.err) == (3, True), done.err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("tokenizer", "with its tokenizer"),
        ("weights", "with safetensors"),
        ("some weights", "lack text_model"),
        ("config", "expected JSON in .*config.json"),
    ],
)
def test_folders_that_lack_something(change, message, encoders, tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(encoders["clip"], tmp_path / "damaged")
    if change == "tokenizer":
        for path in folder.glob("*token*"):
            path.unlink()
    elif change == "weights":
        (folder / "model.safetensors").unlink()
    elif change == "some weights":
        weights = load_file(folder / "model.safetensors")
        kept = {key: value for key, value in weights.items() if not key.startswith("text_model")}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match=message):
        open_model(f"zero-shot:{folder}", classes=NAMES)


def test_the_settings_of_images_may_be_part_of_those_of_a_processor(encoders, tmp_path):
    folder = shutil.copytree(encoders["clip"], tmp_path / "newer")  # as transformers 5 saves them
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    older, newer = (
        open_model(f"zero-shot:{each}", classes=NAMES) for each in (encoders["clip"], folder)
    )
    assert newer.expects == older.expects


@pytest.mark.slow
def test_ray_gives_the_same_answer(ray, pseudocal, hub, image_files, encoders, named, tmp_path):
    words = (
        "calibrate",
        hub,
        image_files,
        "--classes",
        named,
        "--second-opinion",
        f"zero-shot:{encoders['clip']}",
    )
    assert pseudocal(*words, "-o", tmp_path / "here").code == 0
    done = pseudocal(*words, "-o", tmp_path / "there", "--ray", "--workers", 1)
    assert done.code == 0, done.err
    assert read(tmp_path / "there").trust.verdict == read(tmp_path / "here").trust.verdict
    assert read(tmp_path / "there").trust.evidence == pytest.approx(
        read(tmp_path / "here").trust.evidence, rel=1e-6
    )
