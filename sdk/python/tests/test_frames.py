"""Bytes of the protocol, compared with golden.json, which the server makes."""

from __future__ import annotations

import json
import math
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fila_worker import Dead, Done, NewMessage, Refused, Retry, Schedule, frames
from fila_worker.client import HEADER_ROOM, JSONCodec, _chunks, check_queue, retry_pause
from fila_worker.errors import GuardRefused, NoFila, NoReply, parse_error
from fila_worker.guard import _legal_tail
from fila_worker.outcomes import answer_of

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "golden.json").read_text())
ID = "01981c2e-0000-7000-8000-000000000001"


class CodedError(Exception):
    code = "E42"
    retry_after = 30.0


def test_batch() -> None:
    assert (frames.frame({"tenant": "acme"}, b'{"n":1}') + frames.frame({}, b"")).hex() == GOLDEN["batch"]


def test_deliveries() -> None:
    batch = bytes.fromhex(GOLDEN["delivered"])
    first, second = frames.parse_deliveries(batch, 2)
    assert first == (ID, 1, {"Fila-Key": "ümlaut: a"}, b"one")
    assert second == (ID, 300, {}, b"")
    for end in range(len(batch)):
        with pytest.raises(ValueError, match="ends within delivery"):
            list(frames.parse_deliveries(batch[:end], 2))
    with pytest.raises(ValueError, match="1 bytes follow the 2 deliveries"):
        list(frames.parse_deliveries(batch + b"x", 2))


def test_batch_reply() -> None:
    reply = json.loads(GOLDEN["reply"])
    assert frames.batch_ids(reply, 3)[0] == ID
    refusals = frames.batch_refusals(reply)
    assert sorted(refusals) == [1, 2]
    for refusal in refusals.values():
        assert (refusal.code, refusal.err_code, refusal.retry_after) == (429, 10429, 1.5)
        assert refusal.description == 'queue "orders" is full'  # also of the second one, which comes without
    with pytest.raises(ValueError, match="48 bytes of ids for 4 messages"):
        frames.batch_ids(reply, 4)


def test_error_reply() -> None:
    headers = {name: values[0] for name, values in GOLDEN["error"]["headers"].items()}
    error = parse_error(headers, GOLDEN["error"]["body"].encode())
    assert isinstance(error, Refused)
    assert (error.code, error.err_code, error.retry_after) == (429, 10429, 1.5)
    other = parse_error({"Nats-Service-Error-Code": "no number", "Nats-Service-Error": "text"}, b"no JSON")
    assert isinstance(other, Refused)
    assert (other.code, other.err_code, other.description) == (500, 0, "text")
    assert isinstance(parse_error({"Status": "503"}, b""), NoFila)
    assert parse_error({"Fila-Id": "x"}, b"") is None
    assert parse_error(None, b"") is None


@pytest.mark.parametrize(
    ("outcome", "payload"),
    [
        (None, "+ACK"),
        (Done(), "+ACK"),
        (Done(cost=3120.5), '+ACK {"cost": 3120.5}'),
        (Done(12, 4000, 0.8005), '+ACK {"cost": 12, "remaining": 4000, "reset_ms": 801}'),
        (Retry("too many", code="429", cost=0, remaining=0), None),
        (CodedError("timeout"), None),
        (Retry("timeout", code="E42", delay=1.5, retry_after=timedelta(seconds=30)), None),
        (Retry("the worker stopped", code="stopped", delay=0), None),
        (Retry("ü😀"), '-NAK {"error": "\\u00fc\\ud83d\\ude00"}'),
        (Dead("the order\ris cancelled", code="E7"), '+TERM {"error": "the order\\ris cancelled", "code": "E7"}'),
        (Dead(code="E7"), '+TERM {"code": "E7"}'),
        (Dead(), "+TERM"),
    ],
)
def test_answers(outcome: object, payload: str | None) -> None:
    """The server understands each answer as golden.json says."""
    answer = answer_of(outcome)
    if isinstance(outcome, CodedError):
        assert json.loads(answer[5:]) == {
            "error": "timeout",
            "code": "E42",
            "delay": "30s",
            "retry_after_ms": 30000,
        }
        return
    assert answer.decode() in [a["payload"] for a in GOLDEN["acks"]]
    if payload is not None:
        assert answer.decode() == payload


def test_answer_lines() -> None:
    nack = frames.nack("timeout", "E42")
    answers = [(i, b"+ACK") for i in range(62)] + [(62, nack), (63, frames.term("bad"))]
    assert frames.ack_lines(answers).decode() == GOLDEN["batch_ack"]["payload"]
    assert frames.ack_lines([(0, b"+ACK"), (2, b"+ACK")]) == b"0 +ACK\n2 +ACK\n"


def test_errors_of_handlers() -> None:
    def nack_of(error: object) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(answer_of(error)[5:])
        return fields

    class Code(Exception):
        def __init__(self, code: object, retry_after: object = None) -> None:
            self.code, self.retry_after = code, retry_after

    assert nack_of(ValueError("bad")) == {"error": "bad", "code": "ValueError"}
    assert nack_of(ValueError()) == {"error": "ValueError", "code": "ValueError"}
    assert nack_of(Code(429, 2)) == {"error": "(429, 2)", "code": "429", "delay": "2s", "retry_after_ms": 2000}
    for code in (True, "", None, lambda: 5):
        assert nack_of(Code(code))["code"] == "Code"
    for after in (True, "2", -1, math.nan, math.inf, 1e12, 0):
        assert "delay" not in nack_of(Code("x", after))
    assert len(answer_of(ValueError("x" * 100_000))) < 2000
    # fila's own refusals delay the message and leave its circuit alone.
    guarded = nack_of(GuardRefused({"allowed": False, "gate": "rate", "key": "k", "retry_after_ms": 120}))
    assert (guarded["delay"], "retry_after_ms" in guarded) == ("0.12s", False)
    for wrong in (1, "done", Retry, object()):
        with pytest.raises(TypeError, match="allowed are None, Done, Retry and Dead"):
            answer_of(wrong)


