"""Measures a Worker with an empty handler against a plain nats-py loop with the same acks.

    FILA_BINARY=./fila python bench/throughput.py [--messages 20000] [--rounds 5] [--batch 1 64]

Both send each ack as a request and wait for the last confirmation. Rounds alternate. The table has messages per
second by the clock (median of the rounds) and per second of this process's CPU time (best round: other load on the
machine only adds to it), and the ratio of the worker to the plain loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg

from fila_worker import Client, Message, NewMessage, Worker
from fila_worker.frames import parse_deliveries
from fila_worker.testing import FilaServer

CREDIT = 1000


async def worker(client: Client, queue: str, count: int, batch: int) -> tuple[float, float]:
    handled, done = 0, asyncio.Event()

    async def count_only(message: Message) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            done.set()

    wall, cpu = time.perf_counter(), time.process_time()
    async with Worker(client, queue, count_only, concurrency=CREDIT, batch=batch):
        await done.wait()  # a stop waits for the confirmations
    return time.perf_counter() - wall, time.process_time() - cpu


async def plain(client: Client, queue: str, count: int, batch: int) -> tuple[float, float]:
    """Takes messages with nats-py alone, awaits an empty handler, acks, and counts the confirmations."""
    nc, confirmed, done = client.nc, 0, asyncio.Event()
    inbox = nc.new_inbox()

    async def nothing(payload: bytes) -> None:
        pass

    async def single(msg: Msg) -> None:
        await nothing(msg.data)
        await nc.publish(msg.reply, b"+ACK", reply=inbox + ".1")

    async def several(msg: Msg) -> None:
        n = int((msg.headers or {})["Fila-Batch"])
        for delivered in parse_deliveries(msg.data, n):
            await nothing(delivered.payload)
        await nc.publish(msg.reply, b"0-%d +ACK" % (n - 1) if n > 1 else b"0 +ACK", reply=f"{inbox}.{n}")

    async def confirm(msg: Msg) -> None:
        nonlocal confirmed
        confirmed += int(msg.subject.rpartition(".")[2])
        if confirmed == count:
            done.set()

    wall, cpu = time.perf_counter(), time.process_time()
    replies = await nc.subscribe(inbox + ".*", cb=confirm)
    deliveries = await nc.subscribe(f"fila.deliver.plain.{queue}", cb=several if batch > 1 else single)
    await nc.flush()
    request = {"max_in_flight": CREDIT, **({"batch": batch} if batch > 1 else {})}
    await nc.request(f"fila.consumer.plain.{queue}", json.dumps(request).encode(), timeout=5)
    await done.wait()
    await nc.request(f"fila.consumer.plain.{queue}", b'{"leave":true}', timeout=5)
    await deliveries.unsubscribe()
    await replies.unsubscribe()
    return time.perf_counter() - wall, time.process_time() - cpu


async def measure(count: int, rounds: int, batches: list[int]) -> None:
    systems: dict[str, Callable[[Client, str, int, int], Awaitable[tuple[float, float]]]] = {
        "plain": plain,
        "worker": worker,
    }
    async with FilaServer() as fila:
        client = await fila.connect()
        await fila.admin("queue-create.bench", {"fairness_header": "tenant", "max_depth": 10 * count})
        for batch in batches:
            rates: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
            for _ in range(rounds):
                for name, system in systems.items():
                    messages = [NewMessage(b"x" * 100, headers={"tenant": f"t{i % 50}"}) for i in range(count)]
                    (await client.enqueue_batch("bench", messages)).raise_first()
                    wall, cpu = await system(client, "bench", count, batch)
                    rates[name].append((count / wall, count / cpu))
            by_clock = {name: statistics.median(wall for wall, _ in r) for name, r in rates.items()}
            by_cpu = {name: max(cpu for _, cpu in r) for name, r in rates.items()}
            for name in systems:
                print(f"batch {batch:4} {name:7} {by_clock[name]:10.0f}/s {by_cpu[name]:10.0f}/CPU s")
            print(f"batch {batch:4} ratio   {ratio(by_clock):10.2f}   {ratio(by_cpu):10.2f}")


def ratio(rates: dict[str, float]) -> float:
    return rates["worker"] / rates["plain"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    args = parser.parse_args()
    asyncio.run(measure(args.messages, args.rounds, args.batch))
