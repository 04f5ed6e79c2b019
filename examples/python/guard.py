"""Checks with fila before calls to a vendor, and reports their outcome, with nats-py alone.

    python guard.py COUNT KEY [KEY...]

The first key is the vendor with its circuit; the limits of all keys apply.
NATS_URL is the address of NATS, CALL_SECONDS the duration of a call.
"""

import asyncio
import json
import os
import sys
import time

import nats
from nats.errors import NoRespondersError, TimeoutError

PERMIT_SECONDS = 10  # how long a permit lives without a done: longer than a call takes
PATIENCE_SECONDS = 60  # how long a check waits for an answer


class VendorError(Exception):
    """The error of a vendor that does not work."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class GuardError(Exception):
    """fila refuses a request, or no reply came in time."""


async def call_vendor(call, attempt):
    """Stands for the call itself: the first attempt of call 1 fails."""
    await asyncio.sleep(float(os.environ.get("CALL_SECONDS", 0)))
    if call == 1 and attempt == 1:
        raise VendorError("503", "upstream is down")


class Guard:
    def __init__(self, nc, keys):
        self.nc, self.key, self.further = nc, keys[0], keys[1:]

    async def ask(self, verb, request, until):
        """Sends a request, and again until it is answered or the time is over.

        The first key is in the subject, where permissions bind it. A key that is not legal
        in a subject goes into the request as "key", and the subject ends in "_" instead.
        """
        while True:
            wait, why = 0.25, "nobody is there"
            try:  # a done may take 2 s where several filas answer one guard
                reply = await self.nc.request(f"fila.guard.{verb}.{self.key}", json.dumps(request).encode(), timeout=5)
                code = (reply.headers or {}).get("Nats-Service-Error-Code")
                if code is None:
                    return json.loads(reply.data)
                why = reply.data.decode()
                # 429: a cap is full. 503: fila is stopping or, as the answer to a done (err_code
                # 14503), the fila that gave the permit has ended or cannot be reached.
                if code not in ("429", "503"):
                    raise GuardError(why)
                wait = int(reply.headers.get("Fila-Retry-After-Ms", 250)) / 1000
            except NoRespondersError:  # whether to call without a permit is yours to say
                pass
            except TimeoutError:
                why = "no answer"
            if time.monotonic() + wait > until:
                raise GuardError(why)
            print(f"{verb}: {why}, again in {wait} s", file=sys.stderr)
            await asyncio.sleep(wait)

    async def check(self, call):
        """Returns a permit and when it ends, when the call may be made."""
        while True:
            asked = time.monotonic()
            request = {"with": self.further, "caller": "example", "ttl_ms": PERMIT_SECONDS * 1000}
            answer = await self.ask("check", request, asked + PATIENCE_SECONDS)
            if answer["allowed"]:
                return answer["permit"], asked + PERMIT_SECONDS
            ms = answer.get("retry_after_ms", 1000)  # absent: unknown, for example while paused
            print(f"refused call {call} by {answer['gate']} of {answer['key']}, again in {ms} ms", flush=True)
            await asyncio.sleep(ms / 1000)

    async def done(self, permit, ends, attempt, error=None):
        """Gives the permit back, and returns what to do about an error.

        Repeated reports do no harm, so it repeats until the permit has ended by itself.
        None: the report did not arrive, and the circuit does not count the call.
        """
        how = {"permit": permit, "caller": "example", "attempt": attempt, "outcome": "ok"}
        if error is not None:
            how |= {"outcome": "error", "error_code": error.code, "error": str(error)}
        try:
            return await self.ask("done", how, ends)
        except GuardError as why:
            print(f"not told: {why}", file=sys.stderr)
            return None


async def make(guard, call):
    """Makes a call, again as long as fila advises it."""
    attempt = 1
    while True:
        permit, ends = await guard.check(call)
        try:
            await call_vendor(call, attempt)
        except VendorError as error:
            verdict = await guard.done(permit, ends, attempt, error)
            if verdict is None:  # whether to try again without advice is yours to say
                print(f"failed call {call}, attempt {attempt}", flush=True)
                return
            print(f"failed call {call}, attempt {attempt}: {verdict['severity']}", flush=True)
            if not verdict["retry"]:
                return
            await asyncio.sleep(verdict.get("delay_ms", 0) / 1000)
            attempt += 1
            continue
        await guard.done(permit, ends, attempt)  # the call was made, whatever becomes of this
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
