"""Sends messages to a queue of fila in one batch, and consumes them in batches, with nats-py alone.

    python batches.py QUEUE [COUNT]
"""

import asyncio
import os
import struct
import sys
import uuid

import nats


def frame(headers, payload):
    """A message in a batch: two lengths, header lines, payload."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
    return struct.pack(">II", len(lines), len(payload)) + lines + payload


def deliveries(msg):
    """The messages of a delivery: id, attempt, headers and payload of each."""
    at = 0
    for _ in range(int(msg.headers["Fila-Batch"])):
        lines, size, id, attempt, _deadline = struct.unpack_from(">II16sIq", msg.data, at)
        at += 36
        headers = dict(line.split(": ", 1) for line in msg.data[at : at + lines].decode().split("\r\n")[:-1])
        yield uuid.UUID(bytes=id), attempt, headers, msg.data[at + lines : at + lines + size]
        at += lines + size


async def main(queue, count):
    nc = await nats.connect(os.environ["NATS_URL"])
    done, handled = asyncio.Event(), set()

    async def handle(msg):
        answers = ""
        for i, (id, attempt, headers, payload) in enumerate(deliveries(msg)):
            failed = payload.endswith(b"7") and attempt == 1
            answers += f'{i} -NAK {{"error":"not now","delay":0}}\n' if failed else f"{i} +ACK\n"
            if not failed:
                handled.add(id)
        reply = await nc.request(msg.reply, answers.encode(), timeout=10)
        print("acked:", reply.data.decode(), flush=True)
        if len(handled) == count:
            done.set()

    await nc.subscribe(f"fila.deliver.batches.{queue}", cb=handle)
    await nc.flush()
    await nc.request(f"fila.consumer.batches.{queue}", b'{"max_in_flight":256,"batch":64}', timeout=10)
    batch = b"".join(frame({"tenant": "acme"}, f"message {i}".encode()) for i in range(count))
    reply = await nc.request(f"fila.enqueue.{queue}", batch, timeout=10, headers={"Fila-Batch": str(count)})
    print("stored:", reply.data.decode(), flush=True)
    await done.wait()
    await nc.request(f"fila.consumer.batches.{queue}", b'{"leave":true}', timeout=10)
    await nc.drain()
    print(f"handled {len(handled)} messages")


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20))
