"""Spans of OpenTelemetry, if it is installed. Without it this module imports nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import SpanKind, Tracer


class Tracing:
    """The spans of a client: one for each publish and one for each attempt.

    It uses the tracer provider that is set when the client is made; without one it does nothing.
    """

    def __init__(self) -> None:
        self._tracer: Tracer | None = None
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            return
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return  # the application has configured none
        self._tracer = trace.get_tracer("fila_worker")
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()

    @property
    def enabled(self) -> bool:
        return self._tracer is not None

    def inject(self, headers: dict[str, str]) -> None:
        """Sets traceparent to the current span, unless the headers have one."""
        if self._tracer is not None and not any(name.lower() == "traceparent" for name in headers):
            self._propagator.inject(headers)

    @contextmanager
    def publish(self, queue: str, headers: dict[str, str]) -> Iterator[None]:
        """Makes a span for a publish and sets its traceparent."""
        if self._tracer is None:
            yield
            return
        with self._span(self._tracer, "publish", "send", queue, self._trace.SpanKind.PRODUCER, {}, {}):
            self.inject(headers)
            yield

    @contextmanager
    def process(self, queue: str, headers: Mapping[str, str], id_: str, attempt: int) -> Iterator[None]:
        """Makes a span for an attempt, with a link to the span of the producer."""
        if self._tracer is None:
            yield
            return
        lower = {name.lower(): value for name, value in headers.items()}
        producer = {name: lower[name] for name in self._propagator.fields if name in lower}
        attributes: dict[str, str | int] = {
            "messaging.message.id": id_,
            "fila.key": lower.get("fila-key", ""),
            "fila.attempt": attempt,
        }
        with self._span(self._tracer, "process", "process", queue, self._trace.SpanKind.CONSUMER, producer, attributes):
            yield

    @contextmanager
    def _span(
        self, tracer: Tracer, name: str, kind: str, queue: str, span_kind: SpanKind,
        producer: dict[str, str], attributes: Mapping[str, str | int],
    ) -> Iterator[None]:  # fmt: skip
        links = []
        if producer:
            context = self._trace.get_current_span(self._propagator.extract(producer)).get_span_context()
            if context.is_valid:
                links = [self._trace.Link(context)]
        all_attributes = {
            "messaging.system": "fila",
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.destination.name": queue,
            **attributes,
        }
        with tracer.start_as_current_span(f"{name} {queue}", kind=span_kind, attributes=all_attributes, links=links):
            yield
