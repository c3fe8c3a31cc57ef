"""Texts.

Hugging Face and scikit-learn classifiers of them, token ids, sparse rows, and functions that make a
model.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, rows_to_label
from pseudocal.calibrators import Reason, ReasonCode

GOOD, BAD = ("fine", "lovely", "superb"), ("awful", "dull", "poor")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 120 short texts with their class, of which the model of the tests is told nothing."""
    rng = np.random.default_rng(0)
    rows: list[tuple[Any, ...]] = []
    for i in range(120):
        label = int(rng.integers(2))
        word = (BAD, GOOD)[label if rng.random() < 0.8 else 1 - label][rng.integers(3)]
        rows.append(
            (i, f"a {word} story,\n{'very ' * int(rng.integers(4))}long", ("bad", "good")[label])
        )
    path = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "review", "label"), *rows])
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights and a tokenizer of whole words, as a Hugging Face folder."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "a", "story", "very", "long", ",", *GOOD, *BAD]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
        id2label={0: "bad", 1: "good"},
        label2id={"bad": 0, "good": 1},
    )
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(60)
    folder = tmp_path_factory.mktemp("bert")
    model.save_pretrained(folder)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )
    fast.save_pretrained(folder)
    return folder


def texts_of(reviews: Path) -> list[str]:
    with reviews.open(newline="", encoding="utf-8") as file:
        return [row["review"] for row in csv.DictReader(file)]


def test_a_text_classifier_is_predicted_without_mixup_and_calibrated_by_labels(
    pseudocal, bert, reviews, tmp_path
):
    import torch
    import transformers

    done = pseudocal(
        "calibrate", bert, reviews, "-o", tmp_path / "out", "--batch-size", 50
    )  # one column of texts
    assert done.code == 0, done.err
    assert "120 texts of the column 'review'" in done.err
    assert f"pseudocal label {tmp_path / 'out'} -n 50" in done.out
    assert "verdict: caution" in done.out
    why = (Reason(ReasonCode.TEXTS_NOT_MIXED), Reason(ReasonCode.NOTHING_FITTED))
    assert all(f"  {reason}\n" in done.out for reason in why)
    assert "no estimated accuracy" in done.out
    assert " after" not in done.out.split("verdict")[0]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Nothing was applied: the confidences are unchanged." in report
    assert re.search(
        r"Least confident inputs.*<span>a \w+ story, (very )*long</span>", report, re.DOTALL
    )
    of_a_fit = (
        "the direction of the correction",
        "95% interval",
        "changed most",
        "after calibration",
    )
    assert [
        words
        for words in (*of_a_fit, "Accuracy, estimated", "expected to be wrong")
        if words in report
    ] == []
    calibration = Calibration.load(tmp_path / "out" / "calibration.json")
    assert (calibration.method, calibration.temperature, calibration.counts["mixup_samples"]) == (
        "none",
        1.0,
        0,
    )
    assert "estimated_accuracy" not in calibration._repr_html_()
    logits = np.load(tmp_path / "out" / "logits.npy")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(bert)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    for i in (0, 7, 119):
        with torch.inference_mode():
            alone = model(**tokenizer(texts_of(reviews)[i], return_tensors="pt")).logits.numpy()
        np.testing.assert_allclose(logits[[i]], alone, atol=1e-4)
    assert pseudocal("label", tmp_path / "out", "-n", 40).code == 0
    page = (tmp_path / "out" / "label.html").read_text()
    assert '["review", "a ' in page
    assert [
        column for column in ("label", "id") if f'["{column}", ' in page
    ] == []  # the model was not given them
    with (tmp_path / "out" / "to-label.csv").open(newline="", encoding="utf-8") as file:
        asked = list(csv.DictReader(file))
    assert [row["review"] for row in asked] == [
        texts_of(reviews)[int(row["file"])] for row in asked
    ]
    with reviews.open(newline="", encoding="utf-8") as file:
        truth = [row["label"] for row in csv.DictReader(file)]
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("file", "label"), *((row, truth[row]) for row in rows_to_label(logits, 40))]
        )
    assert not (tmp_path / "out" / "model").exists()
    done = pseudocal("refine", tmp_path / "out", tmp_path / "labels.csv")
    assert done.code == 0, done.err
    assert "measured on 40 labels" in done.out
    refined = Calibration.load(tmp_path / "out" / "calibration.json")
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    exported = tmp_path / "out" / written["model"]["files"][0]  # unconfirmed: it knows nothing
    model = transformers.AutoModelForSequenceClassification.from_pretrained(exported)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    with torch.inference_mode():
        after = (
            model(**tokenizer(texts_of(reviews)[3], return_tensors="pt"))
            .logits.softmax(dim=1)
            .numpy()
        )
    np.testing.assert_allclose(after, refined.probabilities(logits[[3]]), atol=1e-5)