@pytest.mark.parametrize("cost", [-1, math.nan, math.inf, 1_000_001])
def test_bad_cost(cost: float) -> None:
    with pytest.raises(ValueError, match="allowed are 0 to 1000000"):
        answer_of(Done(cost))
    with pytest.raises(ValueError, match=r"cost is .*: allowed are 0 to 1000000"):
        Retry(cost=cost)


def test_bad_feedback() -> None:
    for remaining in (-1, math.nan, 1e13):
        with pytest.raises(ValueError, match=r"remaining is .*: allowed are 0 to 1000000000000"):
            answer_of(Done(remaining=remaining))
    with pytest.raises(ValueError, match="reset is given without remaining"):
        Retry(reset=1)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, timedelta(days=-1), timedelta(days=366)])
def test_bad_delay(delay: float | timedelta) -> None:
    with pytest.raises(ValueError, match=r"delay is .*: allowed are 0 to 31536000 seconds"):
        Retry(delay=delay)


def test_durations() -> None:
    durations: list[tuple[frames.Duration, str]] = [
        (0, "0s"),
        (30, "30s"),
        (1.5, "1.5s"),
        (timedelta(days=1), "86400s"),
        (1e-9, "0.000000001s"),
    ]
    for duration, text in durations:
        assert frames.go_duration("delay", duration) == text


def test_headers_of_an_enqueue() -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    message = NewMessage(b"", headers={"a": "b\r\nc"}, key="acme", dedupe_id="1", delay=1, not_before=at, ttl=60)
    assert message.all_headers("orders", "tenant") == {
        "a": "b  c", "tenant": "acme", "Fila-Delay": "1s", "Fila-Not-Before": "2030-01-02T03:04:05+00:00",
        "Nats-TTL": "60s", "Nats-Msg-Id": "1",
    }  # fmt: skip
    first, second = (NewMessage(b"").all_headers("orders", None)["Nats-Msg-Id"] for _ in range(2))
    assert first and first != second
    assert NewMessage(b"", headers={"nats-msg-id": "x"}).all_headers("orders", None) == {"nats-msg-id": "x"}
    schedule = Schedule("nightly", "0 30 2 * * *", "Europe/Berlin", "all", 60)
    assert NewMessage(b"", schedule=schedule).all_headers("orders", None) == {
        "Nats-Schedule": "0 30 2 * * *", "Nats-Schedule-Target": "orders", "Nats-Schedule-Time-Zone": "Europe/Berlin",
        "Nats-Schedule-TTL": "60s", "Fila-Schedule-Name": "nightly", "Fila-Schedule-Missed": "all",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (NewMessage(b"", headers={"a b": "c"}), "header name 'a b'"),
        (NewMessage(b"", headers={"a\r\nb": "c"}), "header name"),
        (NewMessage(b"", headers={"": "c"}), "header name ''"),
        (NewMessage(b"", key="acme"), "key needs a client with key_header"),
        (NewMessage(b"", not_before=datetime(2030, 1, 1)), "a datetime with a time zone is expected"),
        (NewMessage(b"", ttl=-1), "ttl is -1"),
    ],
)
def test_bad_enqueues(message: NewMessage, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        message.all_headers("orders", None)


def test_retry_pause() -> None:
    def refused(code: int, retry_after: float = 0.0) -> Refused:
        return Refused(code % 1000, code, "", retry_after)

    assert retry_pause(refused(10429, 2.0), 1, 0.0) == 2.0
    assert retry_pause(refused(10429, 2.0), 1, 1.0) == 2.5
    for error in (refused(10429), refused(10503), refused(10500), refused(20409), NoFila(), NoReply()):
        pauses = [retry_pause(error, attempt, 1.0) for attempt in range(1, 9)]
        assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        assert retry_pause(error, 10**9, 0.0) == 1.0
    for error in (refused(10400), refused(10404), refused(10413), refused(10409)):
        assert retry_pause(error, 1, 0.5) is None


def test_chunks_keep_order_and_limits() -> None:
    rng = random.Random(1)
    for _ in range(200):
        encoded = [bytes(rng.randrange(400)) for _ in range(rng.randrange(2500))]
        limit = rng.choice([100, 10_000, 10_000_000])
        chunks = [list(chunk) for chunk in _chunks(encoded, limit)]
        assert [i for chunk in chunks for i in chunk] == list(range(len(encoded)))
        for chunk in chunks:
            assert 1 <= len(chunk) <= 1000
            assert len(chunk) == 1 or sum(len(encoded[i]) for i in chunk) <= limit
    assert HEADER_ROOM == 8192


def test_names() -> None:
    for good in ("orders", "a.b-c_D.dlq", "x" * 128):
        assert check_queue(good) == good
    for bad in ("", ".", "a..b", "a b", "a*", "ü", "x" * 133, "a\n"):
        with pytest.raises(ValueError, match="queue name"):
            check_queue(bad)
    for key in ("vendor:stripe", "a.b", "tenant:*"):
        assert _legal_tail(key)
    for key in ("", "a b", "a.*", "a>", ".a", "x" * 600, "a\tb"):
        assert not _legal_tail(key)


def test_json_codec() -> None:
    codec = JSONCodec()
    assert codec.encode(b"\x00") == b"\x00"
    assert codec.encode({"a": 1}) == b'{"a":1}'
    assert codec.decode(codec.encode([1, "ü"])) == [1, "ü"]
    with pytest.raises(ValueError, match="Out of range float"):
        codec.encode(math.nan)
