"""Leases: extends the leases of received messages and sends their answers until fila confirms them."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import nats.errors
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from . import frames
from .client import HEADER_ROOM
from .errors import FilaError, NoFila, Refused, parse_error
from .message import Message
from .types import BatchReply

log = logging.getLogger("fila_worker")

GATHER = 0.001  # how long an answer to a message of a batch waits for others
RESEND = 0.25  # when to repeat an answer that nobody received
REPLY_WITHIN = 5.0  # when to repeat an answer without a reply
MAX_ANSWER_BYTES = 256 << 10  # of one request


@dataclass(slots=True, eq=False)
class Hold:
    """A received message whose answer fila has not confirmed yet."""

    message: Message
    delivery: Delivery
    index: int
    due: float  # when to extend the lease or to repeat the answer
    answer: bytes | None = None
    sent: int = 0  # how often the answer was sent
    give_up: float = math.inf
    held: bool = True  # until the answer is confirmed or refused, or the lease is lost
    handling: asyncio.Task[None] | None = None  # while its handler runs
    cancels: int = 0  # of the handler

    @property
    def payload(self) -> bytes:
        return frames.EXTEND if self.answer is None else self.answer

    def cancel(self) -> None:
        """Cancels the handler, if it runs."""
        if self.handling is not None:
            self.cancels += 1
            self.handling.cancel()

    def handled(self) -> None:
        """Notes that the handler has ended: its task is another message's now."""
        task, self.handling = self.handling, None
        if self.cancels and sys.version_info >= (3, 11) and task is not None:
            for _ in range(self.cancels):
                task.uncancel()


@dataclass(slots=True, eq=False)
class Delivery:
    """A NATS message with one message or a batch of them."""

    id: int
    ack_to: str
    batched: bool
    left: int  # messages that are held
    open: int  # of them without an answer
    holds: list[Hold] = field(default_factory=list)  # by index
    requests: int = 0  # how many were sent
    awaited: dict[int, list[tuple[Hold, bytes | None]]] = field(
        default_factory=dict
    )  # requests; None extends the lease


