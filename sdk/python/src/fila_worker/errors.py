"""Errors of the client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from .types import ErrorBody, GuardAnswer


class FilaError(Exception):
    """The base of all errors of this package."""


class Refused(FilaError):
    """fila refuses a request.

    ``code`` is the class, as in HTTP; ``err_code`` is the stable number. ``retry_after`` is when a
    retry makes sense, in seconds; 0 if fila does not know.
    """

    def __init__(self, code: int, err_code: int, description: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{description} ({code}, err_code {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description
        self.retry_after = retry_after


class NoFila(FilaError):
    """Nobody listens on the subject: no fila is connected, or it has no such queue."""


class NoReply(FilaError):
    """No reply came in time. Whether the request had an effect is unknown."""


class GuardRefused(FilaError):
    """The guard refuses a call now. ``answer`` names the gate and the key."""

    def __init__(self, answer: GuardAnswer) -> None:
        after = answer.get("retry_after_ms", 0)
        text = f"the guard refuses the call: {answer.get('gate')} of {answer.get('key')}"
        super().__init__(text + (f", ask again in {after} ms" if after else ""))
        self.answer = answer
        self.retry_after = after / 1000


def parse_error(headers: Mapping[str, str] | None, body: bytes) -> FilaError | None:
    """Returns the error in a reply, or None."""
    if not headers:
        return None
    code = headers.get("Nats-Service-Error-Code")
    if code is None:
        return NoFila("nobody listens on the subject") if headers.get("Status") == "503" and not body else None
    try:
        detail = cast(ErrorBody, json.loads(body))["error"]
        err_code, description = int(detail["err_code"]), str(detail["description"])
    except (ValueError, KeyError, TypeError):  # a reply of another service
        err_code, description = 0, headers.get("Nats-Service-Error", "")
    return Refused(_number(code) or 500, err_code, description, _number(headers.get("Fila-Retry-After-Ms", "")) / 1000)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
