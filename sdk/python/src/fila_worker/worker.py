"""Worker: handles the messages of a queue."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import math
import signal
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, cast

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from . import frames
from .client import HEADER_ROOM, Client, check_queue
from .errors import FilaError, NoFila, Refused, parse_error
from .frames import Answer, Duration
from .outcomes import Dead, Outcome, Retry, answer_of
from .types import BatchReply, ConsumeReply, ConsumeRequest

log = logging.getLogger("fila_worker")

GATHER = 0.001  # how long an answer to a message of a batch waits for others
RESEND = 0.25  # when to repeat an answer that nobody received
REPLY_WITHIN = 5.0  # when to repeat an answer without a reply
RETRY_REGISTER = 1.0
WATCH_CONNECTION = 0.25  # how often to look for a reconnect
GRACE = 2.0  # for cancelled handlers to end
MAX_ANSWER_BYTES = 256 << 10  # of one request
MAX_CONCURRENCY = 65_536
UNKNOWN_FIELD = 11400
STOPPED = frames.nack("the worker stopped", "stopped", 0)


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
    def enqueued_at(self) -> datetime | None:
        """When fila took the message; None with ``min_headers``."""
        text = self.headers.get("Fila-Enqueued-At")
        return None if text is None else _parse_time(text)


Handler = Callable[[Message], Awaitable[Outcome]]
Middleware = Callable[[Message, Handler], Awaitable[Outcome]]


@dataclass(slots=True, eq=False)
class _Hold:
    """A received message whose answer fila has not confirmed yet."""

    message: Message
    delivery: _Delivery
    index: int
    due: float  # when to extend the lease or to repeat the answer
    answer: Answer | None = None
    sent: int = 0  # how often the answer was sent
    give_up: float = math.inf
    held: bool = True  # until the answer is confirmed or refused, or the lease is lost
    handling: asyncio.Task[None] | None = None  # while its handler runs


@dataclass(slots=True, eq=False)
class _Delivery:
    """A NATS message with one message or a batch of them."""

    id: int
    ack_to: str
    batched: bool
    holds: dict[int, _Hold]  # by index; without the released ones
    open: int = 0  # messages without an answer
    requests: list[list[tuple[_Hold, bool]]] = field(default_factory=list)  # with answers (True) or extensions


class Worker:
    """Handles messages of one queue until :meth:`stop`, or until a signal ends :meth:`run`."""

    def __init__(
        self,
        client: Client,
        queue: str,
        handler: Handler,
        *,
        concurrency: int = 10,
        max_in_flight: int | None = None,
        batch: int = 1,
        name: str | None = None,
        shared: bool = False,
        middleware: Sequence[Middleware] = (),
        stop_timeout: Duration = 25.0,
        registration_ttl: Duration = 30.0,
        min_headers: bool = False,
    ) -> None:
        """Checks its arguments and connects to nothing.

        ``concurrency``: how many handlers run at once. ``max_in_flight``: how many unfinished messages fila may send,
        at least and by default ``concurrency``. ``batch``: how many messages a delivery may have. ``name``: of the
        consumer; with ``shared`` several processes use one name and its credit. ``middleware``: functions around the
        handler, the first one outermost. ``stop_timeout``: how long a stop waits for handlers. ``registration_ttl``:
        when fila forgets a worker that is gone. ``min_headers``: deliveries cost less and have no key.
        """
        for what, value, most in (("concurrency", concurrency, MAX_CONCURRENCY), ("batch", batch, frames.MAX_BATCH)):
            if not 1 <= value <= most:
                raise ValueError(f"{what} is {value}: allowed are 1 to {most}")
        credit = concurrency if max_in_flight is None else max_in_flight
        if not concurrency <= credit <= MAX_CONCURRENCY:
            raise ValueError(f"max_in_flight is {credit}: allowed are {concurrency} (concurrency) to {MAX_CONCURRENCY}")
        if not any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None)))):  # noqa: B004
            raise TypeError(f"handler is {handler!r}: an async function is expected; see asyncio.to_thread")
        self.client = client
        self.queue = check_queue(queue)
        self.name = name or f"py-{uuid.uuid4().hex}"
        self.handler = handler
        for around in reversed(middleware):
            self.handler = functools.partial(_call_middleware, around, self.handler)
        self.concurrency = concurrency
        self.batch = batch
        self.shared = shared
        self.stop_timeout = frames.seconds("stop_timeout", stop_timeout)
        self.ttl = max(frames.seconds("registration_ttl", registration_ttl), 0.1)
        self._request: ConsumeRequest = {"max_in_flight": credit, "ttl_ms": math.ceil(self.ttl * 1000)}
        if min_headers:
            self._request["headers"] = "min"
        if batch > 1:
            self._request["batch"] = batch
        self._decode = client.codec.decode
        self._subject = f"consumer.{self.name}.{self.queue}"
        self._inbox = ""
        self._visibility = 30.0  # until the reply to the registration
        self._waiting: deque[_Hold] = deque()
        self._attempts: set[asyncio.Task[None]] = set()
        self._deliveries: dict[int, _Delivery] = {}
        self._last_id = 0
        self._hurry = False  # the time to stop is over
        self._failure: Exception | None = None
        self._subscriptions: list[Subscription] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._next_due = math.inf
        self._due_timer: asyncio.TimerHandle | None = None

    # --- life -------------------------------------------------------------------

    async def run(self) -> None:
        """Works until SIGTERM or SIGINT, then stops. A second signal ends the handlers at once."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def on_signal() -> None:
            if ended.is_set():
                self._hurry_up()
            ended.set()

        signals = (signal.SIGTERM, signal.SIGINT)
        for s in signals:
            with suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(s, on_signal)
        try:
            await self.start()
            try:
                waits = [asyncio.ensure_future(ended.wait()), self._keepers[0]]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                waits[0].cancel()
            finally:
                ended.set()
                await self.stop()
            if self._failure is not None:
                raise self._failure
        finally:
            for s in signals:
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(s)

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Subscribes and registers. It returns when fila has accepted the registration."""
        if self._inbox:
            raise RuntimeError("a worker starts once")
        nc = self.client.nc
        self._loop = asyncio.get_running_loop()
        self._wake, self._changed = asyncio.Event(), asyncio.Event()
        self._inbox = nc.new_inbox() + "."
        try:
            # Subscribe before registering: a delivery without subscriber ends the registration. Credit bounds the
            # pending messages, so the limits of the library are off.
            for subject, group, cb in (
                (f"{self._inbox}*", "", self._reply),
                (f"{self.client.prefix}.deliver.{self.name}.{self.queue}", self.name, self._receive),
            ):
                sub = await nc.subscribe(subject, queue=group, cb=cb, pending_msgs_limit=0, pending_bytes_limit=0)
                self._subscriptions.append(sub)
            await nc.flush()
            await self.client._repeat(self._register)
        except BaseException:
            for sub in self._subscriptions:
                with suppress(nats.errors.Error):
                    await sub.unsubscribe()
            raise
        self._keepers = [self._loop.create_task(self._keep_registered()), self._loop.create_task(self._keep_held())]
        log.info("worker %s works on queue %s", self.name, self.queue)

    async def stop(self, timeout: Duration | None = None) -> None:
        """Leaves the queue, lets handlers finish received messages and waits until fila confirms their acks.

        After ``timeout`` seconds, by default ``stop_timeout``, it cancels the handlers and nacks their messages.
        """
        if not self._keepers:
            return
        registering, holding = self._keepers
        self._keepers = []
        registering.cancel()
        limit = self.stop_timeout if timeout is None else frames.seconds("timeout", timeout)
        deadline = self._loop.call_later(limit, self._hurry_up)
        leaving = self._loop.create_task(self._leave())
        await self._until(leaving.done, leaving)
        await self._until(self._idle)
        if not self._idle():
            log.warning("worker %s: the time to stop is over; unfinished messages go back", self.name)
            for hold in self._waiting:
                await self._settle(hold, STOPPED)
            self._waiting.clear()
            for hold in [h for d in self._deliveries.values() for h in d.holds.values() if h.handling]:
                cast(asyncio.Task[None], hold.handling).cancel()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._until(self._idle, hurry=False), GRACE)
        deadline.cancel()
        leaving.cancel()
        holding.cancel()
        await asyncio.gather(registering, holding, leaving, return_exceptions=True)
        for sub in self._subscriptions:
            with suppress(nats.errors.Error, asyncio.TimeoutError):
                await sub.unsubscribe()

    async def _leave(self) -> None:
        """Ends the registration, and receives what was sent before."""
        try:
            if not self.shared:
                await self.client.call(self._subject, {"leave": True})
            await self._subscriptions[1].drain()  # type: ignore[no-untyped-call]
        except (FilaError, nats.errors.Error, asyncio.TimeoutError) as error:
            log.warning("worker %s: leave %s: %s", self.name, self.queue, error)

    def _idle(self) -> bool:
        return not self._deliveries and not self._attempts

    def _hurry_up(self) -> None:
        self._hurry = True
        self._changed.set()

    async def _until(
        self, condition: Callable[[], bool], task: asyncio.Task[None] | None = None, hurry: bool = True
    ) -> None:
        """Waits until the condition holds or, with hurry, the time to stop is over."""
        if task is not None:
            task.add_done_callback(lambda _: self._changed.set())
        while not condition() and not (hurry and self._hurry):
            self._changed.clear()
            await self._changed.wait()

    # --- registration -----------------------------------------------------------

    async def _register(self) -> None:
        try:
            reply = cast(ConsumeReply, await self.client.call(self._subject, self._request))
        except Refused as error:
            if error.err_code != UNKNOWN_FIELD or "batch" not in self._request:
                raise
            del self._request["batch"]  # a fila from before batches
            reply = cast(ConsumeReply, await self.client.call(self._subject, self._request))
        self._visibility = reply["visibility_timeout_ms"] / 1000
        earliest = self._loop.time() + self._extend_every()
        for d in self._deliveries.values():
            for hold in d.holds.values():
                if hold.due > earliest:
                    self._set_due(hold, earliest)

    async def _keep_registered(self) -> None:
        """Registers again after a third of the TTL, after a reconnect, and soon after a failure."""
        nc = self.client.nc
        reconnects, wait = nc.stats["reconnects"], self.ttl / 3
        while True:
            until = self._loop.time() + wait
            while self._loop.time() < until and reconnects == nc.stats["reconnects"]:
                await asyncio.sleep(min(WATCH_CONNECTION, max(until - self._loop.time(), 0)))
            if nc.is_closed:
                self._failure = nats.errors.ConnectionClosedError()
                return
            if reconnects != nc.stats["reconnects"]:
                reconnects = nc.stats["reconnects"]
                for d in self._deliveries.values():  # answers may have been lost with the connection
                    for hold in d.holds.values():
                        self._set_due(hold, self._loop.time())
            wait = self.ttl / 3
            try:
                await self._register()
            except (FilaError, nats.errors.Error) as error:
                log.warning("worker %s: register for %s: %s", self.name, self.queue, error)
                wait = min(wait, RETRY_REGISTER)

    # --- messages ---------------------------------------------------------------

    async def _receive(self, msg: Msg) -> None:
        headers = msg.headers or {}
        number = headers.get("Fila-Batch")
        self._last_id += 1
        d = _Delivery(self._last_id, msg.reply, number is not None, {})
        if number is None:
            id_, attempt = headers.get("Fila-Id", ""), int(headers.get("Fila-Attempt", "1"))
            messages = [Message(id_, self.queue, attempt, headers, msg.data, self._decode)]
        else:
            try:
                messages = [
                    Message(m.id, self.queue, m.attempt, m.headers, m.payload, self._decode)
                    for m in frames.parse_deliveries(msg.data, int(number))
                ]
            except ValueError as error:  # fila delivers them again when their leases end
                log.error("worker %s: delivery from %s is not what fila sends: %s", self.name, self.queue, error)
                return
        self._deliveries[d.id] = d
        d.open = len(messages)
        due = self._loop.time() + self._extend_every()
        for index, message in enumerate(messages):
            d.holds[index] = hold = _Hold(message, d, index, due)
            self._waiting.append(hold)
        self._set_due(hold, due)
        self._begin()

    def _begin(self) -> None:
        """Begins to handle messages that wait, as many as may run at once."""
        while self._waiting and len(self._attempts) < self.concurrency:
            attempt = self._attempt(self._waiting.popleft())
            self._attempts.add(self._loop.create_task(attempt))

    async def _attempt(self, hold: _Hold) -> None:
        task = asyncio.current_task(self._loop)
        try:
            if hold.held:
                hold.handling = task
                answer = await self._handle(hold.message)
                hold.handling = None  # from here on nothing cancels the task
                await self._settle(hold, answer)
        finally:
            self._attempts.discard(cast(asyncio.Task[None], task))
            self._begin()
            self._changed.set()

    async def _handle(self, m: Message) -> Answer:
        """Runs the handler and returns the answer for its outcome."""
        try:
            if not self.client.tracing.enabled:
                return answer_of(await self.handler(m))
            with self.client.tracing.process(self.queue, m.headers, m.id, m.attempt):
                return answer_of(await self.handler(m))
        except asyncio.CancelledError:
            # After a lost lease nothing of this is sent.
            return STOPPED if self._hurry else frames.nack("the handler was cancelled", "CancelledError")
        except (Retry, Dead) as outcome:
            return outcome.answer
        except Exception as error:
            log.warning("message %s of %s, attempt %d:", m.id, self.queue, m.attempt, exc_info=True)
            with suppress(Exception):
                return answer_of(error)
            return frames.nack(type(error).__name__)  # its attributes raise errors

    async def _settle(self, hold: _Hold, answer: Answer) -> None:
        """Sends the answer to a message, at once or together with others of its batch."""
        if not hold.held:
            return
        d, now = hold.delivery, self._loop.time()
        hold.answer = answer
        hold.give_up = now + 2 * max(self._visibility, REPLY_WITHIN)
        d.open -= 1
        if not d.batched:
            await self._send(d, [hold])
        elif d.open > 0:
            self._set_due(hold, now + GATHER)
        else:
            await self._send(d, [h for h in d.holds.values() if h.answer is not None and h.sent == 0])

    # --- answers ----------------------------------------------------------------

    def _extend_every(self) -> float:
        return self._visibility / 3

    def _set_due(self, hold: _Hold, at: float) -> None:
        hold.due = at
        if at < self._next_due:
            self._next_due = at
            if self._due_timer is not None:
                self._due_timer.cancel()
            self._due_timer = self._loop.call_at(at, self._wake.set)

    async def _keep_held(self) -> None:
        """Extends leases, and sends answers that wait or have no reply."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._next_due, now = math.inf, self._loop.time()
            for d in list(self._deliveries.values()):
                due = []
                for hold in list(d.holds.values()):
                    if hold.due > now:
                        self._set_due(hold, hold.due)
                    elif hold.give_up < now:
                        log.error("ack of %s: no reply in time; whether it was done is not known", hold.message.id)
                        self._release(hold)
                    else:
                        due.append(hold)
                if due:
                    await self._send(d, due)

    async def _send(self, d: _Delivery, holds: list[_Hold]) -> None:
        """Sends the answers of messages of a delivery, or extends their leases."""
        if not d.batched:
            answer = holds[0].answer
            await self._send_request(
                d, [(holds[0], answer.payload if answer else frames.EXTEND)], answer and answer.headers
            )
            return
        limit = min(MAX_ANSWER_BYTES, self.client.nc.max_payload - HEADER_ROOM)
        together: list[tuple[_Hold, bytes]] = []
        size = 0
        for hold in sorted(holds, key=lambda h: h.index):
            payload = frames.EXTEND if hold.answer is None else hold.answer.payload
            if hold.answer is not None and hold.answer.headers:  # headers are for all answers of a request
                await self._send_request(d, [(hold, payload)], hold.answer.headers)
                continue
            if size + len(payload) > limit and together:
                await self._send_request(d, together)
                together, size = [], 0
            together.append((hold, payload))
            size += len(payload) + 16
        if together:
            await self._send_request(d, together)

    async def _send_request(
        self, d: _Delivery, parts: list[tuple[_Hold, bytes]], headers: dict[str, str] | None = None
    ) -> None:
        now = self._loop.time()
        for hold, _ in parts:
            if hold.answer is None:
                self._set_due(hold, now + self._extend_every())
            else:
                hold.sent += 1
                self._set_due(hold, now + REPLY_WITHIN)
        payload = frames.ack_lines([(h.index, p) for h, p in parts]) if d.batched else parts[0][1]
        reply = f"{self._inbox}{d.id}-{len(d.requests)}"
        d.requests.append([(hold, hold.answer is not None) for hold, _ in parts])
        try:
            await self.client.nc.publish(d.ack_to, payload, reply=reply, headers=headers)
        except nats.errors.ConnectionClosedError as error:
            log.error("ack of %s: %r", parts[0][0].message.id, error)
            for hold, _ in parts:
                self._release(hold)
        except nats.errors.Error:
            for hold, _ in parts:
                self._set_due(hold, now + RESEND)

    async def _reply(self, msg: Msg) -> None:
        """Handles the reply to answers or extensions."""
        id_, _, number = msg.subject[len(self._inbox) :].partition("-")
        d = self._deliveries.get(int(id_))
        if d is None:
            return
        request, d.requests[int(number)] = d.requests[int(number)], []
        whole, refusals = parse_error(msg.headers, msg.data), {}
        if whole is None and msg.data:
            refusals = frames.batch_refusals(cast(BatchReply, json.loads(msg.data)))
        for hold, answered in request:
            if hold.held and answered == (hold.answer is not None):
                self._replied(hold, whole or refusals.get(hold.index))

    def _replied(self, hold: _Hold, error: FilaError | None) -> None:
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
            if hold.handling is not None:
                hold.handling.cancel()
            self._release(hold)

    def _release(self, hold: _Hold) -> None:
        """Forgets a message: its answer is confirmed or refused, or its lease is lost."""
        d = hold.delivery
        if not hold.held:
            return
        hold.held = False
        del d.holds[hold.index]
        if hold.answer is None:
            d.open -= 1
        if not d.holds:
            del self._deliveries[d.id]
            self._changed.set()


async def _call_middleware(around: Middleware, inner: Handler, message: Message) -> Outcome:
    return await around(message, inner)


def _parse_time(text: str) -> datetime:
    """Parses RFC 3339 in UTC, to microseconds."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    return datetime.strptime(f"{seconds}.{fraction[:6] or 0}", "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=timezone.utc)
