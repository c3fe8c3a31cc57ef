"""Sign what this user writes, so that it is known again.

A record from somebody else has no valid signature.

The key is random and stays in the user's state folder. The same content gets the same signature, on
one machine.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

KEY_FILE, KEY_SIZE = "key", 32


def state_folder() -> Path:
    """`pseudocal/` in the user's state folder.

    `$XDG_STATE_HOME`, or `%LOCALAPPDATA%`, or `~/.local/state`.
    """
    chosen = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(chosen) if chosen else Path.home() / ".local" / "state") / "pseudocal"


def signature_of(content: Any) -> str | None:
    """Sign JSON values; None if there is no place to keep a key.

    Args:
        content: values that `json.dumps` takes.

    """
    key = _read_key() or _new_key()
    return None if key is None else _digest(key, content)


def is_signed(content: Any, signature: str | None) -> bool:
    """Whether this user signed these values on this machine."""
    key = _read_key()
    if key is None or signature is None:
        return False
    return hmac.compare_digest(_digest(key, content).encode(), signature.encode(errors="replace"))


def _digest(key: bytes, content: Any) -> str:
    return hmac.new(key, json.dumps(content).encode(), hashlib.sha256).hexdigest()


def _read_key() -> bytes | None:
    try:
        key = (state_folder() / KEY_FILE).read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return key if len(key) == KEY_SIZE else None


def _new_key() -> bytes | None:
    key = secrets.token_bytes(KEY_SIZE)
    try:
        folder = state_folder()
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:  # another run has just made one
        return _read_key()
    except (OSError, RuntimeError):
        return None
    with os.fdopen(file, "wb") as opened:
        opened.write(key)
    return key
