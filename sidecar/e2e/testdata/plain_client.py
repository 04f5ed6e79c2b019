"""A producer and a consumer of fila in plain nats-py, without an SDK.

Usage: plain_client.py NATS_URL

It makes a queue of its own, publishes, consumes, nacks, extends, acks and
fetches, checks every answer, and deletes the queue. It exits with 0 and prints
one line if all went as docs/protocol.md says.
"""

import asyncio
import json
import sys
import uuid

import nats

PATIENCE = 30  # seconds; only turns a hang into a failure


def check(condition, *what):
    if not condition:
        raise SystemExit("plain_client: " + " ".join(str(w) for w in what))


async def ask(nc, subject, body, headers=None):
    """Sends a request and returns the reply, which may be an error reply."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return await nc.request(subject, body, timeout=PATIENCE, headers=headers)


async def ask_ok(nc, subject, body, headers=None):
    reply = await ask(nc, subject, body, headers)
    check(error_code(reply) is None, subject, "was refused:", reply.data)
    return json.loads(reply.data) if reply.data else None


def error_code(reply):
    return (reply.headers or {}).get("Nats-Service-Error-Code")


async def main(url):
    nc = await nats.connect(url, connect_timeout=PATIENCE)
    queue = "python-" + uuid.uuid4().hex[:8]
    settings = {"fairness_header": "tenant", "visibility_timeout_ms": 60000}
    await ask_ok(nc, f"fila.admin.queue-create.{queue}", settings)

    # Subscribe first, then register.
    deliveries = await nc.subscribe(f"fila.deliver.worker-1.{queue}")
    registered = await ask_ok(nc, f"fila.consume.{queue}", {"consumer": "worker-1", "max_in_flight": 8})
    check(registered["deliver"] == deliveries.subject, "deliveries go to", registered["deliver"])
    check(registered["visibility_timeout_ms"] == 60000, registered)

    headers = {"tenant": "acme", "Nats-Msg-Id": "order-1"}
    confirmed = await ask_ok(nc, f"fila.enqueue.{queue}", b"hello", headers)
    check(confirmed["queue"] == queue and "duplicate" not in confirmed, confirmed)
    again = await ask_ok(nc, f"fila.enqueue.{queue}", b"hello", headers)
    check(again == {**confirmed, "duplicate": True}, "the same Nats-Msg-Id gave", again)

    msg = await deliveries.next_msg(timeout=PATIENCE)
    check(msg.data == b"hello", msg.data)
    check(msg.headers["tenant"] == "acme" and msg.headers["Fila-Key"] == "acme", msg.headers)
    check(msg.headers["Fila-Id"] == confirmed["id"] and msg.headers["Fila-Attempt"] == "1", msg.headers)
    check("Nats-Msg-Id" not in msg.headers, "reserved headers stay in fila:", msg.headers)
    await msg.nak(delay=0.01)

    msg = await deliveries.next_msg(timeout=PATIENCE)
    check(msg.headers["Fila-Id"] == confirmed["id"] and msg.headers["Fila-Attempt"] == "2", msg.headers)
    await msg.in_progress()
    done = await ask(nc, msg.reply, b"")
    check(error_code(done) is None and done.data == b"", "a confirmed ack gave", done.headers, done.data)
    twice = await ask(nc, msg.reply, b"")
    check(error_code(twice) == "409", "a second ack gave", twice.headers)

    nobody = await ask(nc, "fila.consume.no-such-queue", {"consumer": "worker-1"})
    check(error_code(nobody) == "404", "an unknown queue gave", nobody.headers)
    check(json.loads(nobody.data)["error"]["code"] == 404, nobody.data)

    # ack() of nats-py, which asks for no reply.
    await ask_ok(nc, f"fila.enqueue.{queue}", b"second")
    msg = await deliveries.next_msg(timeout=PATIENCE)
    check(msg.data == b"second", msg.data)
    await msg.ack()
    await ask_ok(nc, f"fila.consume.{queue}", {"consumer": "worker-1", "leave": True})

    await fetch(nc, queue)
    await ask_ok(nc, f"fila.admin.queue-delete.{queue}", {"force": True})
    await nc.close()
    print("plain_client: published, consumed, nacked, extended, acked and fetched")


async def fetch(nc, queue):
    """Asks for a batch of two when there is one message."""
    await ask_ok(nc, f"fila.enqueue.{queue}", b"third")
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox)
    request = json.dumps({"batch": 2, "expires_ms": 0}).encode()
    await nc.publish(f"fila.fetch.{queue}", request, reply=inbox)
    msg = await answers.next_msg(timeout=PATIENCE)
    check(msg.data == b"third", msg.data, msg.headers)
    status = await answers.next_msg(timeout=PATIENCE)
    check(status.headers["Status"] == "404" and status.data == b"", status.headers, status.data)
    done = await ask(nc, msg.reply, b"+ACK")
    check(error_code(done) is None, done.headers)
    await answers.unsubscribe()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    asyncio.run(asyncio.wait_for(main(sys.argv[1]), 4 * PATIENCE))
