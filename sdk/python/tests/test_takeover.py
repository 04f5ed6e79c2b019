"""A node of a cluster is killed: its queue goes on at another one, and clients need not do anything."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from fila_worker import FilaError, Message, Worker
from fila_worker.testing import FilaServer

from .conftest import Queue, eventually

NATS = """
[nats]
subject_prefix = "unused"
[nats.embedded]
jetstream = true
"""
NODE = """
[nats]
url = "{url}"
[cluster]
enabled = true
name = "test"
node = "{node}"
shards = 1
replicas = 1
allow_r1 = true
"""


async def test_takeover() -> None:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(FilaServer(config=NATS))
        nodes = {
            node: await stack.enter_async_context(FilaServer(config=NODE.format(url=nats.url, node=node)))
            for node in ("a", "b")
        }
        client = await nats.connect(retry_for=60.0)
        q = Queue(client, "orders")

        async def created() -> bool:
            try:
                await client.admin("queue-create.orders", {"visibility_timeout_ms": 2000})
            except FilaError:  # no node owns the shard yet
                return False
            return True

        await eventually(created, "the first owner")
        attempts: Counter[Any] = Counter()
        confirmed: list[int] = []
        producing = True

        async def handle(message: Message) -> None:
            attempts[message.payload] += 1

        async def produce() -> None:
            while producing:
                await client.enqueue("orders", len(confirmed))
                confirmed.append(len(confirmed))

        async with Worker(client, "orders", handle):
            producer = asyncio.create_task(produce())
            await eventually(lambda: asyncio.sleep(0, len(attempts) > 50), "work")
            owner = (await q.inspect())["owner"]
            await nodes[owner].kill()
            before = len(confirmed)
            await eventually(lambda: asyncio.sleep(0, len(confirmed) > before + 50), "work of the other node")
            producing = False
            await producer
            await q.drained()
            assert (await q.inspect())["owner"] != owner
        assert sorted(attempts) == confirmed