def test_a_table_of_questions_is_filled_in_beside_its_texts(pseudocal, tmp_path):
    np.save(tmp_path / "logits.npy", np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]]))
    texts = ("=1+1; fine", "dull, 'really'", "two\nlines", "last")
    with (tmp_path / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("Label", "review"), *(("bad", text) for text in texts)])
    done = pseudocal(
        "label",
        tmp_path / "logits.npy",
        "--output-type",
        "logits",
        "--inputs",
        tmp_path / "texts.csv",
        "-n",
        4,
    )
    assert done.code == 0, done.err
    with (tmp_path / "logits" / "to-label.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "label", "review"]  # another label would give the answer away
    shown = {row["file"]: row["review"] for row in rows}
    assert shown == {"0": "'=1+1; fine", "1": texts[1], "2": texts[2], "3": texts[3]}  # no formula
    with (tmp_path / "logits" / "to-label.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"label": int(row["file"]) % 2} for row in rows)
    done = pseudocal("refine", tmp_path / "logits", tmp_path / "logits" / "to-label.csv")
    assert done.code == 0, done.err
    assert "measured on 4 labels" in done.out
    assert "<span>two lines</span>" in (tmp_path / "logits" / "report.html").read_text()


def test_labels_are_measured_on_texts_too(pseudocal, bert, reviews, tmp_path):
    with reviews.open(newline="", encoding="utf-8") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    (tmp_path / "labels.txt").write_text("\n".join(labels))
    (tmp_path / "reviews.txt").write_text(
        "\n".join(text.replace("\n", " ") for text in texts_of(reviews)) + "\n"
    )
    options = ("-o", tmp_path / "out", "--ground-truth", tmp_path / "labels.txt", "--json")
    done = pseudocal("calibrate", bert, tmp_path / "reviews.txt", *options)
    assert done.code == 0, done.err
    assert {row["metric"] for row in json.loads(done.out)["metrics"]} >= {"ece", "accuracy"}
    report = (tmp_path / "out" / "report.html").read_text()
    by_name = (
        "--calibration",
        tmp_path / "out" / "calibration.json",
        "--json",
    )  # whose folder knows the names
    scored = pseudocal(
        "evaluate", tmp_path / "out" / "logits.npy", tmp_path / "labels.txt", *by_name
    )
    assert [row["before"] for row in json.loads(scored.out)] == [
        row["before"] for row in json.loads(done.out)["metrics"]
    ]
    assert "Accuracy, ground truth" in report
    assert "Reliability before calibration (inputs)" in report
    assert "Reliability after calibration" not in report


def test_a_pipeline_of_scikit_learn_takes_texts(pseudocal, reviews, tmp_path):
    skops = pytest.importorskip("skops.io")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = texts_of(reviews)
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model.fit(texts, ["good" if any(word in text for word in GOOD) else "bad" for text in texts])
    skops.dump(model, tmp_path / "model.skops")
    done = pseudocal(
        "calibrate", tmp_path / "model.skops", reviews, "-o", tmp_path / "out", "--text", "review"
    )
    assert done.code == 0, done.err
    assert "verdict: caution" in done.out
    logits = np.load(tmp_path / "out" / "logits.npy")
    np.testing.assert_allclose(logits, model.predict_log_proba(texts), rtol=1e-6)


def test_what_is_not_understood_leads_to_texts(
    pseudocal, bert, hub, tabular, reviews, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("reviews.txt").write_text("A superb story.\nDull.\n")
    named = pseudocal("calibrate", tabular["onnx"], reviews, "-o", "out", "--features", "review")
    assert (named.code, "pass --text review" in named.err) == (3, True)
    assert "name the features" not in named.err
    listed = pseudocal("calibrate", hub, "reviews.txt", "-o", "out")
    assert (listed.code, listed.err.endswith("; pass --text text\n")) == (3, True)
    Path("two.csv").write_text("title,review\nStory,Superb.\nStory,Dull.\n")
    missing = pseudocal("calibrate", bert, "two.csv", "-o", "out")
    assert missing.code == 3
    assert "no column 'text', only title, review; pass --text NAME" in missing.err
    number = pseudocal("calibrate", bert, reviews, "-o", "out", "--text", "id")
    assert (number.code, "expected texts in column 'id'" in number.err) == (3, True)
    second = pseudocal(
        "calibrate", bert, reviews, "-o", "out", "--text", "review", "--second-opinion", bert
    )
    assert (second.code, "a second opinion needs mixup samples" in second.err) == (3, True)
    (bert.parent / "plain").mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        (bert.parent / "plain" / name).write_bytes((bert / name).read_bytes())
    alone = pseudocal("calibrate", bert.parent / "plain", reviews, "-o", "out", "--text", "review")
    assert (alone.code, "expected a text classifier with its tokenizer" in alone.err) == (3, True)


def test_token_ids_are_not_mixed(pseudocal, tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    table = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"]),
        helper.make_node("ReduceMean", ["words"], ["z"]),
    ]
    nodes[1].attribute.extend(
        [helper.make_attribute("axes", [1]), helper.make_attribute("keepdims", 0)]
    )
    ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n", 4])
    z = helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(
        nodes, "g", [ids], [z], [onnx.numpy_helper.from_array(table, "table")]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
        tmp_path / "m.onnx",
    )
    rows = np.random.default_rng(1).integers(0, 9, size=(50, 4))
    np.save(tmp_path / "ids.npy", rows)
    done = pseudocal("calibrate", tmp_path / "m.onnx", tmp_path / "ids.npy", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert "Token ids are not mixed" in done.out
    np.testing.assert_allclose(
        np.load(tmp_path / "out" / "logits.npy"), table[rows].mean(axis=1), rtol=1e-5
    )


def test_sparse_rows_are_those_of_the_array(pseudocal, tabular, features, tmp_path):
    from scipy import sparse

    dense = np.where(np.load(features) > 0, np.load(features), 0)
    np.save(tmp_path / "dense.npy", dense)
    sparse.save_npz(tmp_path / "rows.npz", sparse.csc_array(dense))
    for name in ("dense.npy", "rows.npz"):
        done = pseudocal("calibrate", tabular["onnx"], tmp_path / name, "-o", tmp_path / name[:4])
        assert done.code == 0, done.err
    one, other = (
        Calibration.load(tmp_path / name / "calibration.json") for name in ("dens", "rows")
    )
    assert one.temperature == other.temperature
    assert pseudocal("label", tmp_path / "rows", "-n", 3).code == 0


def test_a_function_without_arguments_makes_the_model_once(
    pseudocal, features, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code = "import numpy as np\nmade = []\nw = np.random.default_rng(0).normal(size=(5, 3))\n"
    code += "def make():\n    made.append(1)\n    return lambda x: 6 * x @ w\ndef number():\n    return 3\n"
    Path("makes_a_model.py").write_text(code)
    done = pseudocal("calibrate", "makes_a_model:make", features, "-o", "out")
    assert done.code == 0, done.err
    assert len(sys.modules["makes_a_model"].made) == 1
    wrong = pseudocal("calibrate", "makes_a_model:number", features, "-o", "out")
    assert (wrong.code, " instead of a model" in wrong.err) == (3, True)
