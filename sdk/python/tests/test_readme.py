"""The README is true: its service and its test run as printed, and its other blocks are Python. So does the
worker of docs/coming-from.md, which FILA_DOCS names."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import signal
import sys
import textwrap
from pathlib import Path

from fila_worker import Client, NewMessage
from fila_worker.testing import FilaServer

from .conftest import Queue, eventually

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = [
    textwrap.dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```$", README, re.MULTILINE | re.DOTALL)
]


def test_blocks_are_python() -> None:
    assert len(BLOCKS) == 7
    for block in BLOCKS:
        compile(block, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def test_service(tmp_path: Path) -> None:
    service = BLOCKS[0]
    assert len(service.splitlines()) <= 30
    (tmp_path / "service.py").write_text(service)
    async with FilaServer() as fila:
        log = (tmp_path / "log").open("wb")
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(tmp_path / "service.py"), stdout=log, env={**os.environ, "NATS_URL": fila.url}
        )
        client: Client = await fila.connect(key_header="tenant", retry_for=60)
        q = Queue(client, "mails")
        mails = [NewMessage({"to": f"{i}@example.com"}, key="acme") for i in range(25)]
        mails += [
            NewMessage({"to": "late@example.com", "works_at": 2}, key="initech"),
            NewMessage({"to": "nowhere"}, key="initech"),
            NewMessage({"to": "bob@example.com"}, key="globex"),
        ]
        (await client.enqueue_batch("mails", mails)).raise_first()
        await eventually(
            lambda: asyncio.sleep(0, b"ann@example.com" in (tmp_path / "log").read_bytes()), "the first mail"
        )
        await q.drained()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        log.close()
        lines = (tmp_path / "log").read_text().splitlines()
        assert len(lines) == len(set(lines)) == 28
        assert "sent to late@example.com for initech" in lines
        acme = [i for i, line in enumerate(lines) if line.endswith("for acme")]
        assert len(acme) == 26
        # 26 mails of acme take 5 s at 5/s; globex, which came last, does not wait for them.
        assert lines.index("sent to bob@example.com for globex") < acme[-1]
        assert [(m["dead"]["reason"], m["dead"]["error"], m["dead"]["error_code"]) for m in await q.dead()] == [
            ("term", "no address", "address")
        ]
        limits = await client.admin("throttle-show.tenant:acme")
        assert str(limits["rate"]) == "5"


async def test_test(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text(BLOCKS[-1])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-q", str(tmp_path), cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert b"1 passed" in output


# What the worker leaves to the reader. It stops after its first mail.
COMING_FROM = """
import asyncio, os, signal

NATS_URL = os.environ["NATS_URL"]

async def send_mail(mail):
    print("sent to", mail["to"], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

async def main():
{worker}

asyncio.run(main())
"""


async def test_worker_of_coming_from(tmp_path: Path) -> None:
    page = Path(os.environ["FILA_DOCS"], "coming-from.md").read_text()
    ours, *others = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for block in others:
        compile(block, "coming-from.md", "exec")
    (tmp_path / "worker.py").write_text(COMING_FROM.format(worker=textwrap.indent(ours, "    ")))
    async with FilaServer() as fila:
        client = await fila.connect()
        await client.admin("queue-create.mails", {"fairness_header": "tenant"})
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(tmp_path / "worker.py"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "NATS_URL": fila.url},
        )
        output, _ = await process.communicate()
        assert (process.returncode, output) == (0, b"sent to ann@example.com\n")
        assert await Queue(client, "mails").empty()
