import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { context, trace, SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Worker, type Client } from "../src/index.js";
import { Fila } from "../src/testing.js";
import { drained } from "./util.js";

const exporter = new InMemorySpanExporter();
let fila: Fila;
let client: Client;

before(async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
  fila = await Fila.start();
  client = await fila.client();
});
after(async () => {
  await client?.close();
  await fila?.stop();
});

test("spans of enqueues and attempts", async () => {
  await client.ensureQueue("traced", { retry_initial_ms: 0, fairness_header: "tenant" });
  const handled: string[] = [];
  const worker = new Worker(client, "traced", (m) => {
    handled.push(trace.getActiveSpan()!.spanContext().spanId);
    if (m.attempt === 1) throw new TypeError("not now");
  });
  await worker.start();
  const { id } = await client.enqueue("traced", 1, { headers: { tenant: "acme" } });
  await client.enqueueBatch("traced", []);
  await drained(fila, "traced");
  await worker.stop();

  const spans = exporter.getFinishedSpans();
  const publish = spans.find((s) => s.name === "publish traced")!;
  const attempts = spans.filter((s) => s.name === "process traced");
  assert.equal(publish.kind, SpanKind.PRODUCER);
  assert.deepEqual(attempts.map((s) => s.spanContext().spanId), handled);
  assert.deepEqual(attempts.map((s) => s.attributes["fila.attempt"]), [1, 2]);
  assert.deepEqual(attempts.map((s) => s.status.code), [SpanStatusCode.ERROR, SpanStatusCode.UNSET]);
  assert.equal(attempts[0]!.attributes["error.type"], "TypeError");
  for (const s of attempts) {
    assert.deepEqual([s.kind, s.attributes["messaging.message.id"], s.attributes["fila.key"]], [SpanKind.CONSUMER, id, "acme"]);
    assert.deepEqual([s.links[0]!.context.traceId, s.links[0]!.context.spanId], [publish.spanContext().traceId, publish.spanContext().spanId]);
  }
});

test("the messages of a batch carry the active span, and a traceparent of the producer stays", async () => {
  await client.ensureQueue("carried");
  const theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const seen: string[] = [];
  const worker = new Worker(client, "carried", (m) => void seen.push(m.headers.get("traceparent")), { batch: 10 });
  const spanId = await trace.getTracer("test").startActiveSpan("caller", async (span) => {
    await client.enqueueBatch("carried", [{ payload: 1 }, { payload: 2, headers: { traceparent: theirs } }]);
    span.end();
    return span.spanContext().spanId;
  });
  await worker.start();
  await drained(fila, "carried");
  await worker.stop();
  assert.equal(seen[0]!.split("-")[2], spanId);
  assert.equal(seen[1], theirs);
});
