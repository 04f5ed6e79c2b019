"""The bytes of the protocol: headers, batches and acks. Nothing here does I/O."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from .errors import Refused
from .types import BatchReply

Duration = float | timedelta
"""Seconds, or a timedelta."""

MAX_BATCH = 1000  # messages
MAX_NACK_SECONDS = 365 * 24 * 3600
MAX_ERROR_TEXT = 1024  # fila cuts longer ones
MAX_ERROR_CODE = 64
MAX_COST = 1_000_000
MAX_REMAINING = 1_000_000_000_000

EXTEND = b"+WPI"

_NAME = re.compile(r"[!#$%&'*+.0-9A-Z^_`a-z|~-]+", re.ASCII)
_BREAKS = str.maketrans("\r\n", "  ")
_LENGTHS = struct.Struct(">II")
_DELIVERED = struct.Struct(">II16sIq")


def seconds(what: str, duration: Duration, most: float = math.inf) -> float:
    """Returns a duration in seconds. It must be finite, 0 or more, and at most ``most``."""
    s = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not (math.isfinite(s) and 0 <= s <= most):
        allowed = "0 and more" if most == math.inf else f"0 to {most:.0f}"
        raise ValueError(f"{what} is {duration!r}: allowed are {allowed} seconds")
    return s


def go_duration(what: str, duration: Duration, most: float = math.inf) -> str:
    """Returns a duration as Go writes it, such as ``1.5s``."""
    return f"{seconds(what, duration, most):.9f}".rstrip("0").rstrip(".") + "s"


def rfc3339(what: str, time: datetime) -> str:
    if time.tzinfo is None:
        raise ValueError(f"{what} is {time!r}: a datetime with a time zone is expected")
    return time.isoformat()


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the headers. Line breaks in values become spaces."""
    checked = {}
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"header name {name!r}: allowed are letters, digits and !#$%&'*+-.^_`|~")
        if not isinstance(value, str):
            raise TypeError(f"header {name} is {value!r}: a str is expected")
        checked[name] = value.translate(_BREAKS)
    return checked


def header_lines(headers: Mapping[str, str]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode()


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Returns a message of a batch."""
    lines = header_lines(headers)
    return _LENGTHS.pack(len(lines), len(payload)) + lines + payload


class Delivered(NamedTuple):
    """A message of a batch of deliveries."""

    id: str
    attempt: int
    headers: dict[str, str]
    payload: bytes


def parse_deliveries(batch: bytes, n: int) -> Iterator[Delivered]:
    """Returns the n messages of a batch of deliveries."""
    at, total = 0, len(batch)
    if not 1 <= n <= MAX_BATCH:
        raise ValueError(f"a batch of {n} deliveries: allowed are 1 to {MAX_BATCH}")
    for i in range(n):
        body = at + _DELIVERED.size
        if body > total:
            raise ValueError(f"the batch ends within delivery {i} of {n}")
        lines, size, id_, attempt, _lease_until = _DELIVERED.unpack_from(batch, at)
        at = body + lines + size
        if at > total:
            raise ValueError(f"the batch ends within delivery {i} of {n}")
        headers = parse_header_lines(batch[body : body + lines]) if lines else {}
        h = id_.hex()
        text = f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
        yield Delivered(text, attempt, headers, batch[body + lines : at])
    if at != total:
        raise ValueError(f"{total - at} bytes follow the {n} deliveries of the batch")


def parse_header_lines(lines: bytes) -> dict[str, str]:
    """Returns headers as they are in a batch. Of a repeated name the first value counts."""
    headers: dict[str, str] = {}
    for line in lines.decode(errors="replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name, value.strip(" \t"))
    return headers


ACKED = b"+ACK"


def reported(
    cost: float | None = None, remaining: float | None = None, reset: Duration | None = None
) -> dict[str, object]:
    """Returns the fields that report a cost, and what the destination has said about its limit."""
    fields: dict[str, object] = {}
    if cost is not None:
        fields["cost"] = number("cost", cost, MAX_COST)
    if remaining is not None:
        fields["remaining"] = number("remaining", remaining, MAX_REMAINING)
    if reset is not None:
        if remaining is None:
            raise ValueError("reset is given without remaining: they go together")
        fields["reset_ms"] = math.ceil(seconds("reset", reset, MAX_NACK_SECONDS) * 1000)
    return fields


def number(what: str, value: float, most: int) -> float:
    if not (math.isfinite(value) and 0 <= value <= most):
        raise ValueError(f"{what} is {value!r}: allowed are 0 to {most}")
    return value


def ack(fields: dict[str, object]) -> bytes:
    return b"+ACK " + json.dumps(fields).encode() if fields else ACKED


def nack(
    error: str,
    code: str = "",
    delay: Duration | None = None,
    retry_after: Duration | None = None,
    report: dict[str, object] | None = None,
) -> bytes:
    fields: dict[str, object] = {"error": error[:MAX_ERROR_TEXT]}
    if code:
        fields["code"] = code[:MAX_ERROR_CODE]
    if delay is not None:
        fields["delay"] = go_duration("delay", delay, MAX_NACK_SECONDS)
    if retry_after is not None:
        fields["retry_after_ms"] = math.ceil(seconds("retry_after", retry_after, MAX_NACK_SECONDS) * 1000)
    fields |= report or {}
    return b"-NAK " + json.dumps(fields).encode()


def term(reason: str, code: str = "") -> bytes:
    fields = {"error": reason[:MAX_ERROR_TEXT], "code": code[:MAX_ERROR_CODE]}
    given = {name: text for name, text in fields.items() if text}
    return b"+TERM " + json.dumps(given).encode() if given else b"+TERM"


def ack_lines(answers: Iterable[tuple[int, bytes]]) -> bytes:
    """Returns a payload that answers messages of a batch, by their index in ascending order."""
    lines: list[tuple[int, int, bytes]] = []
    for index, payload in answers:
        if lines and lines[-1][1] == index - 1 and lines[-1][2] == payload:
            lines[-1] = (lines[-1][0], index, payload)
        else:
            lines.append((index, index, payload))
    return b"".join(
        b"%d %b\n" % (first, payload) if first == last else b"%d-%d %b\n" % (first, last, payload)
        for first, last, payload in lines
    )


def batch_refusals(reply: BatchReply) -> dict[int, Refused]:
    """Returns the refusals of a batch by index. fila describes the first of each number."""
    described: dict[int, str] = {}
    refusals = {}
    for r in reply.get("refused", []):
        text = described.setdefault(r["err_code"], r.get("description", ""))
        refusals[r["index"]] = Refused(r["code"], r["err_code"], text, r.get("retry_after_ms", 0) / 1000)
    return refusals


def batch_ids(reply: BatchReply, n: int) -> list[str]:
    """Returns the ids of n enqueued messages."""
    text = reply.get("ids", "")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16 * n:
        raise ValueError(f"the confirmation of a batch has {len(raw)} bytes of ids for {n} messages")
    return [str(uuid.UUID(bytes=raw[i : i + 16])) for i in range(0, len(raw), 16)]
