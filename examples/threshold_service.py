"""A service that abstains: it reports a class only where a promise covers it.

`calibrate`, `label --for-threshold` and `threshold` run once. The service needs onnxruntime, the
calibrated model and `threshold.json`. Below the threshold it reports no class, and a person takes
over.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from onnx_service import give_labels, run, save_linear

Classify = Callable[[NDArray[np.float32]], dict[str, object]]


def main() -> dict[str, Any]:
    """Find a threshold with the command, start the service, and send all of the target to it."""
    x, y = load_digits(return_X_y=True)
    noise = np.random.default_rng(0).normal(0, 3, size=x[900:].shape)
    target = (x[900:] + noise).astype(np.float32)
    truth = y[900:]
    with TemporaryDirectory() as name:
        folder = Path(name)
        model = LogisticRegression(C=0.01, max_iter=2000).fit(x[:900], y[:900])
        save_linear(model, folder / "digits.onnx")
        np.save(folder / "unlabelled.npy", target)
        out = folder / "out"
        run("calibrate", folder / "digits.onnx", folder / "unlabelled.npy", "-o", out)
        run("label", out, "--for-threshold", "5%", "-n", 120)
        give_labels(out / "to-label.csv", folder / "labels.csv", truth)
        run("threshold", out, folder / "labels.csv", "--max-error", "5%")
        replies, promise = asked(service(out), target)
    accepted = np.array([reply["class"] is not None for reply in replies])
    right = np.array([reply["class"] for reply in replies]) == truth
    found = {
        "promise": promise["promise"],
        "basis": promise["basis"],
        "coverage": float(accepted.mean()),
        "error": float(1 - right[accepted].mean()) if accepted.any() else 0.0,
        "error without a threshold": float((model.predict(target) != truth).mean()),
    }
    print(json.dumps(found, indent=1))
    return found


def service(out: Path) -> HTTPServer:
    """What is deployed: POST an array of pixels to classify it, GET the promise."""
    classify = classifier(out)
    rule = json.loads((out / "threshold.json").read_text(encoding="utf-8"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({key: rule[key] for key in ("promise", "basis", "coverage")})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(classify(np.array(json.loads(body), dtype=np.float32)))

        def reply(self, content: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *words: Any) -> None:
            """Nothing: an example is quiet."""

    return HTTPServer(("127.0.0.1", 0), Handler)


def classifier(out: Path) -> Classify:
    """The ten lines that a service needs."""
    rule = json.loads((out / "threshold.json").read_text(encoding="utf-8"))
    if rule["basis"] != "guaranteed":
        raise SystemExit(rule["promise"])
    session = ort.InferenceSession(out / "unconfirmed-model.onnx")

    def classify(pixels: NDArray[np.float32]) -> dict[str, object]:
        (logits,) = session.run(["logits"], {"pixels": pixels[None]})
        odds = np.exp(logits[0] - logits[0].max())
        confidence = float(odds.max() / odds.sum())
        accepted = rule["confidence"] is not None and confidence >= rule["confidence"]
        return {"class": int(odds.argmax()) if accepted else None, "confidence": confidence}

    return classify


def asked(server: HTTPServer, target: NDArray[np.float32]) -> tuple[list[Any], Any]:
    """Serve in another thread, and send requests as a client would."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}/"
    try:
        replies = []
        for pixels in target:
            request = Request(address, data=json.dumps(pixels.tolist()).encode())
            replies.append(json.loads(urlopen(request).read()))
        return replies, json.loads(urlopen(address).read())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    main()
