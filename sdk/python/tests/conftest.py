"""One fila for all tests; each test has queues of its own. Tests that kill fila start another one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from fila_worker import Client
from fila_worker.testing import FilaServer

PATIENCE = 60.0  # seconds for any single wait; only turns a hang into a failure

_numbers = itertools.count()


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    async def poll() -> None:
        while not await condition():
            await asyncio.sleep(0.02)

    try:
        await asyncio.wait_for(poll(), PATIENCE)
    except asyncio.TimeoutError:
        pytest.fail(f"waited in vain for {what}")


class Queue:
    """A queue of a test."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    async def inspect(self, name: str = "") -> dict[str, Any]:
        info: dict[str, Any] = await self.client.admin(f"queue-inspect.{name or self.name}")
        return info

    async def dead(self) -> list[dict[str, Any]]:
        reply = await self.client.admin(f"peek.{self.name}.dlq", {})
        messages: list[dict[str, Any]] = reply["messages"]
        return messages

    async def empty(self) -> bool:
        info = await self.inspect()
        return bool(info["pending"] == info["in_flight"] == info["delayed"] == 0)

    async def drained(self) -> None:
        await eventually(self.empty, f"an empty queue {self.name}")


MakeQueue = Callable[..., Awaitable[Queue]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fila() -> AsyncIterator[FilaServer]:
    async with FilaServer() as server:
        yield server


@pytest_asyncio.fixture
async def client(fila: FilaServer) -> AsyncIterator[Client]:
    async with await Client.connect(fila.url, key_header="tenant") as c:
        yield c


@pytest.fixture
def queue(client: Client) -> MakeQueue:
    async def make(**settings: Any) -> Queue:
        q = Queue(client, f"q{next(_numbers)}")
        await client.admin(f"queue-create.{q.name}", {"fairness_header": "tenant", **settings})
        return q

    return make
