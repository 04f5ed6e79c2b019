"""Asks fila before calls to a vendor, and tells it how they went, with nats-py alone.

    python guard.py COUNT KEY [KEY...]

The first key is the vendor, whose circuit is asked; the limits of all keys are.
NATS_URL says where.
"""

import asyncio
import json
import os
import sys

import nats
from nats.errors import Error, NoRespondersError


class VendorError(Exception):
    """What the vendor answers when it does not work."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


async def call_vendor(call, attempt):
    """Stands for the call itself: the first attempt of call 1 fails."""
    if call == 1 and attempt == 1:
        raise VendorError("503", "upstream is down")


class Guard:
    def __init__(self, nc, keys):
        self.nc, self.key, self.further = nc, keys[0], keys[1:]

    async def ask(self, verb, request):
        """Sends a request; the first key is in the subject, where permissions bind it.

        A key that is not legal in a subject goes into the request as "key", and the
        subject ends in "_" instead.
        """
        while True:
            try:
                reply = await self.nc.request(f"fila.guard.{verb}.{self.key}", json.dumps(request).encode(), timeout=2)
            except NoRespondersError:  # whether to call without a permit is yours to say
                print("nobody is there, again in 250 ms", file=sys.stderr)
                await asyncio.sleep(0.25)
                continue
            code = (reply.headers or {}).get("Nats-Service-Error-Code")
            if code is None:
                return json.loads(reply.data)
            if code not in ("429", "503"):  # a full cap, or fila is stopping
                raise RuntimeError(reply.data.decode())
            await asyncio.sleep(int(reply.headers.get("Fila-Retry-After-Ms", 250)) / 1000)

    async def check(self, call):
        """Returns a permit, when the call may be made."""
        while True:
            answer = await self.ask("check", {"with": self.further, "caller": "example", "ttl_ms": 10_000})
            if answer["allowed"]:
                return answer["permit"]
            ms = answer.get("retry_after_ms", 1000)  # absent: nobody knows, perhaps it is paused
            print(f"refused call {call} by {answer['gate']} of {answer['key']}, again in {ms} ms", flush=True)
            await asyncio.sleep(ms / 1000)

    async def done(self, permit, attempt, error=None):
        """Gives the permit back, and returns what to do about an error."""
        how = {"permit": permit, "caller": "example", "attempt": attempt, "outcome": "ok"}
        if error is not None:
            how |= {"outcome": "error", "error_code": error.code, "error": str(error)}
        return await self.ask("done", how)


async def make(guard, call):
    """Makes a call, again as long as fila advises it."""
    attempt = 1
    while True:
        permit = await guard.check(call)
        try:
            await call_vendor(call, attempt)
        except VendorError as error:
            verdict = await guard.done(permit, attempt, error)
            print(f"failed call {call}, attempt {attempt}: {verdict['severity']}", flush=True)
            if not verdict["retry"]:
                return
            await asyncio.sleep(verdict.get("delay_ms", 0) / 1000)
            attempt += 1
            continue
        try:
            await guard.done(permit, attempt)
        except (Error, RuntimeError) as error:  # the call was made; its permit ends by itself
            print(f"call {call}: {error!r}", file=sys.stderr)
        print(f"made call {call}, attempt {attempt}", flush=True)
        return


async def main(count, keys):
    nc = await nats.connect(os.environ["NATS_URL"])
    guard = Guard(nc, keys)
    for call in range(count):
        await make(guard, call)
    await nc.close()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
