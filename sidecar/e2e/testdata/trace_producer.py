"""A producer that traces what it sends, with nothing but Python's own library.

Usage: trace_producer.py HOST PORT QUEUE TRACEPARENT

It publishes one message with that traceparent, waits for fila's confirmation, and
prints it.
"""

import socket
import sys

PATIENCE = 60  # seconds; only turns a hang into a failure


def main(host, port, queue, traceparent):
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as s, s.makefile("rb") as lines:
        lines.readline()  # INFO
        header = f"NATS/1.0\r\nTraceparent: {traceparent}\r\n\r\n".encode()
        payload = b"from Python"
        s.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.py 1\r\n')
        s.sendall(f"HPUB fila.enqueue.{queue} _INBOX.py {len(header)} {len(header) + len(payload)}\r\n".encode())
        s.sendall(header + payload + b"\r\n")
        while True:
            line = lines.readline()
            if line.startswith(b"PING"):
                s.sendall(b"PONG\r\n")
            elif line.startswith(b"MSG "):
                print(lines.read(int(line.split()[-1])).decode())
                return
            elif not line or line.startswith((b"-ERR", b"HMSG ")):
                raise SystemExit(f"trace_producer: {line!r} {lines.readline()!r}")


main(*sys.argv[1:])
