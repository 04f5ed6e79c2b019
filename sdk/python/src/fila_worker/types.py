"""Made by go test ./schemas/generator -update from the types of the server. Do not edit.

Fields of a class with ``total=False`` may be missing. Fields that end in _ms are milliseconds.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class BatchRefusal(TypedDict, total=False):
    """BatchRefusal is a refused message or ack of a batch."""

    # from 0
    index: int
    code: int
    err_code: int
    # description is given with the first refusal of each err_code.
    description: str
    # rounded up; 0: not known
    retry_after_ms: int


class BatchReply(TypedDict, total=False):
    """BatchReply is the reply to a batch of messages or of acks. Those that are not refused are on disk."""

    queue: str
    # ids are the ids of the messages, 16 bytes each, in base64url without padding. The id of a duplicate
    # is the id of the first message; a refused message has zeros. Acks have none.
    ids: str
    # duplicates are the messages whose Nats-Msg-Id is known, by their index from 0.
    duplicates: list[int]
    refused: list[BatchRefusal]
    # room is how many messages the queue would accept now; absent if it has no limit.
    room: int


class ConsumeReply(TypedDict, total=False):
    """ConsumeReply answers a ConsumeRequest."""

    # the subject of the deliveries
    deliver: str
    max_in_flight: int
    visibility_timeout_ms: int
    # the name was registered and is no longer
    left: bool


class ConsumerRequest(TypedDict, total=False):
    """ConsumerRequest is a request on fila.consumer.<consumer>.<queue>: a ConsumeRequest or one fetch."""

    consumer: str
    # 1 to 65536, default 64
    max_in_flight: int
    # 0 (for ever) to 365 days
    ttl_ms: int
    # of its deliveries: all (default) or min
    headers: Literal["", "all", "min"]
    # most messages in a delivery, 1 to 1000; 0: deliveries are no batches
    batch: int
    # most bytes of a batch, 4096 to 64 MiB, rounded down to a power of two; 0: as many as NATS allows
    batch_bytes: int
    # how long a batch that is not full waits for more, 0 to 1000
    batch_wait_ms: int
    # ends the registrations of the name
    leave: bool
    # a FetchRequest; absent: none
    fetch: FetchRequest


class EnqueueReply(TypedDict, total=False):
    """EnqueueReply confirms an enqueue: the message is on disk or finished."""

    # a UUID; of the first message if duplicate
    id: str
    queue: str
    duplicate: bool
    # Of an enqueue that made a schedule, which has no id. its name
    schedule: str
    # it replaced one of the same name
    replaced: bool
    # it existed already
    unchanged: bool
    # its first run, RFC 3339 in its time zone
    next: str


class ErrorBody(TypedDict):
    """ErrorBody is the JSON body of an error reply."""

    error: ErrorDetail


class ErrorDetail(TypedDict):
    """ErrorDetail is an error in an ErrorBody."""

    # the class, as in HTTP
    code: int
    # the stable number
    err_code: int
    # one line for people, which may change
    description: str


class FetchRequest(TypedDict, total=False):
    """FetchRequest asks for up to batch messages on the reply subject."""

    # 1 to 65536, default 1
    batch: int
    # 0 (do not wait) to an hour
    expires_ms: int
    # of the messages: all (default) or min
    headers: Literal["", "all", "min"]
    # messages that are there at once come as batches
    batched: bool


class GuardAnswer(TypedDict, total=False):
    """GuardAnswer answers a check."""

    allowed: bool
    # If allowed: the permit for done, and when it expires. probe says that the circuit is half-open and
    # this call is its probe.
    permit: str
    # RFC 3339
    expires_at: str
    # If allowed: the permit for done, and when it expires. probe says that the circuit is half-open and
    # this call is its probe.
    probe: bool
    # Otherwise: the gate and key that refuse it, and when to retry. circuit, rate, window, concurrency,
    # reserved, turn, paused or late; of a state also a key of [limits]
    gate: str
    key: str
    # rounded up; absent: unknown
    retry_after_ms: int
    # of a rate, window or concurrency
    limit: GuardLimit


class GuardAnswers(TypedDict):
    """GuardAnswers answers a check with Checks, in order."""

    answers: list[GuardAnswer]


# GuardAsk is one call to check. The first key is the destination: its circuit decides, and gets the
# outcome of the call. The limits of all keys must allow the call; otherwise it uses none of them.
GuardAsk = TypedDict(
    "GuardAsk",
    {
        # the first key, if it is not the subject's tail
        "key": "str",
        # further keys, at most seven
        "with": "list[str]",
        # for rates; 0.001 to 1e6, default 1
        "cost": "float",
        # how long the permit lives without a done: up to an hour, default 30 s
        "ttl_ms": "int",
    },
    total=False,
)


# GuardCheckRequest checks one call, or with checks several, independently.
GuardCheckRequest = TypedDict(
    "GuardCheckRequest",
    {
        # the first key, if it is not the subject's tail
        "key": "str",
        # further keys, at most seven
        "with": "list[str]",
        # for rates; 0.001 to 1e6, default 1
        "cost": "float",
        # how long the permit lives without a done: up to an hour, default 30 s
        "ttl_ms": "int",
        # up to 64 bytes; the done must name the same
        "caller": "str",
        # up to 100, instead of the fields of GuardAsk
        "checks": "list[GuardAsk]",
    },
    total=False,
)


class GuardDoneRequest(TypedDict, total=False):
    """GuardDoneRequest reports the outcome of a call."""

    # the first key, if it is not the subject's tail
    key: str
    permit: str
    # as in the check
    caller: str
    # ok or error
    outcome: Literal["ok", "error"]
    # cost is the actual cost of the call, 0 to 1e6, in place of the estimate of the check. 0 counts as
    # 0.001. Absent: the estimate stands.
    cost: float
    # remaining is the cost that the destination still admits, from 0 to 1e12, and reset_ms the time until
    # it admits more, for throttle keys that learn their limits.
    remaining: float
    # remaining is the cost that the destination still admits, from 0 to 1e12, and reset_ms the time until
    # it admits more, for throttle keys that learn their limits.
    reset_ms: int
    # Of an error.
    error_code: str
    error: str
    # the destination's Retry-After
    retry_after_ms: int
    # number of calls for the same work, this one included; default 1
    attempt: int
    # a [[retry_policy]], unless an error rule names one; empty: the default of queues
    retry_policy: str


class GuardLimit(TypedDict, total=False):
    """GuardLimit is the state of one limit."""

    key: str
    # rate, window or concurrency; of a state's answer also a key of [limits]
    gate: str
    # calls of cost 1 at once, or in the window
    limit: int
    # now
    remaining: int
    # seconds until it is full again if unused, rounded up
    reset_s: int
    # the same as Unix time in seconds
    reset_epoch: int
    window_ms: int


class GuardVerdict(TypedDict, total=False):
    """GuardVerdict answers a done."""

    # reported before: the first outcome counts
    duplicate: bool
    # Of an error: the judgement of the rules. low, medium, high or critical
    severity: str
    rule: str
    description: str
    retry: bool
    # until the retry, rounded up
    delay_ms: int
    # after this attempt; absent: unlimited
    retries_left: int
