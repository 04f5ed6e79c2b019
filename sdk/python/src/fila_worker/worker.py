"""Worker: handles the messages of a queue."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import math
import re
import signal
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import Any, cast

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from . import frames
from .client import Client, check_queue
from .errors import FilaError, Refused
from .frames import Duration
from .leases import Hold, Leases
from .message import Message, parse_delivery
from .outcomes import Dead, Outcome, Retry, answer_of
from .types import ConsumeReply, ConsumerRequest

log = logging.getLogger("fila_worker")

RETRY_REGISTER = 1.0
WATCH_CONNECTION = 0.25  # how often to look for a reconnect
GRACE = 2.0  # for cancelled handlers to end
MAX_CONCURRENCY = 65_536
UNKNOWN_FIELD = 11400
STOPPED = frames.nack("the worker stopped", "stopped", 0)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

Handler = Callable[[Message], Awaitable[Outcome]]
Middleware = Callable[[Message, Handler], Awaitable[Outcome]]


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
        """Checks its arguments and sends nothing.

        ``concurrency``: how many handlers run at once. ``max_in_flight``: how many unfinished messages fila may send,
        at least and by default ``concurrency``. ``batch``: how many messages a delivery may have. ``name``: of the
        consumer; with ``shared`` several processes use one name and its credit. ``middleware``: functions around the
        handler, the first one outermost. ``stop_timeout``: how long a stop waits for handlers. ``registration_ttl``:
        when fila forgets a worker that is gone. ``min_headers``: deliveries cost less and have no key.
        """
        credit = concurrency if max_in_flight is None else max_in_flight
        for what, value, least, most in (
            ("concurrency", concurrency, 1, MAX_CONCURRENCY),
            ("max_in_flight", credit, concurrency, MAX_CONCURRENCY),
            ("batch", batch, 1, frames.MAX_BATCH),
        ):
            if not least <= value <= most:
                raise ValueError(f"{what} is {value}: allowed are {least} to {most}")
        if not any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None)))):  # noqa: B004
            raise TypeError(f"handler is {handler!r}: an async function is expected; see asyncio.to_thread")
        self.name = f"py-{uuid.uuid4().hex}" if name is None else name
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {name!r}: allowed are 1 to 64 of A-Za-z0-9_-")
        self.ttl = frames.seconds("registration_ttl", registration_ttl)
        if self.ttl < 0.1:
            raise ValueError(f"registration_ttl is {registration_ttl!r}: allowed are 0.1 seconds and more")
        self.client = client
        self.queue = check_queue(queue)
        self.handler = handler
        for around in reversed(middleware):
            self.handler = functools.partial(_call_middleware, around, self.handler)
        self.concurrency = concurrency
        self.shared = shared
        self.stop_timeout = frames.seconds("stop_timeout", stop_timeout)
        self._registration: ConsumerRequest = {"max_in_flight": credit, "ttl_ms": math.ceil(self.ttl * 1000)}
        if min_headers:
            self._registration["headers"] = "min"
        if batch > 1:
            self._registration["batch"] = batch
        self._waiting: deque[Hold] = deque()
        self._runners: set[asyncio.Task[None]] = set()
        self._starting = False  # a runner has not begun yet
        self._keepers: list[asyncio.Task[None]] = []
        self._leases: Leases | None = None  # until start
        self._hurry = False  # the time to stop is over

    async def run(self) -> None:
        """Works until SIGTERM or SIGINT, then stops. A second signal ends the handlers at once."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def on_signal() -> None:
            if ended.done():
                self._hurry_up()
            else:
                ended.set_result(None)

        signals = (signal.SIGTERM, signal.SIGINT)
        for s in signals:
            with suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(s, on_signal)
        try:
            async with self:
                keepers = list(self._keepers)
                await asyncio.wait([ended, *keepers], return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    ended.set_result(None)
                    for keeper in keepers:
                        if keeper.done():
                            keeper.result()  # raises its error, such as a closed connection
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
        if self._leases is not None:
            raise RuntimeError("a worker starts once")
        nc = self.client.nc
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._held = self._leases = Leases(nc, self._changed.set)
        self._subscriptions: list[Subscription] = []
        try:
            # Subscribe before registering: a delivery without subscriber ends the registration. Credit bounds the
            # pending messages, so the limits of the library are off.
            for subject, group, cb in (
                (f"{self._held.inbox}*", "", self._held.reply),
                (f"{self.client.prefix}.deliver.{self.name}.{self.queue}", self.name, self._receive),
            ):
                sub = await nc.subscribe(subject, queue=group, cb=cb, pending_msgs_limit=0, pending_bytes_limit=0)
                self._subscriptions.append(sub)
            await nc.flush()
            await self.client._repeat(self._register)
        except BaseException:
            await self._unsubscribe()
            raise
        self._keepers = [self._loop.create_task(self._keep_registered()), self._loop.create_task(self._held.keep())]
        log.info("worker %s works on queue %s", self.name, self.queue)

    async def stop(self, timeout: Duration | None = None) -> None:
        """Leaves the queue, lets handlers finish received messages and waits until fila confirms their acks.

        After ``timeout`` seconds, by default ``stop_timeout``, it cancels the handlers and nacks their messages.
        """
        if not self._keepers:
            return
        keepers, self._keepers = self._keepers, []
        keepers[0].cancel()
        limit = self.stop_timeout if timeout is None else frames.seconds("timeout", timeout)
        deadline = self._loop.call_later(limit, self._hurry_up)
        leaving = self._loop.create_task(self._leave())
        leaving.add_done_callback(lambda _: self._changed.set())
        await self._until(lambda: self._hurry or (leaving.done() and self._idle()))
        if not self._idle():
            log.warning("worker %s: the time to stop is over; unfinished messages go back", self.name)
            for hold in self._held.held():
                hold.cancel()
            self._begin()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._until(self._idle), GRACE)
        deadline.cancel()
        for task in (leaving, *keepers):
            task.cancel()
        await asyncio.gather(leaving, *keepers, return_exceptions=True)
        await self._unsubscribe()

    async def _leave(self) -> None:
        """Ends the registration, and receives what was sent before."""
        try:
            if not self.shared:
                await self.client.call(self._subject, {"leave": True})
            await self._subscriptions[1].drain()  # type: ignore[no-untyped-call]
        except (FilaError, nats.errors.Error, asyncio.TimeoutError) as error:
            log.warning("worker %s: leave %s: %s", self.name, self.queue, error)

    async def _unsubscribe(self) -> None:
        for sub in self._subscriptions:
            with suppress(nats.errors.Error, asyncio.TimeoutError):
                await sub.unsubscribe()

    def _idle(self) -> bool:
        return not self._held and not self._runners

    def _hurry_up(self) -> None:
        self._hurry = True
        self._changed.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    # --- registration -----------------------------------------------------------

    @property
    def _subject(self) -> str:
        return f"consumer.{self.name}.{self.queue}"

    async def _register(self) -> None:
        try:
            reply = cast(ConsumeReply, await self.client.call(self._subject, self._registration))
        except Refused as error:
            if error.err_code != UNKNOWN_FIELD or "batch" not in self._registration:
                raise
            del self._registration["batch"]  # a fila from before batches
            reply = cast(ConsumeReply, await self.client.call(self._subject, self._registration))
        self._held.set_visibility(reply["visibility_timeout_ms"] / 1000)

    async def _keep_registered(self) -> None:
        """Registers again after a third of the TTL, after a reconnect, and soon after a failure."""
        nc = self.client.nc
        reconnects, wait = nc.stats["reconnects"], self.ttl / 3
        while True:
            until = self._loop.time() + wait
            while self._loop.time() < until and reconnects == nc.stats["reconnects"]:
                await asyncio.sleep(min(WATCH_CONNECTION, max(until - self._loop.time(), 0)))
            if nc.is_closed:
                raise nats.errors.ConnectionClosedError
            if reconnects != nc.stats["reconnects"]:
                reconnects = nc.stats["reconnects"]
                self._held.make_due(self._loop.time())  # answers may have been lost with the connection
            wait = self.ttl / 3
            try:
                await self._register()
            except (FilaError, nats.errors.Error) as error:
                log.warning("worker %s: register for %s: %s", self.name, self.queue, error)
                wait = min(wait, RETRY_REGISTER)

    # --- handling ---------------------------------------------------------------

    async def _receive(self, msg: Msg) -> None:
        try:
            batched, messages = parse_delivery(msg, self.queue, self.client.codec.decode)
        except (ValueError, KeyError) as error:  # fila delivers them again when their leases end
            log.error("worker %s: delivery from %s is not what fila sends: %s", self.name, self.queue, error)
            return
        self._waiting.extend(self._held.hold(msg.reply, batched, messages))
        self._begin()

    def _begin(self) -> None:
        """Starts another runner for messages that wait, one at a time.

        A task for each message would cost more than all else of the worker: a runner whose handlers do not wait
        handles all messages itself.
        """
        if self._waiting and not self._starting and (len(self._runners) < self.concurrency or self._hurry):
            self._starting = True
            self._runners.add(self._loop.create_task(self._run_handlers()))

    async def _run_handlers(self) -> None:
        """Handles one message after the other until none waits."""
        self._starting = False
        runner = cast("asyncio.Task[None]", asyncio.current_task(self._loop))
        try:
            while self._waiting:
                hold = self._waiting.popleft()
                if self._waiting:
                    self._begin()
                answer = STOPPED
                if hold.held and not self._hurry:
                    hold.handling = runner
                    answer = await _InContext(self._handle(hold.message))
                    hold.handled()
                await self._held.settle(hold, answer)
        finally:
            self._runners.discard(runner)
            self._begin()
            self._changed.set()

    async def _handle(self, m: Message) -> bytes:
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


class _InContext:
    """Awaits a coroutine in a copy of the context, so that it leaves no context variables behind."""

    def __init__(self, coroutine: Coroutine[Any, Any, bytes]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, bytes]:
        run = contextvars.copy_context().run
        resume: Callable[[Any], Any] = self._coroutine.send
        value: Any = None
        while True:
            try:
                future = run(resume, value)
            except StopIteration as result:
                return cast(bytes, result.value)
            try:
                resume, value = self._coroutine.send, (yield future)
            except BaseException as error:
                resume, value = self._coroutine.throw, error


async def _call_middleware(around: Middleware, inner: Handler, message: Message) -> Outcome:
    return await around(message, inner)
