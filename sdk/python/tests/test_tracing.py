"""Spans of OpenTelemetry, with the package and without it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fila_worker import Client, Message, NewMessage, Worker
from fila_worker.tracing import Tracing

from .conftest import MakeQueue


def span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


async def test_spans(client: Client, queue: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    q = await queue(max_deliveries=2, retry_initial_ms=0)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert not client.tracing.enabled  # no provider is set
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    client.tracing = Tracing()
    inside: list[int] = []

    async def handle(message: Message) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        raise ValueError("bad")

    with provider.get_tracer("test").start_as_current_span("request") as request:
        receipt = await client.enqueue(q.name, b"", key="acme")
        (await client.enqueue_batch(q.name, [NewMessage(b"")])).raise_first()
    async with Worker(client, q.name, handle):
        await q.drained()
    spans = exporter.get_finished_spans()
    (publish,) = [s for s in spans if s.name == f"publish {q.name}"]
    parent = request.get_span_context().span_id
    assert publish.parent is not None
    assert publish.parent.span_id == parent
    attempts = [s for s in spans if s.name == f"process {q.name}"]
    assert sorted(span_id(s) for s in attempts) == sorted(inside)
    ours = [s for s in attempts if (s.attributes or {})["messaging.message.id"] == receipt.id]
    assert [(s.attributes or {})["fila.attempt"] for s in ours] == [1, 2]
    for span in ours:
        assert (span.attributes or {})["fila.key"] == "acme"
        assert span.status.status_code is trace.StatusCode.ERROR
        assert [link.context.span_id for link in span.links] == [span_id(publish)]
    others = [s for s in attempts if s not in ours]
    assert {link.context.span_id for s in others for link in s.links} == {parent}


def test_without_opentelemetry() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None  # not installed
import fila_worker, fila_worker.tracing
tracing = fila_worker.tracing.Tracing()
headers = {}
with tracing.publish("orders", headers), tracing.process("orders", headers, "id", 1):
    assert not tracing.enabled and headers == {}
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    imports = "import sys, fila_worker; sys.exit(any(m.startswith('opentelemetry') for m in sys.modules))"
    subprocess.run([sys.executable, "-c", imports], check=True)
