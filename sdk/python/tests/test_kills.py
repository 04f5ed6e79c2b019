"""A worker process is killed again and again under load: no confirmed message is lost.

FILA_KILLS is the number of kills: 5, or 100 for the long form.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from pathlib import Path

from fila_worker import Client, NewMessage

from .conftest import MakeQueue, eventually

KILLS = int(os.environ.get("FILA_KILLS", "5"))

# Writes a line before the ack: a kill in between means a second attempt and never a lost message.
PROGRAM = """
import asyncio, os, sys
from fila_worker import Client, Worker

ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

async def handle(message):
    await asyncio.sleep(0.002)
    os.write(ledger, f"{message.id}\\n".encode())

async def main():
    async with await Client.connect(os.environ["NATS_URL"]) as client:
        await Worker(client, sys.argv[1], handle, concurrency=16, batch=int(sys.argv[3])).run()

asyncio.run(main())
"""


async def test_kills_of_a_worker(client: Client, queue: MakeQueue, tmp_path: Path) -> None:
    q = await queue(visibility_timeout_ms=1000, max_deliveries=1000)
    ledger = tmp_path / "ledger"
    ledger.touch()
    confirmed: list[str] = []
    killing, rng = True, random.Random(1)

    async def produce() -> None:
        while killing:
            if len(confirmed) - handled() > 2000:  # enough work waits
                await asyncio.sleep(0.05)
                continue
            batch = [NewMessage(b"", key=f"t{rng.randrange(10)}") for _ in range(50)]
            result = await client.enqueue_batch(q.name, batch)
            result.raise_first()
            confirmed.extend(r.id for r in result.receipts if r is not None)

    def handled() -> int:
        return ledger.stat().st_size // 37

    async def start(n: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, q.name, str(ledger), str(1 + 7 * (n % 2)),
            env={**os.environ, "NATS_URL": client.nc.connected_url.geturl() if client.nc.connected_url else ""},
        )  # fmt: skip

    producing = asyncio.create_task(produce())
    for n in range(KILLS):
        before = handled()
        process = await start(n)
        await eventually(lambda before=before: asyncio.sleep(0, handled() > before), f"work before kill {n}")  # type: ignore[misc]
        await asyncio.sleep(rng.random() / 5)
        process.kill()
        await process.wait()
    killing = False
    await producing
    process = await start(KILLS)
    await q.drained()
    process.terminate()
    assert await process.wait() == 0
    times = Counter(ledger.read_text().split())
    lost = set(confirmed) - set(times)
    print(
        f"{len(confirmed)} confirmed, {KILLS} kills, {len(lost)} lost, {sum(times.values()) - len(times)} handled again"
    )
    assert len(confirmed) > 50 * KILLS / 5
    assert not lost
    assert set(times) == set(confirmed)
    assert await q.dead() == []
