"""Message: what a handler works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from nats.aio.msg import Msg

from . import frames


@dataclass(slots=True, eq=False)
class Message:
    """A message that a handler works on."""

    id: str
    queue: str
    attempt: int  # 1 on the first delivery
    headers: dict[str, str]
    data: bytes
    decode: Callable[[bytes], Any] = field(repr=False)

    @property
    def payload(self) -> Any:
        """The decoded payload: JSON, unless the client has another codec."""
        return self.decode(self.data)

    @property
    def key(self) -> str:
        """The fairness key; empty with ``min_headers``."""
        return self.headers.get("Fila-Key", "")

    @property
    def route(self) -> str:
        """The route by which the message goes; empty if it has no choice."""
        return self.headers.get("Fila-Route", "")

    @property
    def enqueued_at(self) -> datetime | None:
        """When fila took the message, to microseconds; None with ``min_headers``."""
        text = self.headers.get("Fila-Enqueued-At")
        if text is None:
            return None
        seconds, _, fraction = text.rstrip("Z").partition(".")
        at = datetime.strptime(f"{seconds}.{fraction[:6] or 0}", "%Y-%m-%dT%H:%M:%S.%f")
        return at.replace(tzinfo=timezone.utc)


def parse_delivery(msg: Msg, queue: str, decode: Callable[[bytes], Any]) -> tuple[bool, list[Message]]:
    """Returns whether a delivery is a batch, and its messages. It raises ValueError if fila sends no such thing."""
    headers = msg.headers or {}
    number = headers.get("Fila-Batch")
    if number is not None:
        deliveries = frames.parse_deliveries(msg.data, int(number))
        return True, [Message(m.id, queue, m.attempt, m.headers, m.payload, decode) for m in deliveries]
    return False, [Message(headers.get("Fila-Id", ""), queue, int(headers["Fila-Attempt"]), headers, msg.data, decode)]