class Leases:
    """The leases of a worker. ``changed`` is called when the last one has ended."""

    def __init__(self, nc: NATS, changed: Callable[[], None]) -> None:
        self.inbox = nc.new_inbox() + "."  # of the replies
        self._nc = nc
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._visibility = 30.0  # until the reply to the registration
        self._deliveries: dict[int, Delivery] = {}
        self._last_id = 0
        self._wake = asyncio.Event()
        self._next_due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._deliveries)

    def held(self) -> list[Hold]:
        return [hold for d in self._deliveries.values() for hold in d.holds if hold.held]

    def hold(self, ack_to: str, batched: bool, messages: list[Message]) -> list[Hold]:
        """Takes the messages of a delivery, and extends their leases from now on."""
        self._last_id += 1
        d = self._deliveries[self._last_id] = Delivery(self._last_id, ack_to, batched, len(messages), len(messages))
        due = self._loop.time() + self._visibility / 3
        for index, message in enumerate(messages):
            d.holds.append(Hold(message, d, index, due))
        self._set_due(d.holds[0], due)
        return d.holds

    def set_visibility(self, seconds: float) -> None:
        """Sets the visibility timeout, and extends earlier if it has become shorter."""
        self._visibility = seconds
        self.make_due(self._loop.time() + seconds / 3)

    def make_due(self, at: float) -> None:
        """Sends extensions and unconfirmed answers at a time, or when they are due if that is earlier."""
        for hold in self.held():
            if hold.due > at:
                self._set_due(hold, at)

    async def settle(self, hold: Hold, answer: bytes) -> None:
        """Sends the answer to a message, at once or together with others of its batch."""
        if not hold.held:
            return
        d, now = hold.delivery, self._loop.time()
        hold.answer = answer
        hold.give_up = now + 2 * max(self._visibility, REPLY_WITHIN)
        d.open -= 1
        if not d.batched:
            await self._send_request(d, [hold])
        elif d.open > 0:
            self._set_due(hold, now + GATHER)
        else:
            await self._send(d, [h for h in d.holds if h.held and h.sent == 0])

    async def keep(self) -> None:
        """Sends what is due, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._next_due, now = math.inf, self._loop.time()
            for d in list(self._deliveries.values()):
                due = []
                for hold in d.holds:
                    if not hold.held:
                        continue
                    if hold.due > now:
                        self._set_due(hold, hold.due)
                    elif hold.give_up < now:
                        log.error("ack of %s: no reply in time; whether it was done is not known", hold.message.id)
                        self._release(hold)
                    else:
                        due.append(hold)
                await self._send(d, due)

    def _set_due(self, hold: Hold, at: float) -> None:
        hold.due = at
        if at < self._next_due:
            self._next_due = at
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._wake.set)

    async def _send(self, d: Delivery, holds: list[Hold]) -> None:
        """Sends the answers of messages of a delivery, or extends their leases."""
        limit = min(MAX_ANSWER_BYTES, self._nc.max_payload - HEADER_ROOM)
        together: list[Hold] = []
        size = 0
        for hold in holds:
            if together and size + len(hold.payload) > limit:
                await self._send_request(d, together)
                together, size = [], 0
            together.append(hold)
            size += len(hold.payload) + 16  # with its index
        if together:
            await self._send_request(d, together)

    async def _send_request(self, d: Delivery, holds: list[Hold]) -> None:
        now = self._loop.time()
        d.requests += 1
        d.awaited[d.requests] = [(hold, hold.answer) for hold in holds]
        for hold in holds:
            if hold.answer is None:
                self._set_due(hold, now + self._visibility / 3)
            else:
                hold.sent += 1
                self._set_due(hold, now + REPLY_WITHIN)
        payload = frames.ack_lines([(h.index, h.payload) for h in holds]) if d.batched else holds[0].payload
        try:
            await self._nc.publish(d.ack_to, payload, reply=f"{self.inbox}{d.id}-{d.requests}")
        except nats.errors.ConnectionClosedError as error:
            log.error("ack of %s: %r", holds[0].message.id, error)
            for hold in holds:
                self._release(hold)
        except nats.errors.Error:
            for hold in holds:
                self._set_due(hold, now + RESEND)

    async def reply(self, msg: Msg) -> None:
        """Handles the reply to answers or extensions."""
        id_, _, number = msg.subject[len(self.inbox) :].partition("-")
        d = self._deliveries.get(int(id_))
        if d is None:
            return
        whole, refusals = parse_error(msg.headers, msg.data), {}
        if whole is None and msg.data:
            refusals = frames.batch_refusals(cast(BatchReply, json.loads(msg.data)))
        for hold, answer in d.awaited.pop(int(number), ()):
            if hold.held and hold.answer is answer:
                self._replied(hold, whole or refusals.get(hold.index))

    def _replied(self, hold: Hold, error: FilaError | None) -> None:
        if isinstance(error, NoFila):
            self._set_due(hold, self._loop.time() + RESEND)
        elif isinstance(error, Refused) and error.code in (429, 500, 503):
            self._set_due(hold, self._loop.time() + max(error.retry_after, RESEND))
        elif hold.answer is not None:
            if error is not None:  # after several times the answer may have arrived before
                log.warning("ack of %s, sent %d times: %s", hold.message.id, hold.sent, error)
            self._release(hold)
        elif error is not None:
            log.warning("the lease of %s is lost: %s", hold.message.id, error)
            hold.cancel()
            self._release(hold)

    def _release(self, hold: Hold) -> None:
        """Forgets a message: its answer is confirmed or refused, or its lease is lost."""
        if not hold.held:
            return
        d = hold.delivery
        hold.held = False
        d.left -= 1
        if hold.answer is None:
            d.open -= 1
        if d.left == 0:
            d.holds.clear()  # a cycle would wait for the garbage collector
            del self._deliveries[d.id]
            self._changed()
