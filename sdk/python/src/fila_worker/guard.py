"""Guard: asks before calls that are no messages, and reports how they went."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

from .client import Client
from .errors import FilaError, GuardRefused, NoFila, NoReply
from .frames import MAX_ERROR_TEXT, Duration, reported, seconds
from .outcomes import describe
from .types import GuardAnswer, GuardCheckRequest, GuardDoneRequest, GuardVerdict

P = ParamSpec("P")
R = TypeVar("R")

MAX_PERMIT_SECONDS = 3600


@dataclass(eq=False)
class Permit:
    """An allowed call. Give it back with :meth:`Guard.done`.

    If the call's cost is only known after it, set ``cost`` (0 to 1,000,000) before the permit is given back: it
    replaces the estimate of the check, also if the call failed. If the destination says what it still admits, set
    ``remaining`` (cost) and ``reset`` (time until it admits more), for limits that learn.
    """

    id: str  # empty: the guard did not answer and is open
    key: str
    ends: float  # time of the event loop
    answer: GuardAnswer
    cost: float | None = None
    remaining: float | None = None
    reset: Duration | None = None


class Guard:
    """Checks calls with the limits and circuits of their keys.

    With ``wait`` a refused call waits, for that many seconds, until it is allowed. With ``fail_open`` calls are
    allowed when fila does not answer; then no limit holds.
    """

    def __init__(self, client: Client, *, caller: str = "", wait: Duration = 0, fail_open: bool = False) -> None:
        self.client = client
        self.caller = caller
        self.wait = seconds("wait", wait)
        self.fail_open = fail_open

    async def check(self, key: str, *limits: str, cost: float = 1.0, ttl: Duration = 30) -> Permit:
        """Asks for a permit, or raises GuardRefused.

        ``key`` is the destination: its circuit decides and learns how the call went. ``limits`` are further keys.
        ``ttl`` is how long the permit lives; choose it a second or two above the call's own timeout.
        """
        alive = seconds("ttl", ttl, MAX_PERMIT_SECONDS)
        request: GuardCheckRequest = {"with": list(limits), "cost": cost, "ttl_ms": math.ceil(alive * 1000)}
        if self.caller:
            request["caller"] = self.caller
        loop = asyncio.get_running_loop()
        until = loop.time() + self.wait
        while True:
            ends = loop.time() + alive
            try:
                answer = cast(GuardAnswer, await self._ask("check", key, dict(request)))
            except (NoFila, NoReply):
                if not self.fail_open:
                    raise
                return Permit("", key, ends, {"allowed": True})
            if answer["allowed"]:
                return Permit(answer["permit"], key, ends, answer)
            refused = GuardRefused(answer)
            if refused.retry_after == 0 or loop.time() + refused.retry_after > until:
                raise refused
            await asyncio.sleep(refused.retry_after)

    async def done(
        self, permit: Permit, error: BaseException | None = None, *, attempt: int = 1, retry_policy: str = ""
    ) -> GuardVerdict:
        """Gives a permit back with the outcome of the call, and returns the verdict about an error.

        The code of an error is its attribute ``code``, or else the name of its class; ``retry_after`` is how long
        the destination asks to wait, in seconds. Repeated reports do no harm.
        """
        if not permit.id:
            return {}
        request: GuardDoneRequest = {"permit": permit.id, "outcome": "ok", "attempt": attempt}
        if self.caller:
            request["caller"] = self.caller
        request |= cast(GuardDoneRequest, reported(permit.cost, permit.remaining, permit.reset))
        if retry_policy:
            request["retry_policy"] = retry_policy
        if error is not None:
            text, code, retry_after = describe(error)
            request |= {"outcome": "error", "error": text[:MAX_ERROR_TEXT], "error_code": code}
            if retry_after is not None:
                request["retry_after_ms"] = math.ceil(retry_after * 1000)
        remaining = max(permit.ends - asyncio.get_running_loop().time(), 0)
        repeat = min(self.client.retry_for, remaining)
        reply = await self.client._repeat(lambda: self._ask("done", permit.key, dict(request)), repeat)
        return cast(GuardVerdict, reply)

    @asynccontextmanager
    async def call(
        self, key: str, *limits: str, cost: float = 1.0, ttl: Duration = 30, attempt: int = 1
    ) -> AsyncIterator[Permit]:
        """Wraps a call: checks before it and reports its outcome, also if it is cancelled.

        A report that does not arrive is dropped: the permit then ends by itself.
        """
        permit = await self.check(key, *limits, cost=cost, ttl=ttl)
        try:
            yield permit
        except BaseException as error:
            await self._report(permit, error, attempt)
            raise
        await self._report(permit, None, attempt)

    def guarded(
        self,
        key: str | Sequence[str] | Callable[..., str | Sequence[str]] = (),
        *,
        circuit: str | None = None,
        cost: float = 1.0,
        ttl: Duration = 30,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """Makes each call of an async function a guarded call.

        ``key`` is a key, several keys, or a function of the call's arguments that returns them. ``circuit`` is the
        destination; without it the first key is.
        """

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            @functools.wraps(function)
            async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
                found = key(*args, **kwargs) if callable(key) else key
                keys = [found] if isinstance(found, str) else list(found)
                if circuit is not None:
                    keys.insert(0, circuit)
                if not keys:
                    raise ValueError("guarded needs a key or a circuit")
                async with self.call(*keys, cost=cost, ttl=ttl):
                    return await function(*args, **kwargs)

            return wrapper

        return decorate

    async def _report(self, permit: Permit, error: BaseException | None, attempt: int) -> None:
        report = asyncio.ensure_future(self.done(permit, error, attempt=attempt))
        try:
            await asyncio.shield(report)
        except FilaError:
            pass

    async def _ask(self, verb: str, key: str, request: dict[str, object]) -> object:
        """Asks about a key. A key that is not legal in a subject goes into the request."""
        tail = key
        if not _legal_tail(key):
            tail, request["key"] = "_", key
        headers = {"Fila-Timeout-Ms": str(max(math.ceil(self.client.timeout * 1000), 1))}
        self.client.tracing.inject(headers)
        return await self.client.call(f"guard.{verb}.{tail}", request, headers=headers)


def _legal_tail(key: str) -> bool:
    parts = key.split(".")
    return "" not in parts and "*" not in parts and key.isprintable() and not set(" >") & set(key) and len(key) <= 128
