"""What a handler says about a message: None, Done, Retry, Dead or an exception."""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import frames
from .errors import FilaError
from .frames import Duration


@dataclass(frozen=True)
class Done:
    """Acks the message.

    ``cost`` is what it has really cost, in place of the estimate. ``remaining`` is the cost that the destination still
    admits, as it says, and ``reset`` the time until it admits more, for limits that learn.
    """

    cost: float | None = None
    remaining: float | None = None
    reset: Duration | None = None


class Retry(Exception):
    """Nacks the message: return or raise it.

    Without ``delay`` the queue decides when to retry. ``retry_after`` is how long the destination asks everyone to
    wait: it opens the message's circuit. ``cost``, ``remaining`` and ``reset`` are those of :class:`Done`, of the
    failed attempt.
    """

    def __init__(
        self,
        error: str = "",
        *,
        delay: Duration | None = None,
        code: str = "",
        retry_after: Duration | None = None,
        cost: float | None = None,
        remaining: float | None = None,
        reset: Duration | None = None,
    ) -> None:
        super().__init__(error)
        self.answer = frames.nack(error, code, delay, retry_after, frames.reported(cost, remaining, reset))


class Dead(Exception):
    """Moves the message to the dead letter queue: return or raise it."""

    def __init__(self, reason: str = "", *, code: str = "") -> None:
        super().__init__(reason)
        self.answer = frames.term(reason, code)


Outcome = Done | Retry | Dead | None


def answer_of(outcome: object) -> bytes:
    """Returns the answer for the result of a handler, or for its exception."""
    if outcome is None:
        return frames.ACKED
    if isinstance(outcome, Done):
        return frames.ack(frames.reported(outcome.cost, outcome.remaining, outcome.reset))
    if isinstance(outcome, (Retry, Dead)):
        return outcome.answer
    if not isinstance(outcome, BaseException):
        raise TypeError(f"the handler returned {outcome!r:.80}: allowed are None, Done, Retry and Dead")
    text, code, after = describe(outcome)
    # Refusals by fila itself are no reason to open the circuit of a destination.
    return frames.nack(text, code, after, None if isinstance(outcome, FilaError) else after)


def describe(error: BaseException) -> tuple[str, str, float | None]:
    """Returns the text, the code and the retry_after of an exception.

    The code is its attribute ``code``, a str or an int, or else the name of its class. A ``retry_after`` counts if it
    is a number of seconds that fila accepts.
    """
    name = type(error).__name__
    code = getattr(error, "code", None)
    if isinstance(code, bool) or not isinstance(code, (str, int)) or code == "":
        code = name
    after = getattr(error, "retry_after", None)
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not math.isfinite(after):
        after = None
    elif not 0 < after <= frames.MAX_NACK_SECONDS:
        after = None
    return str(error) or name, str(code)[: frames.MAX_ERROR_CODE], after
