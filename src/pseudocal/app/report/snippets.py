"""Python code that applies the result, by the kind of model."""

from __future__ import annotations

ONNX = """\
import onnxruntime as ort
from scipy.special import softmax

# this file, next to the report, contains the division by T
session = ort.InferenceSession("model.onnx")
logits = session.run([{output!r}], {{session.get_inputs()[0].name: x}})[0]
probabilities = softmax(logits, axis=1)
"""
ONNX_INSIDE = """\
import onnxruntime as ort

# this file, next to the report, contains the division by T
session = ort.InferenceSession("model.onnx")
outputs = session.run(None, {{session.get_inputs()[0].name: x}})    # calibrated
"""
PT2 = """\
import torch

# this file, next to the report, contains the division by T
model = torch.export.load("model.pt2").module()
probabilities = model(x).softmax(dim=1)
"""
TORCHSCRIPT = """\
import torch

# this file, next to the report, contains the division by T
model = torch.jit.load("model.pt")
probabilities = model(x).softmax(dim=1)
"""
STATE_DICT = """\
import torch

# this file, next to the report, contains the division by T
network.load_state_dict(torch.load("model.pth", weights_only=True))
probabilities = network(x).softmax(dim=1)
"""
HUGGING_FACE = """\
from transformers import AutoModelForImageClassification

# this file, next to the report, contains the division by T
model = AutoModelForImageClassification.from_pretrained("model")
probabilities = model(pixel_values=x).logits.softmax(dim=1)
"""
HUGGING_FACE_TEXT = """\
from transformers import AutoModelForSequenceClassification, AutoTokenizer

# this file, next to the report, contains the division by T
model = AutoModelForSequenceClassification.from_pretrained("model")
tokenizer = AutoTokenizer.from_pretrained("model")
tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
probabilities = model(**tokens).logits.softmax(dim=1)
"""
SKLEARN = """\
from pseudocal import Calibration

# this file is next to the report
calibration = Calibration.load("calibration.json")
probabilities = calibration.probabilities(model.predict_log_proba(x))
"""
XGBOOST = """\
from pseudocal import Calibration, binary_logits

calibration = Calibration.load("calibration.json")   # from this folder
margins = booster.inplace_predict(x, predict_type="margin")
logits = binary_logits(margins) if margins.ndim == 1 else margins
probabilities = calibration.probabilities(logits)
"""
LIGHTGBM = """\
from pseudocal import Calibration, binary_logits

calibration = Calibration.load("calibration.json")   # from this folder
scores = booster.predict(x, raw_score=True)
logits = binary_logits(scores) if scores.ndim == 1 else scores
probabilities = calibration.probabilities(logits)
"""
LOGITS = """\
from pseudocal import Calibration

# this file is next to the report
calibration = Calibration.load("calibration.json")
probabilities = calibration.probabilities(logits)    # or: softmax(logits / {temperature:.6g})
"""
EXPORTED = """\
# {files!r}, next to the report, contains the division by T: use it like the original model,
# and do not divide its logits again
"""
REJECTED = """\
from scipy.special import softmax

probabilities = softmax(logits, axis=1)              # T = 1: the original model
"""
SNIPPETS = {
    "huggingface": HUGGING_FACE,
    "huggingface-text": HUGGING_FACE_TEXT,
    "lightgbm": LIGHTGBM,
    "onnx": ONNX,
    "onnx-inside": ONNX_INSIDE,
    "pt2": PT2,
    "state dict": STATE_DICT,
    "torchscript": TORCHSCRIPT,
    "xgboost": XGBOOST,
}
