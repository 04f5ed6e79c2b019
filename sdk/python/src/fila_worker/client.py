"""Client: enqueues messages and asks fila."""

from __future__ import annotations

import asyncio
import json
import random
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

import nats
import nats.errors
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from . import frames
from .errors import FilaError, NoFila, NoReply, Refused, parse_error
from .frames import Duration
from .tracing import Tracing
from .types import BatchReply, EnqueueReply

T = TypeVar("T")

HEADER_ROOM = 8 << 10  # bytes that fila keeps free below NATS's max_payload
NUMBERS_TO_RETRY = (20409,)  # predecessor_refused
RETRY_FIRST, RETRY_MOST = 0.05, 2.0  # seconds to wait without a retry_after

_QUEUE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)


class Codec(Protocol):
    """Turns payloads into bytes and back."""

    def encode(self, value: Any, /) -> bytes: ...
    def decode(self, data: bytes, /) -> Any: ...


class JSONCodec:
    """The default codec: bytes as they are, everything else as JSON."""

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


@dataclass(frozen=True)
class Schedule:
    """Enqueues a message again and again.

    ``when`` is a cron line or a text such as ``@every 90s``. A schedule with the same name is replaced.
    """

    name: str
    when: str
    time_zone: str | None = None
    missed: str | None = None  # one (default), all or skip
    ttl: Duration | None = None  # of its messages


@dataclass(frozen=True)
class NewMessage:
    """A message to enqueue; see :meth:`Client.enqueue`."""

    payload: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    dedupe_id: str | None = None
    delay: Duration | None = None
    not_before: datetime | None = None
    ttl: Duration | None = None
    schedule: Schedule | None = None

    def all_headers(self, queue: str, key_header: str | None) -> dict[str, str]:
        """Returns the headers of the enqueue. A message without a dedupe id gets a random one."""
        h = frames.check_headers(self.headers)
        if self.key is not None:
            if key_header is None:
                raise ValueError("key needs a client with key_header, the queue's fairness_header; or set the header")
            h |= frames.check_headers({key_header: self.key})
        if self.delay is not None:
            h["Fila-Delay"] = frames.go_duration("delay", self.delay)
        if self.not_before is not None:
            h["Fila-Not-Before"] = frames.rfc3339("not_before", self.not_before)
        if self.ttl is not None:
            h["Nats-TTL"] = frames.go_duration("ttl", self.ttl)
        if self.dedupe_id is not None:
            h["Nats-Msg-Id"] = self.dedupe_id
        s = self.schedule
        if s is None:
            if not any(name.lower() == "nats-msg-id" for name in h):
                h["Nats-Msg-Id"] = uuid.uuid4().hex
            return h
        h |= {"Nats-Schedule": s.when, "Nats-Schedule-Target": queue, "Fila-Schedule-Name": s.name}
        if s.time_zone is not None:
            h["Nats-Schedule-Time-Zone"] = s.time_zone
        if s.missed is not None:
            h["Fila-Schedule-Missed"] = s.missed
        if s.ttl is not None:
            h["Nats-Schedule-TTL"] = frames.go_duration("ttl", s.ttl)
        return h


@dataclass(frozen=True)
class Receipt:
    """The confirmation of an enqueue: the message is on disk, or was acked before that.

    Of a duplicate, ``id`` is the id of the first message. Of a schedule, ``schedule`` is its name.
    """

    id: str
    queue: str
    duplicate: bool = False
    schedule: str = ""


@dataclass(frozen=True)
class BatchResult:
    """The outcome of a batch, by index: each message has a receipt or an error."""

    receipts: list[Receipt | None]
    refusals: dict[int, FilaError]

    def raise_first(self) -> None:
        """Raises the first error, if there is one."""
        if self.refusals:
            raise self.refusals[min(self.refusals)]


def retry_pause(error: FilaError, attempt: int, spread: float) -> float | None:
    """Returns how many seconds to wait after a failed attempt, counted from 1, or None to give up.

    spread, from 0 to 1, separates clients that failed at the same time.
    """
    if isinstance(error, Refused):
        if error.code not in (429, 500, 503) and error.err_code not in NUMBERS_TO_RETRY:
            return None
        if error.retry_after > 0:
            return error.retry_after * (1 + spread / 4)
    elif not isinstance(error, (NoFila, NoReply)):
        return None
    return float(min(RETRY_FIRST * 2 ** min(attempt - 1, 10), RETRY_MOST) * (1 + spread) / 2)


