"""Workers against a real fila."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import pytest
from nats.aio.msg import Msg

from fila_worker import Client, Dead, Done, Handler, Message, NewMessage, Outcome, Retry, Worker
from fila_worker.testing import FilaServer

from .conftest import MakeQueue, Queue, eventually

batches = pytest.mark.parametrize("batch", [1, 16])


class VendorError(Exception):
    def __init__(self, text: str, code: str, retry_after: float) -> None:
        super().__init__(text)
        self.code = code
        self.retry_after = retry_after


@batches
async def test_outcomes(client: Client, queue: MakeQueue, batch: int, caplog: pytest.LogCaptureFixture) -> None:
    q = await queue(max_deliveries=3, visibility_timeout_ms=5000)
    seen: list[tuple[str, int]] = []

    async def handle(message: Message) -> Outcome:
        what = str(message.payload)
        seen.append((what, message.attempt))
        assert (message.key, message.queue) == ("acme", q.name)
        assert message.enqueued_at is not None
        if message.attempt > 1 and what not in ("hopeless", "wrong"):
            return None
        match what:
            case "costly":
                return Done(cost=2.5)
            case "later":
                return Retry("not now", delay=0.2, code="E1")
            case "raised":
                raise Retry("not now", delay=0)
            case "vendor":
                raise VendorError("busy", "429", 0.1)
            case "dead":
                raise Dead("cancelled", code="E2")
            case "hopeless":
                raise Retry("never works", delay=0, code="E3")
            case "wrong":
                return "done"  # type: ignore[return-value]
        return None

    kinds = ["none", "costly", "later", "raised", "vendor", "dead", "hopeless", "wrong"]
    (await client.enqueue_batch(q.name, [NewMessage(kind, key="acme") for kind in kinds])).raise_first()
    async with Worker(client, q.name, handle, batch=batch):
        await q.drained()
    attempts = {kind: max(a for k, a in seen if k == kind) for kind in kinds}
    assert attempts == {
        "none": 1,
        "costly": 1,
        "later": 2,
        "raised": 2,
        "vendor": 2,
        "dead": 1,
        "hopeless": 3,
        "wrong": 3,
    }
    dead = {m["dead"]["error_code"]: m for m in await q.dead()}
    assert {code: (m["dead"]["reason"], m["dead"]["error"]) for code, m in dead.items()} == {
        "E2": ("term", "cancelled"),
        "E3": ("max_deliveries", "never works"),
        "TypeError": ("max_deliveries", "the handler returned 'done': allowed are None, Done, Retry and Dead"),
    }
    assert [h["outcome"] for h in dead["E3"]["history"]] == ["nack"] * 3
    assert "VendorError: busy" in caplog.text
    assert "Retry: never works" not in caplog.text


async def test_errors_back_off(client: Client, queue: MakeQueue) -> None:
    """After an exception without a retry_after the queue decides when to retry."""
    q = await queue(max_deliveries=3, retry_initial_ms=100, retry_jitter=0)

    async def handle(message: Message) -> None:
        raise KeyError("sku")

    await client.enqueue(q.name, b"")
    async with Worker(client, q.name, handle):
        await q.drained()
    (dead,) = await q.dead()
    assert dead["dead"]["error_code"] == "KeyError"
    history = dead["history"]
    assert [h["decided_by"] for h in history] == ["default", "default", "max_deliveries"]
    assert [h["delay_ms"] for h in history[:2]] == [100, 200]


@batches
async def test_leases_are_extended(client: Client, queue: MakeQueue, batch: int) -> None:
    q = await queue(visibility_timeout_ms=1000)
    attempts: list[int] = []

    async def handle(message: Message) -> None:
        attempts.append(message.attempt)
        await asyncio.sleep(3)  # some visibility timeouts; the last message waits behind the others

    (await client.enqueue_batch(q.name, [b"a", b"b", b"c"])).raise_first()
    async with Worker(client, q.name, handle, concurrency=2, max_in_flight=10, batch=batch):
        await q.drained()
    assert attempts == [1, 1, 1]


@batches
async def test_a_lost_lease_cancels_the_handler(
    fila: FilaServer, client: Client, queue: MakeQueue, batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    q = await queue(visibility_timeout_ms=1000)
    cancelled = asyncio.Event()
    deliveries: list[Msg] = []
    answers: list[bytes] = []

    async def handle(message: Message) -> None:
        if cancelled.is_set():  # the second message, in the same task: nothing of the cancel is left
            task = asyncio.current_task()
            assert task is not None and (sys.version_info < (3, 11) or task.cancelling() == 0)
            await asyncio.wait_for(asyncio.sleep(0), 60)
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise ValueError("cleanup") from None  # its result is not sent

    async def delivered(msg: Msg) -> None:
        deliveries.append(msg)

    async def answered(msg: Msg) -> None:
        answers.append(msg.data)

    async with await Client.connect(fila.url) as other:
        await other.nc.subscribe(f"fila.deliver.lost-{batch}.{q.name}", cb=delivered)
        await other.nc.flush()
        async with Worker(client, q.name, handle, concurrency=1, max_in_flight=2, batch=batch, name=f"lost-{batch}"):
            (await client.enqueue_batch(q.name, [b"", b""])).raise_first()
            await eventually(lambda: asyncio.sleep(0, bool(deliveries)), "the delivery")
            await other.nc.subscribe("fila.ack.>", cb=answered)
            ack = b"0 +ACK" if "Fila-Batch" in (deliveries[0].headers or {}) else b"+ACK"
            await other.nc.request(deliveries[0].reply, ack, timeout=30)  # another process answers
            await asyncio.wait_for(cancelled.wait(), 60)
            await q.drained()
        await other.nc.flush()
    assert len([a for a in answers if b"+WPI" not in a]) == 2  # of the other process, and of the second message
    assert "the lease of" in caplog.text
    assert await q.empty()


async def test_context_variables_do_not_leak(client: Client, queue: MakeQueue) -> None:
    q = await queue()
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    async def handle(message: Message) -> None:
        seen.append(variable.get())
        variable.set(1)
        if message.payload % 2:
            await asyncio.sleep(0.001)
        assert variable.get() == 1
        assert await asyncio.create_task(inner()) == 1

    async def inner() -> int:
        return variable.get()

    (await client.enqueue_batch(q.name, list(range(20)))).raise_first()
    async with Worker(client, q.name, handle, concurrency=2, max_in_flight=20, batch=10):
        await q.drained()
    assert seen == [0] * 20


async def test_middleware(client: Client, queue: MakeQueue) -> None:
    q = await queue()
    order: list[str] = []

    def layer(name: str) -> Any:
        async def around(message: Message, call_next: Handler) -> Outcome:
            order.append(f"{name} in")
            try:
                return await call_next(message)
            finally:
                order.append(f"{name} out")

        return around

    async def handle(message: Message) -> None:
        order.append("handler")

    await client.enqueue(q.name, b"")
    async with Worker(client, q.name, handle, middleware=[layer("a"), layer("b")]):
        await q.drained()
    assert order == ["a in", "b in", "handler", "b out", "a out"]


@batches
async def test_concurrency(client: Client, queue: MakeQueue, batch: int) -> None:
    q = await queue()
    running = most = 0

    async def handle(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    (await client.enqueue_batch(q.name, [b""] * 100)).raise_first()
    async with Worker(client, q.name, handle, concurrency=3, max_in_flight=50, batch=batch):
        await q.drained()
    assert most == 3


@batches
async def test_a_stop_finishes_what_was_received(client: Client, queue: MakeQueue, batch: int) -> None:
    q = await queue()
    begun, go, done = asyncio.Event(), asyncio.Event(), 0

    async def handle(message: Message) -> None:
        nonlocal done
        begun.set()
        await go.wait()
        done += 1

    (await client.enqueue_batch(q.name, [b""] * 30)).raise_first()
    worker = Worker(client, q.name, handle, concurrency=4, batch=batch)
    async with worker:
        await asyncio.wait_for(begun.wait(), 60)
        stopping = asyncio.create_task(worker.stop())

        async def left() -> bool:
            return bool((await q.inspect())["consumers"] == 0)

        await eventually(left, "the worker to leave")
        assert not stopping.done()
        go.set()
        await stopping
    info = await q.inspect()
    assert (info["in_flight"], info["pending"]) == (0, 30 - done)
    assert 1 <= done <= 30


@batches
async def test_a_stop_that_takes_too_long_gives_back(client: Client, queue: MakeQueue, batch: int) -> None:
    q = await queue(max_deliveries=1)
    begun: list[str] = []

    async def handle(message: Message) -> None:
        begun.append(message.id)
        await asyncio.Event().wait()

    (await client.enqueue_batch(q.name, [b""] * 4)).raise_first()
    async with Worker(client, q.name, handle, concurrency=1, max_in_flight=4, batch=batch) as worker:

        async def received() -> bool:
            return bool(begun) and bool((await q.inspect())["in_flight"] == 4)

        await eventually(received, "the messages")
        await worker.stop(timeout=0.1)
        assert len(begun) == 1
        assert await q.empty()
    assert [(m["dead"]["error"], m["dead"]["error_code"]) for m in await q.dead()] == [
        ("the worker stopped", "stopped")
    ] * 4


async def test_a_handler_that_ignores_the_cancel_does_not_hold_a_stop(client: Client, queue: MakeQueue) -> None:
    q = await queue(visibility_timeout_ms=1000)
    begun, go, seen = asyncio.Event(), asyncio.Event(), 0

    async def handle(message: Message) -> None:
        nonlocal seen
        seen = message.attempt
        begun.set()
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await go.wait()

    async with Worker(client, q.name, handle) as worker:
        await client.enqueue(q.name, b"")
        await begun.wait()
        await asyncio.wait_for(worker.stop(timeout=0), 60)
    async with Worker(client, q.name, handle):  # the message comes again when its lease ends
        await eventually(lambda: asyncio.sleep(0, seen == 2), "the second attempt")
        go.set()
        await q.drained()


async def test_a_broken_delivery_is_reported(
    fila: FilaServer, client: Client, queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    q = await queue()
    seen: list[bytes] = []

    async def handle(message: Message) -> None:
        seen.append(message.data)

    async with Worker(client, q.name, handle, batch=4, name="broken"):
        await client.nc.publish(f"fila.deliver.broken.{q.name}", b"short", headers={"Fila-Batch": "2"})
        for number in ("0", "x"):
            await client.nc.publish(f"fila.deliver.broken.{q.name}", b"", headers={"Fila-Batch": number})
        await client.nc.publish(f"fila.deliver.broken.{q.name}", b"")
        await client.enqueue(q.name, b"good")
        await q.drained()
    assert seen == [b"good"]
    assert caplog.text.count("is not what fila sends") == 4


async def test_registration(client: Client, queue: MakeQueue) -> None:
    q = await queue()

    async def handle(message: Message) -> None:
        assert message.key == ""
        assert message.enqueued_at is None

    await client.enqueue(q.name, b"")
    async with Worker(client, q.name, handle, concurrency=7, batch=5, name="w1", min_headers=True, registration_ttl=1):
        await q.drained()
        await asyncio.sleep(2)  # it renews the registration
        (consumer,) = (await q.inspect())["consumer_list"]
        assert (consumer["name"], consumer["max_in_flight"], consumer["batch"], consumer["headers"]) == (
            "w1",
            7,
            5,
            "min",
        )
    assert (await q.inspect())["consumers"] == 0
    async with Worker(client, q.name, handle, name="w1", shared=True):
        pass
    assert (await q.inspect())["consumers"] == 1  # others of the name go on


async def test_a_missing_queue(fila: FilaServer) -> None:
    async def handle(message: Message) -> None:
        pass

    async with await Client.connect(fila.url, retry_for=0.2) as client:
        with pytest.raises(Exception, match="no such queue"):
            await Worker(client, "nowhere", handle).start()


def test_bad_arguments() -> None:
    async def handle(message: Message) -> None:
        pass

    def blocking(message: Message) -> None:
        pass

    class Callable:
        async def __call__(self, message: Message) -> None:
            pass

    client = Client.__new__(Client)
    client.codec = None  # type: ignore[assignment]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"concurrency": 0}, "concurrency is 0: allowed are 1 to 65536"),
        ({"batch": 1001}, "batch is 1001: allowed are 1 to 1000"),
        ({"concurrency": 8, "max_in_flight": 7}, "max_in_flight is 7: allowed are 8"),
        ({"name": "a.b"}, "name is 'a.b'"),
        ({"name": ""}, "name is ''"),
        ({"registration_ttl": 0.05}, "registration_ttl is 0.05"),
        ({"stop_timeout": -1}, "stop_timeout is -1"),
    ]
    for arguments, text in bad:
        with pytest.raises(ValueError, match=text):
            Worker(client, "q", handle, **arguments)
    with pytest.raises(TypeError, match="an async function is expected"):
        Worker(client, "q", blocking)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="queue name"):
        Worker(client, "a b", handle)


async def test_restarts(caplog: pytest.LogCaptureFixture) -> None:
    """fila, and NATS in it, are killed twice in the middle of the work: nothing confirmed is lost."""
    caplog.set_level(logging.CRITICAL, "nats")
    async with FilaServer() as server:
        client = await server.connect(retry_for=60)
        q = Queue(client, "orders")
        await client.admin("queue-create.orders", {"visibility_timeout_ms": 5000})
        confirmed: list[str] = []
        handled: dict[str, int] = {}

        async def handle(message: Message) -> None:
            await asyncio.sleep(0.005)
            handled[message.id] = handled.get(message.id, 0) + 1

        async def produce(lane: int) -> None:
            for i in range(150):
                confirmed.append((await client.enqueue("orders", {"n": i}, dedupe_id=f"{lane}-{i}")).id)

        async def killer() -> None:
            for part in (150, 300):
                await eventually(lambda part=part: asyncio.sleep(0, len(handled) >= part), f"{part} handled messages")  # type: ignore[misc]
                await server.kill()
                await server.start()

        async with Worker(client, "orders", handle, concurrency=8, batch=4):
            await asyncio.gather(killer(), *(produce(lane) for lane in range(4)))
            await eventually(lambda: asyncio.sleep(0, set(confirmed) <= set(handled)), "all confirmed messages")
            await q.drained()
        assert len(confirmed) == len(set(confirmed)) == 600
        assert (await q.inspect())["consumers"] == 0


async def test_run_ends_when_the_connection_is_closed(fila: FilaServer, queue: MakeQueue) -> None:
    q = await queue()

    async def handle(message: Message) -> None:
        pass

    client = await Client.connect(fila.url)
    worker = Worker(client, q.name, handle, stop_timeout=1)
    running = asyncio.create_task(worker.run())

    async def registered() -> bool:
        return bool((await q.inspect())["consumers"])

    await eventually(registered, "the registration")
    await client.nc.close()
    with pytest.raises(Exception, match="connection closed"):
        await asyncio.wait_for(running, 60)


PROGRAM = """
import asyncio, os, sys
from fila_worker import Client, Worker

