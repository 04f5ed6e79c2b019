"""The client against a real fila."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

from fila_worker import Client, GuardRefused, NewMessage, NoFila, NoReply, Receipt, Refused, Schedule, Worker
from fila_worker.guard import Guard, Permit
from fila_worker.testing import FilaServer

from .conftest import MakeQueue, Queue, eventually


async def test_enqueue(client: Client, queue: MakeQueue) -> None:
    q = await queue()
    first = await client.enqueue(q.name, {"n": 1}, key="acme", dedupe_id="order-1")
    assert (first.queue, first.duplicate) == (q.name, False)
    again = await client.enqueue(q.name, {"n": 1}, key="acme", dedupe_id="order-1")
    assert again == Receipt(first.id, q.name, duplicate=True)
    other = await client.enqueue(q.name, {"n": 1}, headers={"tenant": "acme", "note": "ü"})
    assert other.id != first.id
    shown = await client.admin("message-show", {"queue": q.name, "id": other.id})
    assert shown["key"] == "acme"
    assert shown["headers"]["note"] == ["ü"]
    info = await q.inspect()
    assert info["pending"] == 2


async def test_delays_and_ttl(client: Client, queue: MakeQueue) -> None:
    q = await queue()
    await client.enqueue(q.name, b"", delay=timedelta(hours=1))
    await client.enqueue(q.name, b"", not_before=datetime.now(timezone.utc) + timedelta(hours=1), ttl=7200)
    await client.enqueue(q.name, b"", delay=0)
    info = await q.inspect()
    assert (info["pending"], info["delayed"]) == (1, 2)
    await client.enqueue(q.name, b"", ttl=1, delay=1000)

    async def expired() -> bool:
        return [m["dead"]["reason"] for m in await q.dead()] == ["expired"]

    await eventually(expired, "the message to expire")


async def test_schedule(client: Client, queue: MakeQueue) -> None:
    q = await queue()
    schedule = Schedule("nightly", "0 30 2 * * *", time_zone="Europe/Berlin", missed="skip", ttl=3600)
    for _ in range(2):
        receipt = await client.enqueue(q.name, {"report": "sales"}, schedule=schedule)
        assert receipt == Receipt("", q.name, schedule="nightly")
    listed = await client.admin("schedule-list", {"queue": q.name})
    assert [(s["name"], s["time_zone"], s["missed"]) for s in listed["schedules"]] == [
        ("nightly", "Europe/Berlin", "skip")
    ]


async def test_refusals(client: Client, queue: MakeQueue) -> None:
    with pytest.raises(NoFila, match=r"fila.enqueue.nowhere: no fila, or no such queue"):
        await client.enqueue("nowhere", b"", retry_for=0)
    with pytest.raises(ValueError, match="queue name"):
        await client.enqueue("a b", b"")
    q = await queue(max_depth=1)
    with pytest.raises(Refused, match="Fila-Unknown") as refused:
        await client.enqueue(q.name, b"", headers={"Fila-Unknown": "1"})
    assert (refused.value.code, refused.value.err_code) == (400, 38400)
    with pytest.raises(Refused, match="more than NATS allows") as refused:
        await client.enqueue(q.name, bytes(client.nc.max_payload + 1))
    assert refused.value.err_code == 10413
    await client.enqueue(q.name, b"")
    with pytest.raises(Refused, match="max_depth") as refused:
        await client.enqueue(q.name, b"", retry_for=0)
    assert (refused.value.code, refused.value.err_code) == (429, 10429)


async def test_a_full_queue_is_retried(client: Client, queue: MakeQueue) -> None:
    q = await queue(max_depth=1)
    await client.enqueue(q.name, b"1")
    seen: list[bytes] = []
    waiting = asyncio.create_task(client.enqueue(q.name, b"2", retry_for=60))

    async def handle(message: object) -> None:
        seen.append(getattr(message, "data"))  # noqa: B009

    await asyncio.sleep(0.2)
    assert not waiting.done()
    async with Worker(client, q.name, handle):
        assert not (await waiting).duplicate
        await q.drained()
    assert seen == [b"1", b"2"]


async def test_a_lost_reply_is_retried_with_the_same_id(fila: FilaServer, client: Client, queue: MakeQueue) -> None:
    """fila has the message, and the reply is lost: the retry gets a duplicate's confirmation."""
    q = await queue()
    async with await Client.connect(fila.url, timeout=0.5) as forgetful:
        request, lost = forgetful.nc.request, 0

        async def lose_two(*args: object, **kwargs: object) -> object:
            nonlocal lost
            reply = await request(*args, **kwargs)  # type: ignore[arg-type]
            if lost < 2:
                lost += 1
                raise asyncio.TimeoutError
            return reply

        forgetful.nc.request = lose_two  # type: ignore[method-assign, assignment]
        receipt = await forgetful.enqueue(q.name, b"")
        assert receipt.duplicate
        lost = 0
        with pytest.raises(NoReply, match="whether it was done is not known"):
            await forgetful.enqueue(q.name, b"", retry_for=0)
        lost = 0
        result = await forgetful.enqueue_batch(q.name, [b"a", b"b"])
        assert [r is not None and r.duplicate for r in result.receipts] == [True, True]
    assert (await q.inspect())["pending"] == 4


