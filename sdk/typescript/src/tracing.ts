import type { MsgHdrs } from "@nats-io/transport-node";
import type * as otel from "@opentelemetry/api";
import type { Message } from "./message.js";

const traceparent = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/**
 * Spans by the semantic conventions of OpenTelemetry for messaging, if @opentelemetry/api is
 * installed and the program has registered a tracer provider.
 */
export class Tracing {
  #tracer: otel.Tracer | undefined;

  private constructor(private readonly api: typeof otel | undefined) {}

  static async load(): Promise<Tracing> {
    return new Tracing(await import("@opentelemetry/api").catch(() => undefined)); // undefined: it is not installed
  }

  /** The tracer, once the program has registered a provider. */
  get tracer(): otel.Tracer | undefined {
    return (this.#tracer ??= (this.api?.trace.getTracerProvider() as otel.ProxyTracerProvider | undefined)?.getDelegateTracer("fila-worker"));
  }

  /** Sets traceparent and tracestate to the active span, unless the message has a traceparent. */
  inject(h: MsgHdrs): void {
    const span = this.api?.trace.getSpanContext(this.api.context.active());
    if (!span || !this.api!.isSpanContextValid(span) || h.get("traceparent") !== "") return;
    h.set("traceparent", `00-${span.traceId}-${span.spanId}-${span.traceFlags.toString(16).padStart(2, "0")}`);
    const state = span.traceState?.serialize();
    if (state) h.set("tracestate", state);
  }

  /** Runs an enqueue in a span whose context the message carries. */
  publishing<R>(queue: string, h: MsgHdrs, bytes: number, fn: () => Promise<R>): Promise<R> {
    const tracer = this.tracer;
    if (!tracer) return fn();
    const attributes = { ...operation("publish", "send", queue), "messaging.message.body.size": bytes };
    return tracer.startActiveSpan(`publish ${queue}`, { kind: this.api!.SpanKind.PRODUCER, attributes }, (span) => {
      this.inject(h);
      return this.#ended(span, fn);
    });
  }

  /** Runs an attempt in a span with a link to the span of the enqueue. */
  processing<R>(worker: string, m: Message<any>, fn: () => R | Promise<R>): R | Promise<R> {
    const tracer = this.tracer;
    if (!tracer) return fn();
    const attributes = {
      ...operation("process", "process", m.queue), "messaging.consumer.group.name": worker, "messaging.message.id": m.id,
      "messaging.message.body.size": m.data.length, "fila.key": m.key, "fila.attempt": m.attempt,
    };
    const [, traceId, spanId, flags] = traceparent.exec(m.headers.get("traceparent")) ?? [];
    const links = traceId && spanId && flags ? [{ context: { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true } }] : [];
    return tracer.startActiveSpan(`process ${m.queue}`, { kind: this.api!.SpanKind.CONSUMER, attributes, links }, (span) => this.#ended(span, fn));
  }

  async #ended<R>(span: otel.Span, fn: () => R | Promise<R>): Promise<R> {
    try {
      const value = await fn();
      if (value instanceof Error) this.#failed(span, value);
      return value;
    } catch (error) {
      this.#failed(span, error);
      throw error;
    } finally {
      span.end();
    }
  }

  #failed(span: otel.Span, error: unknown): void {
    span.setAttribute("error.type", error instanceof Error ? error.name : "_OTHER");
    span.setStatus({ code: this.api!.SpanStatusCode.ERROR, message: error instanceof Error ? error.message : String(error) });
  }
}

function operation(name: string, type: string, queue: string): otel.Attributes {
  return { "messaging.system": "fila", "messaging.operation.name": name, "messaging.operation.type": type, "messaging.destination.name": queue };
}
