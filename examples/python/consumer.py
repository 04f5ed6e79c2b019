"""Works on the messages of a queue of fila with nats-py alone.

    python consumer.py QUEUE

NATS_URL is the address of NATS. An interrupt stops it gracefully. It survives restarts
of fila and NATS: it registers again, and repeats an ack until it is answered.
"""

import asyncio
import json
import os
import signal
import sys

import nats
from nats.errors import Error

NAME = "python-1"
MAX_IN_FLIGHT = 16
TTL = 30  # seconds


class Consumer:
    def __init__(self, queue):
        self.queue = queue
        self.lease = None  # seconds: the visibility timeout
        self.tasks = set()
        self.stopping = asyncio.Event()
        self.reconnected = asyncio.Event()

    async def run(self):
        async def on_reconnect():
            self.reconnected.set()

        async def quiet(_error):
            pass  # disconnects are no news here

        self.nc = await nats.connect(
            os.environ["NATS_URL"],
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            reconnected_cb=on_reconnect,
            error_cb=quiet,
        )
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sig, self.stopping.set)

        # Subscribe first, then register: a delivery without a subscriber ends a registration.
        subscription = await self.nc.subscribe(f"fila.deliver.{NAME}.{self.queue}", cb=self.receive)
        await self.nc.flush()
        await self.register()
        print("registered", NAME, flush=True)
        await self.keep_registered()

        # Leave, so that no more deliveries come; let the received ones finish.
        try:
            await self.ask({"leave": True})
        except Error as error:
            print("leave:", repr(error), file=sys.stderr)
        await subscription.drain()
        await asyncio.gather(*self.tasks)
        await self.nc.close()

    async def keep_registered(self):
        """Registers again in good time, and at once after a reconnect."""
        wait = TTL / 3
        while not self.stopping.is_set():
            events = [asyncio.create_task(e.wait()) for e in (self.stopping, self.reconnected)]
            await asyncio.wait(events, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for event in events:
                event.cancel()
            if self.stopping.is_set():
                return
            self.reconnected.clear()
            wait = TTL / 3
            try:
                await self.register()
            except Error as error:
                print("register:", repr(error), file=sys.stderr)
                wait = 1

    async def register(self):
        request = {"max_in_flight": MAX_IN_FLIGHT, "ttl_ms": TTL * 1000}
        reply = await self.ask(request)
        self.lease = reply["visibility_timeout_ms"] / 1000

    async def ask(self, request):
        """Sends a request to fila.consumer and reads the reply, which may be an error."""
        reply = await self.nc.request(f"fila.consumer.{NAME}.{self.queue}", json.dumps(request).encode(), timeout=5)
        if "Nats-Service-Error-Code" in (reply.headers or {}):
            raise Error(reply.data.decode())
        return json.loads(reply.data)

    async def receive(self, msg):
        # A callback blocks the next one: give each message a task. There are at
        # most MAX_IN_FLIGHT of them.
        task = asyncio.create_task(self.handle(msg))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def handle(self, msg):
        """Shows the ways in which a message can end."""
        text, attempt, todo = msg.data.decode(), msg.headers["Fila-Attempt"], msg.headers.get("todo")

        first = attempt == "1"
        if todo == "hopeless":
            print(f"terminated {text}, attempt {attempt}", flush=True)
            # term() of nats-py gives no reason.
            await self.nc.publish(msg.reply, b"+TERM nothing will help")
        elif todo == "fail" and first:
            # With an error, for on_failure and for people.
            print(f"nacked {text}, attempt {attempt}: with an error", flush=True)
            await self.nc.publish(msg.reply, b'-NAK {"error":"no luck today","code":"luck"}')
        elif todo == "later" and first:
            print(f"nacked {text}, attempt {attempt}: with a delay", flush=True)
            await msg.nak(delay=0.3)
        elif todo == "busy" and first:
            # The provider said Retry-After: tell fila, which keeps others away too.
            print(f"nacked {text}, attempt {attempt}: with Retry-After", flush=True)
            details = {"error": "provider is busy", "code": "429", "delay": "300ms", "retry_after_ms": 300}
            await self.nc.publish(msg.reply, b"-NAK " + json.dumps(details).encode())
        else:
            if todo == "slow":
                await self.slowly(msg)
            await self.ack(msg)

    async def slowly(self, msg):
        """Works longer than the visibility timeout and extends the lease."""
        while self.lease is None:  # the delivery may be here before the reply
            await asyncio.sleep(0.01)
        for _ in range(6):
            await asyncio.sleep(self.lease / 3)
            await msg.in_progress()

    async def ack(self, msg):
        """Finishes a message for good: repeats the ack until fila has answered.

        msg.ack() is enough where a message may come again now and then.
        """
        while True:
            try:
                reply = await self.nc.request(msg.reply, b"", timeout=2)
            except Error:  # no responders, no reply: fila or NATS is away
                await asyncio.sleep(0.1)
                continue
            code = (reply.headers or {}).get("Nats-Service-Error-Code")
            if code in ("500", "503"):
                await asyncio.sleep(0.1)
                continue
            text = msg.data.decode()
            if code is None:
                print(f"acked {text}, attempt {msg.headers['Fila-Attempt']}", flush=True)
            else:  # 409: the lease is lost, or an earlier try arrived
                print(f"refused ack of {text}: {reply.data.decode()}", flush=True)
            return


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)

    async def main():
        await Consumer(sys.argv[1]).run()

    asyncio.run(main())
