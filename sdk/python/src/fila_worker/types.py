"""Requests and replies of fila as they are in JSON.

Names and fields equal the protocol. Fields of a class with ``total=False`` may be missing.
"""

from __future__ import annotations

from typing import TypedDict


class ErrorDetail(TypedDict):
    code: int
    err_code: int
    description: str


class ErrorReply(TypedDict):
    error: ErrorDetail


class EnqueueReply(TypedDict, total=False):
    id: str
    queue: str
    duplicate: bool
    schedule: str
    replaced: bool
    unchanged: bool
    next: str


class BatchRefusal(TypedDict, total=False):
    index: int
    code: int
    err_code: int
    description: str
    retry_after_ms: int


class BatchReply(TypedDict, total=False):
    queue: str
    ids: str
    duplicates: list[int]
    refused: list[BatchRefusal]
    room: int


class ConsumeRequest(TypedDict, total=False):
    consumer: str
    max_in_flight: int
    ttl_ms: int
    headers: str
    batch: int
    batch_bytes: int
    batch_wait_ms: int
    leave: bool


class ConsumeReply(TypedDict, total=False):
    deliver: str
    max_in_flight: int
    visibility_timeout_ms: int
    left: bool


GuardCheckRequest = TypedDict(
    "GuardCheckRequest",
    {"key": str, "with": list[str], "cost": float, "ttl_ms": int, "caller": str},
    total=False,
)


class GuardLimit(TypedDict, total=False):
    key: str
    gate: str
    limit: int
    remaining: int
    reset_s: int
    reset_epoch: int
    window_ms: int


class GuardAnswer(TypedDict, total=False):
    allowed: bool
    permit: str
    expires_at: str
    probe: bool
    gate: str
    key: str
    retry_after_ms: int
    limit: GuardLimit


class GuardDoneRequest(TypedDict, total=False):
    key: str
    permit: str
    caller: str
    outcome: str
    error_code: str
    error: str
    retry_after_ms: int
    attempt: int
    retry_policy: str


class GuardVerdict(TypedDict, total=False):
    duplicate: bool
    severity: str
    rule: str
    description: str
    retry: bool
    delay_ms: int
    retries_left: int
