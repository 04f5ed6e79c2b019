"""A fila of its own for tests."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from .client import Client

READY = re.compile(r"fila is ready: nats=(\S+) http=(\S+)")


class FilaServer:
    """Runs the fila binary with NATS inside, on free ports, in a temporary directory.

    The binary is ``binary``, or the environment variable FILA_BINARY names it, or it is ``fila`` in PATH. ``config``
    is the text of the configuration file::

        async with FilaServer() as fila:
            client = await fila.connect()
            await fila.admin("queue-create.orders", {"fairness_header": "tenant"})
    """

    def __init__(self, binary: str | None = None, config: str = "", ready_within: float = 60.0) -> None:
        found = binary or os.environ.get("FILA_BINARY") or shutil.which("fila")
        if not found:
            raise FileNotFoundError("no fila binary: set FILA_BINARY to its path, or put fila into PATH")
        self.binary = found
        self.config = config
        self.ready_within = ready_within
        self.url = ""
        self.http = ""
        self._port = -1  # any; after the first start always the same
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[Client] = []

    async def __aenter__(self) -> FilaServer:
        self._directory = tempfile.TemporaryDirectory(prefix="fila-")
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        await self.kill()
        if self._directory is not None:
            self._directory.cleanup()

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise RuntimeError("FilaServer is a context manager: use it with async with")
        return Path(self._directory.name)

    async def start(self) -> None:
        """Starts fila and waits until it is ready. After a kill or stop it keeps its address and its data."""
        path, log = self.directory / "fila.toml", self.directory / "fila.log"
        path.write_text(self.config)
        env = {
            **os.environ,
            "FILA_DATA_DIR": f"{self.directory}/data",
            "FILA_DRAIN_TIMEOUT_MS": "200",
            "FILA_HTTP__ADDR": "127.0.0.1:0",
            "FILA_NATS__EMBEDDED__PORT": str(self._port),
        }
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [self.binary, "serve", "--config", str(path)], stdout=output, stderr=output, env=env
            )
        until = asyncio.get_running_loop().time() + self.ready_within
        while not (ready := READY.search(log.read_text(errors="replace"))):
            if self._process.poll() is not None or asyncio.get_running_loop().time() > until:
                raise RuntimeError(f"fila did not become ready:\n{log.read_text(errors='replace')}")
            await asyncio.sleep(0.02)
        self.url, self.http = ready[1], ready[2]
        self._port = int(self.url.rpartition(":")[2])

    async def kill(self) -> None:
        """Ends fila with SIGKILL."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ends fila with SIGTERM."""
        await self._end(signal.SIGTERM)

    async def _end(self, sig: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(sig)
            await asyncio.to_thread(self._process.wait)
            self._process = None

    async def connect(self, **options: Any) -> Client:
        """Returns a client, which ends with the server."""
        client = await Client.connect(self.url, **options)
        self._clients.append(client)
        return client

    async def admin(self, verb: str, request: dict[str, Any] | None = None) -> Any:
        """Asks an admin verb, such as ``queue-create.orders``, and returns its reply."""
        async with await Client.connect(self.url) as client:
            return await client.admin(verb, request)