async def test_batch(client: Client, queue: MakeQueue) -> None:
    q = await queue(max_depth=3)
    messages = [
        NewMessage({"n": 0}, key="acme", dedupe_id="same"),
        NewMessage(b"1", dedupe_id="same"),
        {"n": 2},
        b"3",
        b"4",
    ]
    result = await client.enqueue_batch(q.name, messages, retry_for=0)
    receipts = [r for r in result.receipts if r is not None]
    assert len(receipts) == 4
    assert receipts[1].duplicate
    assert receipts[1].id == receipts[0].id
    assert sorted(result.refusals) == [4]
    assert isinstance(result.refusals[4], Refused)
    with pytest.raises(Refused, match="max_depth"):
        result.raise_first()
    with pytest.raises(ValueError, match="takes no schedules"):
        await client.enqueue_batch(q.name, [NewMessage(b"", schedule=Schedule("a", "@hourly"))])
    empty = await client.enqueue_batch(q.name, [])
    assert (empty.receipts, empty.refusals) == ([], {})
    nobody = await client.enqueue_batch("nowhere", [b"a", b"b"], retry_for=0)
    assert sorted(nobody.refusals) == [0, 1]


async def test_a_large_batch_is_split_and_its_refusals_are_retried(client: Client, queue: MakeQueue) -> None:
    q = await queue(max_depth=1000)
    seen: list[int] = []

    async def handle(message: object) -> None:
        seen.append(getattr(message, "payload"))  # noqa: B009

    async with Worker(client, q.name, handle, concurrency=100, batch=50):
        result = await client.enqueue_batch(q.name, list(range(3500)), retry_for=60)
        result.raise_first()
        assert len({r.id for r in result.receipts if r is not None}) == 3500
        await q.drained()
    assert sorted(seen) == list(range(3500))


class TestGuard:
    @pytest.fixture
    def guard(self, client: Client) -> Guard:
        return Guard(client, caller="test")

    async def state(self, client: Client, key: str) -> dict[str, int]:
        state: dict[str, int] = await client.call(f"guard.state.{key}", {})
        return state

    async def test_check_and_done(self, client: Client, guard: Guard) -> None:
        permit = await guard.check("vendor:a", "tenant:a", cost=2, ttl=10)
        assert permit.id
        assert (await self.state(client, "vendor:a"))["permits"] == 1
        verdict = await guard.done(permit, ConnectionError("down"))
        assert verdict["severity"] == "medium"
        assert verdict["retry"]
        assert (await guard.done(permit))["duplicate"]
        assert (await self.state(client, "vendor:a"))["permits"] == 0
        with pytest.raises(Refused, match="permit"):
            await guard.done(Permit("x" * len(permit.id), "vendor:a", permit.ends, {}))

    async def test_actual_cost(self, client: Client, guard: Guard) -> None:
        await client.call("admin.throttle-set.tokens", {"rate": "1/1000000", "burst": 1000})

        async def left() -> int:
            state: dict[str, list[dict[str, int]]] = await client.call("guard.state.tokens", {})
            return state["limits"][0]["remaining"]

        async with guard.call("tokens", cost=100) as permit:
            permit.cost = 300
        assert await left() == 700
        with pytest.raises(ValueError, match="down"):
            async with guard.call("tokens", cost=100) as permit:
                permit.cost = 20
                raise ValueError("down")
        assert await left() == 680
        await guard.done(await guard.check("tokens", cost=80))
        assert await left() == 600
        learns = {"rate": 0.001, "burst": 1000, "adapt": {"signal": "overload", "min": 0.001}}
        await client.call("admin.throttle-set.tokens", learns)
        async with guard.call("tokens", cost=100) as permit:
            permit.cost, permit.remaining, permit.reset = 10, 50, 1
        assert await left() == 50

    async def test_refusal_and_wait(self, client: Client, guard: Guard) -> None:
        await client.admin("throttle-set.tenant:slow", {"limit": 1, "window_ms": 1000})
        await guard.done(await guard.check("vendor:b", "tenant:slow"))
        with pytest.raises(GuardRefused, match="window of tenant:slow, ask again in") as refused:
            await guard.check("vendor:b", "tenant:slow")
        assert refused.value.answer["limit"]["limit"] == 1
        patient = Guard(client, wait=30)
        await patient.done(await patient.check("vendor:b", "tenant:slow"))

    async def test_guarded(self, client: Client, guard: Guard) -> None:
        @guard.guarded(lambda tenant, fail: f"tenant:{tenant} with space", circuit="vendor:c")
        async def call(tenant: str, fail: bool) -> str:
            assert (await self.state(client, "vendor:c"))["permits"] == 1
            if fail:
                raise TimeoutError("slow")
            return tenant

        assert await call("x", fail=False) == "x"
        with pytest.raises(TimeoutError, match="slow"):
            await call("x", fail=True)
        assert (await self.state(client, "vendor:c"))["permits"] == 0

        @guard.guarded()
        async def no_key() -> None:
            pass

        with pytest.raises(ValueError, match="needs a key or a circuit"):
            await no_key()

    async def test_a_cancelled_call_is_reported(self, client: Client, guard: Guard) -> None:
        begun = asyncio.Event()

        @guard.guarded("vendor:d with space")
        async def call() -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(call())
        await begun.wait()
        assert (await client.call("guard.state._", {"key": "vendor:d with space"}))["permits"] == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.call("guard.state._", {"key": "vendor:d with space"}))["permits"] == 0

    async def test_without_fila(self, fila: FilaServer) -> None:
        async with await Client.connect(fila.url, prefix="nobody") as client:
            with pytest.raises(NoFila):
                await Guard(client).check("vendor:e")
            guard = Guard(client, fail_open=True)
            permit = await guard.check("vendor:e")
            assert await guard.done(permit) == {}


async def test_a_connection_of_the_application_stays_open(fila: FilaServer, client: Client, queue: MakeQueue) -> None:
    q: Queue = await queue()
    async with await Client.connect(client.nc) as second:
        await second.enqueue(q.name, b"")
    assert client.nc.is_connected
