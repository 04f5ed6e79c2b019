"""Publishes messages to a queue of fila with nats-py alone, and waits for the
confirmation of each.

    python producer.py QUEUE [COUNT [TODO]]

NATS_URL is the address of NATS. It survives restarts of fila and NATS: whatever is not
confirmed is published again with the same Nats-Msg-Id, so that it is stored
once.
"""

import asyncio
import json
import os
import sys

import nats
from nats.errors import Error, NoRespondersError, TimeoutError

# Tells the example consumers what to show with a message.
TODO = ["ack", "fail", "later", "busy", "slow", "hopeless"]


async def publish(nc, queue, i):
    """Returns when the message is on disk, or raises when it never can be."""
    text = f"message {i}"
    headers = {
        "tenant": ["acme", "globex"][i % 2],
        "Nats-Msg-Id": f"python-{i}",
        "todo": TODO[i % len(TODO)],
    }
    while True:
        try:
            reply = await nc.request(f"fila.enqueue.{queue}", text.encode(), timeout=2, headers=headers)
        except NoRespondersError:
            print(f"{text}: nobody is there, again in 250 ms", file=sys.stderr)
            await asyncio.sleep(0.25)
            continue
        except (TimeoutError, Error) as error:  # no reply, or not connected
            print(f"{text}: {error!r}, again", file=sys.stderr)
            await asyncio.sleep(0.1)
            continue
        code = (reply.headers or {}).get("Nats-Service-Error-Code")
        if code is None:
            print(f"stored {text} as {json.loads(reply.data)['id']}", flush=True)
            return
        # 429: the queue is full. 503: fila is stopping. 500: perhaps stored.
        if code not in ("429", "500", "503"):
            raise SystemExit(f"{text}: refused: {reply.data.decode()}")
        ms = max(int(reply.headers.get("Fila-Retry-After-Ms", 0)), 100)
        print(f"refused {text} with {code}, again in {ms} ms", flush=True)
        await asyncio.sleep(ms / 1000)


async def quiet(_error):
    """Disconnects are no news here: requests that fail are repeated."""


async def main(queue, count):
    nc = await nats.connect(
        os.environ["NATS_URL"], max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=quiet
    )
    # Several at a time: fila writes messages that arrive together in one commit.
    places = asyncio.Semaphore(16)

    async def one(i):
        async with places:
            await publish(nc, queue, i)

    await asyncio.gather(*(one(i) for i in range(count)))
    await nc.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if len(sys.argv) > 3:
        TODO = [sys.argv[3]]
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else len(TODO)))