def check_queue(queue: str) -> str:
    if len(queue) > 132 or not _QUEUE.fullmatch(queue):
        raise ValueError(f"queue name {queue!r}: allowed are 1 to 128 of A-Za-z0-9_- with dots between non-empty parts")
    return queue


class Client:
    """Talks to one fila, or to one cluster. Make it with :meth:`connect`."""

    def __init__(
        self,
        nc: NATS,
        *,
        prefix: str = "fila",
        timeout: float = 5.0,
        retry_for: float = 10.0,
        key_header: str | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Uses a connection, which the caller closes.

        A request waits ``timeout`` seconds for its reply. What may be repeated is repeated for ``retry_for``
        seconds. ``key_header`` is the fairness_header of the queues, for ``key=`` of enqueues.
        """
        self.nc = nc
        self.prefix = prefix
        self.timeout = timeout
        self.retry_for = retry_for
        self.key_header = key_header
        self.codec: Codec = codec or JSONCodec()
        self.tracing = Tracing()
        self._owns_connection = False

    @classmethod
    async def connect(
        cls,
        servers: str | list[str] | NATS = "nats://127.0.0.1:4222",
        *,
        prefix: str = "fila",
        timeout: float = 5.0,
        retry_for: float = 10.0,
        key_header: str | None = None,
        codec: Codec | None = None,
        **options: Any,
    ) -> Client:
        """Connects to NATS and never gives up reconnecting.

        ``options`` are options of ``nats.connect``. An existing connection is used as it is.
        """
        owns = not isinstance(servers, NATS)
        if isinstance(servers, NATS):
            nc = servers
        else:
            options = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.25, **options}
            nc = await nats.connect(servers, **options)
        client = cls(nc, prefix=prefix, timeout=timeout, retry_for=retry_for, key_header=key_header, codec=codec)
        client._owns_connection = owns
        return client

    async def close(self) -> None:
        """Closes the connection, if connect made it."""
        if self._owns_connection and not self.nc.is_closed:
            await self.nc.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def enqueue(
        self,
        queue: str,
        payload: Any,
        *,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        dedupe_id: str | None = None,
        delay: Duration | None = None,
        not_before: datetime | None = None,
        ttl: Duration | None = None,
        schedule: Schedule | None = None,
        retry_for: float | None = None,
    ) -> Receipt:
        """Enqueues a message and returns when it is on disk.

        It repeats refusals with 429, 500 and 503, and requests without a reply, for ``retry_for`` seconds. That
        is safe, because the message has a dedupe id: yours, or else a random one. Calling enqueue again after an
        error is only safe with an id of your own.
        """
        message = NewMessage(payload, headers or {}, key, dedupe_id, delay, not_before, ttl, schedule)
        all_headers = message.all_headers(check_queue(queue), self.key_header)
        data = self.codec.encode(payload)
        with self.tracing.publish(queue, all_headers):
            msg = await self._repeat(lambda: self._request(f"enqueue.{queue}", data, all_headers), retry_for)
        reply: EnqueueReply = json.loads(msg.data)
        return Receipt(reply.get("id", ""), queue, reply.get("duplicate", False), reply.get("schedule", ""))

    async def enqueue_batch(
        self, queue: str, messages: Sequence[Any], *, retry_for: float | None = None
    ) -> BatchResult:
        """Enqueues many messages: payloads, or :class:`NewMessage` for more than a payload.

        fila accepts or refuses each message by itself. Refused messages are repeated as in :meth:`enqueue`; the
        errors that remain are in the result. Retried messages may be overtaken by later ones.
        """
        check_queue(queue)
        encoded = []
        for item in messages:
            message = item if isinstance(item, NewMessage) else NewMessage(item)
            if message.schedule is not None:
                raise ValueError("a batch takes no schedules: use enqueue")
            headers = message.all_headers(queue, self.key_header)
            self.tracing.inject(headers)
            encoded.append(frames.frame(headers, self.codec.encode(message.payload)))
        result = BatchResult([None] * len(encoded), {})
        for chunk in _chunks(encoded, self.nc.max_payload - HEADER_ROOM):
            await self._enqueue_chunk(queue, encoded, list(chunk), result, retry_for)
        return result

    async def _enqueue_chunk(
        self, queue: str, encoded: list[bytes], indexes: list[int], result: BatchResult, retry_for: float | None
    ) -> None:
        """Enqueues the messages with these indexes, and repeats what fails."""
        until = self._now() + (self.retry_for if retry_for is None else retry_for)
        attempt = 0
        while indexes:
            attempt += 1
            refusals: Mapping[int, FilaError]
            try:
                headers = {"Fila-Batch": str(len(indexes))}
                msg = await self._request(f"enqueue.{queue}", b"".join([encoded[i] for i in indexes]), headers)
                reply: BatchReply = json.loads(msg.data)
                refusals = frames.batch_refusals(reply)
                ids, duplicates = frames.batch_ids(reply, len(indexes)), set(reply.get("duplicates", ()))
                for at, index in enumerate(indexes):
                    if at not in refusals:
                        result.receipts[index] = Receipt(ids[at], queue, at in duplicates)
            except FilaError as error:
                refusals = dict.fromkeys(range(len(indexes)), error)
            pause, again, spread = 0.0, [], random.random()
            for at, refusal in sorted(refusals.items()):
                wait = retry_pause(refusal, attempt, spread)
                if wait is None or self._now() + wait > until:
                    result.refusals[indexes[at]] = refusal
                else:
                    again.append(indexes[at])
                    pause = max(pause, wait)
            indexes = again
            if indexes:
                await asyncio.sleep(pause)

    async def admin(self, verb: str, request: Mapping[str, Any] | None = None) -> Any:
        """Asks an admin verb, such as ``queue-create.orders``, and returns its reply."""
        return await self.call(f"admin.{verb}", request or {})

    async def call(self, subject: str, request: Mapping[str, Any], headers: dict[str, str] | None = None) -> Any:
        """Sends a request in JSON to a subject below the prefix and returns the reply."""
        return json.loads((await self._request(subject, json.dumps(request).encode(), headers)).data)

    async def _request(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> Msg:
        subject = f"{self.prefix}.{subject}"
        try:
            msg = await self.nc.request(subject, data, timeout=self.timeout, headers=headers)
        except nats.errors.NoRespondersError as e:
            raise NoFila(f"nobody listens on {subject}: no fila, or no such queue") from e
        except (nats.errors.TimeoutError, asyncio.TimeoutError) as e:
            raise NoReply(f"no reply in time on {subject}; whether it was done is not known") from e
        except nats.errors.OutboundBufferLimitError as e:
            raise NoFila(f"not sent on {subject}: the connection is down and its buffer is full") from e
        except nats.errors.MaxPayloadError as e:
            raise Refused(413, 10413, f"{len(data)} bytes are more than NATS allows: {self.nc.max_payload}") from e
        if error := parse_error(msg.headers, msg.data):
            raise error
        return msg

    async def _repeat(self, request: Callable[[], Awaitable[T]], retry_for: float | None = None) -> T:
        """Repeats a request that may be repeated, until it succeeds or the time is over."""
        until = self._now() + (self.retry_for if retry_for is None else retry_for)
        attempt = 0
        while True:
            attempt += 1
            try:
                return await request()
            except FilaError as error:
                pause = retry_pause(error, attempt, random.random())
                if pause is None or self._now() + pause > until:
                    raise
            await asyncio.sleep(pause)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _chunks(encoded: list[bytes], limit: int) -> Iterator[Iterable[int]]:
    """Yields indexes of messages that fit into a batch together."""
    first = size = 0
    for i, message in enumerate(encoded):
        if i > first and (size + len(message) > limit or i - first == frames.MAX_BATCH):
            yield range(first, i)
            first, size = i, 0
        size += len(message)
    if encoded:
        yield range(first, len(encoded))
