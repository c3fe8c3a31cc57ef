"""Hugging Face models.

The hub only when asked, no settings that select code, no files outside the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import socket

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app.cli import main
from pseudocal.app.models.files import open_model

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")  # of transformers
AUTO = (
    "AutoConfig",
    "AutoModel",
    "AutoModelForImageClassification",
    "AutoModelForSequenceClassification",
    "AutoTokenizer",
)


@pytest.fixture
def unreached(monkeypatch):
    """Let nothing of transformers be loaded and nothing be connected; return what was tried."""
    tried = []

    def fail(*arguments, **_):
        tried.append(arguments)
        raise AssertionError("this must not be reached")

    for name in AUTO:
        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", fail)
    monkeypatch.setattr("transformers.utils.hub.cached_file", fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(socket.socket, "connect", fail)
    return tried


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "good", "bad"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tiny = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    config = transformers.BertConfig(vocab_size=4, max_position_embeddings=12, **tiny)
    folder = tmp_path_factory.mktemp("bert") / "model"
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )
    fast.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(bert, tmp_path):
    return shutil.copytree(bert, tmp_path / "copy")


def change(path, settings):
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | settings))


@pytest.mark.parametrize("option", [False, True])
def test_the_command_asks_no_hub_for_a_path_that_does_not_exist(
    tmp_path, unreached, capsys, monkeypatch, option
):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((20, 4), np.float32))
    second = ["--second-opinion", "surrogate:acme-secret/model-v2"]
    words = ["numpy:negative", "x.npy", *second] if option else ["acme-secret/model-v2", "x.npy"]
    assert main(["calibrate", *words, "-o", "out"]) == 3
    message = (
        "pseudocal: no such file or folder: acme-secret/model-v2; to load it from the Hugging Face hub, write "
        "hf:acme-secret/model-v2"
    )
    assert capsys.readouterr().err.splitlines()[-1] == message
    assert unreached == []


@pytest.mark.parametrize(
    "name",
    ["acme/model", "surrogate:acme/model", "zero-shot:acme/model", "acme/model.onnx", "acme"],
)
def test_names_without_the_prefix_are_paths(unreached, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        open_model(name, classes=("a", "b"))
    assert unreached == []


@pytest.mark.parametrize("name", ["hf:acme/model", "surrogate:hf:acme/model"])
def test_the_prefix_asks_the_hub(monkeypatch, name):
    asked = []

    def find(name, file, **_):
        asked.append(name)
        raise OSError("no network")

    monkeypatch.setattr("transformers.utils.hub.cached_file", find)
    with pytest.raises(InputError, match="no network"):
        open_model(name)
    assert asked == ["acme/model"]


def test_settings_on_the_hub_are_checked_before_anything_is_loaded(folder, unreached, monkeypatch):
    change(folder / "config.json", {"_attn_implementation": "evil/kernel"})

    def find(name, file, **_):
        return str(folder / file) if (folder / file).exists() else None

    monkeypatch.setattr("transformers.utils.hub.cached_file", find)
    with pytest.raises(InputError, match=r"^'_attn_implementation' = .* selects code: remove it$"):
        open_model("hf:acme/model")
    assert unreached == []


def test_a_folder_with_the_name_of_a_hub_model_is_not_taken_for_it(
    folder, tmp_path, unreached, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, "acme/model")
    with pytest.raises(
        InputError,
        match="hf:acme/model is on the hub, and acme/model is also here",
    ):
        open_model("hf:acme/model")
    assert unreached == []


@pytest.mark.parametrize(
    "settings",
    [
        {"_attn_implementation": "evil/kernel"},
        {"attn_implementation": "kernels-community/flash-attn2"},
        {"attn_implementation": "flash_attention_2"},
        {"_attn_implementation_internal": "evil/kernel"},
        {"attn_implementation": {"text_config": "evil/kernel"}},
        {"experts_implementation": "evil/kernel"},
        {"text_config": {"attn_implementation": "evil/kernel"}},
        {"parts": [{"vision_config": {"_attn_implementation": "evil/kernel@main:f"}}]},
        {"auto_map": {"AutoConfig": "evil.Config"}},
        {"quantization_config": {"quant_method": "fp8"}},
        {"use_kernels": True},
        {"kernel_config": {"RMSNorm": "evil/kernel:f"}},
        {"backbone": "hf-hub:evil/model"},
    ],
    ids=str,
)
def test_settings_that_select_code_are_refused(folder, unreached, settings):
    change(folder / "config.json", settings)
    with pytest.raises(InputError, match=r" in config.json of .* selects code"):
        open_model(str(folder))
    with pytest.raises(InputError, match=r" in config.json of .* selects code"):
        open_model(f"surrogate:{folder}")
    assert unreached == []


def test_code_that_a_tokenizer_selects_is_refused(folder, unreached):
    change(
        folder / "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}
    )
    with pytest.raises(InputError, match=r"'auto_map' = .* in tokenizer_config.json of "):
        open_model(str(folder))
    assert unreached == []


def test_adapters_are_refused_since_they_name_another_model(folder, unreached):
    change(folder / "adapter_config.json", {"base_model_name_or_path": "evil/model"})
    with pytest.raises(InputError, match=r"is an adapter, not a whole model"):
        open_model(str(folder))
    assert unreached == []


@pytest.mark.parametrize(
    "settings",
    [{"attn_implementation": "eager"}, {"_attn_implementation": "sdpa"}, {"auto_map": {}}],
)
def test_settings_that_select_what_is_built_in_are_taken(folder, settings):
    change(folder / "config.json", settings)
    classes = {
        "id2label": {0: "auto_map", 1: "use_kernels"},
        "label2id": {"auto_map": 0, "use_kernels": 1},
    }
    change(folder / "config.json", classes)
    model = open_model(str(folder))
    assert model.classes == ("auto_map", "use_kernels")
    assert model.predict(np.array(["good", "bad bad"])).shape == (2, 2)


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
        "model.safetensors",
        "README.md",
        "templates",
    ],
)
def test_links_that_leave_the_folder_are_refused(folder, tmp_path, unreached, name):
    secret = tmp_path / "secret"
    if (folder / name).exists():
        (folder / name).rename(secret)
    else:
        secret.mkdir()
    (folder / name).symlink_to(secret)
    with pytest.raises(InputError, match=rf"{name} is a link that leaves "):
        open_model(str(folder))
    assert unreached == []


def test_a_link_to_a_link_that_leaves_the_folder_is_refused(folder, tmp_path, unreached):
    (folder / "tokenizer.json").rename(tmp_path / "secret")
    (folder / "one").symlink_to(tmp_path / "secret")
    (folder / "tokenizer.json").symlink_to("one")
    with pytest.raises(InputError, match="a link that leaves"):
        open_model(str(folder))
    assert unreached == []


def test_a_fifo_in_a_folder_is_refused(folder, unreached):
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")
    with pytest.raises(InputError, match=r"tokenizer.json is a pipe or a device"):
        open_model(str(folder))


def test_links_inside_the_folder_and_those_of_a_hub_cache_are_followed(folder, tmp_path):
    (folder / "tokenizer.json").rename(folder / "real.json")
    (folder / "tokenizer.json").symlink_to("real.json")
    assert open_model(str(folder)).expects.text
    snapshot = tmp_path / "models--acme--model" / "snapshots" / "abc"
    blobs = tmp_path / "models--acme--model" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for i, path in enumerate(sorted(folder.iterdir())):
        shutil.copy(path, blobs / str(i))
        (snapshot / path.name).symlink_to(f"../../blobs/{i}")
    assert open_model(str(snapshot)).expects.text


def test_files_outside_that_settings_name_are_refused(folder, tmp_path, unreached):
    (folder / "model.safetensors").rename(tmp_path / "secret.safetensors")
    change(folder / "model.safetensors.index.json", {"weight_map": {"a": "../secret.safetensors"}})
    with pytest.raises(
        InputError,
        match=r"model.safetensors.index.json names ../secret.safetensors, which is outside",
    ):
        open_model(str(folder))
    (folder / "model.safetensors.index.json").unlink()
    change(folder / "tokenizer_config.json", {"vocab_file": str(tmp_path / "secret.safetensors")})
    with pytest.raises(InputError, match=r"tokenizer_config.json names .*, which is outside"):
        open_model(str(folder))
    assert unreached == []


@pytest.mark.parametrize("length", ["x", 0, -5, [], None, True])
def test_a_tokenizer_with_an_impossible_length_is_refused(folder, tmp_path, capsys, length):
    change(folder / "tokenizer_config.json", {"model_max_length": length})
    (tmp_path / "texts.csv").write_text("text\n" + "good\nbad bad\n" * 20)
    words = [
        "calibrate",
        folder,
        tmp_path / "texts.csv",
        "--text",
        "text",
        "-o",
        tmp_path / "out",
        "-q",
    ]
    code = main([str(word) for word in words])
    lines = capsys.readouterr().err.splitlines()
    if length is None:  # transformers takes its default
        assert code == 0
    else:
        assert (code, len(lines)) == (3, 1)
        assert "expected a" in lines[0]