async def handle(message):
    if message.payload == "slow":
        print("begun", flush=True)
        await asyncio.sleep(1)
    if message.payload == "stuck":
        print("begun", flush=True)
        await asyncio.Event().wait()
    print("handled", message.payload, flush=True)

async def main():
    async with await Client.connect(os.environ["NATS_URL"]) as client:
        await Worker(client, sys.argv[1], handle, stop_timeout=60).run()
    print("ended", flush=True)

asyncio.run(main())
"""


async def run_program(fila: FilaServer, q: Queue) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, q.name,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "NATS_URL": fila.url},
    )  # fmt: skip


async def test_a_signal_stops_gracefully(fila: FilaServer, client: Client, queue: MakeQueue) -> None:
    q = await queue()
    await client.enqueue(q.name, "slow")
    process = await run_program(fila, q)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    assert await process.stdout.read() == b"handled slow\nended\n"
    assert await process.wait() == 0
    assert await q.empty()


async def test_a_second_signal_hurries(fila: FilaServer, client: Client, queue: MakeQueue) -> None:
    q = await queue()
    await client.enqueue(q.name, "stuck")
    process = await run_program(fila, q)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)

    async def left() -> bool:
        return bool((await q.inspect())["consumers"] == 0)

    await eventually(left, "the worker to leave")
    process.send_signal(signal.SIGINT)
    assert await process.stdout.read() == b"ended\n"
    assert await process.wait() == 0
    assert (await q.inspect())["in_flight"] == 0
