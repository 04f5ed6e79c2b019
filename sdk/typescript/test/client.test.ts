import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "@nats-io/transport-node";
import { Client, FilaError, NoFilaError, Worker, type Message } from "../src/index.js";
import { Fila } from "../src/testing.js";
import { drained, until } from "./util.js";

let fila: Fila;
let client: Client;

before(async () => {
  fila = await Fila.start();
  client = await fila.client();
});
after(async () => {
  await client?.close();
  await fila?.stop();
});

/** Receives n messages of a queue. */
async function receive(queue: string, n: number): Promise<Message[]> {
  const all: Message[] = [];
  const worker = new Worker(client, queue, (m) => void all.push(m), { concurrency: 100 });
  await worker.start();
  await until(`${n} messages`, () => all.length >= n);
  await worker.stop();
  return all;
}

test("a message arrives with payload, headers and times", async () => {
  const settings = await client.ensureQueue("plain", { fairness_header: "tenant" });
  assert.equal(settings.fairness_header, "tenant");
  const receipt = await client.enqueue("plain", { id: 1, name: "Jürgen ✓" }, { headers: { tenant: "acme", "x-note": "ü" } });
  assert.match(receipt.id, /^[0-9a-f-]{36}$/);
  assert.deepEqual([receipt.queue, receipt.duplicate], ["plain", false]);
  await client.enqueue("plain", Buffer.from([0, 255]), { headers: { tenant: "acme" } });
  const [first, second] = await receive("plain", 2);
  assert.deepEqual(first!.payload, { id: 1, name: "Jürgen ✓" });
  assert.deepEqual([first!.id, first!.queue, first!.attempt, first!.key], [receipt.id, "plain", 1, "acme"]);
  assert.equal(first!.headers.get("x-note"), "ü");
  assert.ok(first!.enqueuedAt! < first!.deadline!);
  assert.deepEqual([...second!.data], [0, 255]);
});

test("a message with a known dedupe id is not stored again", async () => {
  await client.ensureQueue("dedupe");
  const first = await client.enqueue("dedupe", 1, { dedupeId: "order-1" });
  const second = await client.enqueue("dedupe", 2, { dedupeId: "order-1" });
  assert.deepEqual([second.id, second.duplicate], [first.id, true]);
  await client.enqueue("dedupe", 3);
  await client.enqueue("dedupe", 3); // each call has an id of its own
  assert.equal((await fila.admin("queue-inspect", "dedupe")).pending, 3);
});

test("delay, not before and TTL", async () => {
  await client.ensureQueue("times");
  await client.enqueue("times", "delayed", { delay: 3600_000 });
  await client.enqueue("times", "later", { notBefore: new Date(Date.now() + 3600_000) });
  await client.enqueue("times", "short", { ttl: 1000 });
  assert.deepEqual((({ pending, delayed }) => ({ pending, delayed }))(await fila.admin("queue-inspect", "times")), { pending: 1, delayed: 2 });
  const dead = await until("the dead letter", async () => (await fila.admin<{ messages: { dead: { reason: string } }[] }>("peek", "times.dlq")).messages[0]);
  assert.equal(dead.dead.reason, "expired");
  await assert.rejects(client.enqueue("times", 1, { delay: -1 }), /delay is -1: allowed are 0 to/);
  await assert.rejects(client.enqueue("times", 1, { ttl: 10 }), /ttl is 10: allowed are 1000 to/);
});

test("an enqueue can make a schedule", async () => {
  await client.ensureQueue("reports");
  const made = await client.enqueue("reports", { report: "sales" }, { schedule: { name: "often", when: "@every 1s" }, headers: { tenant: "acme" } });
  assert.deepEqual([made.schedule, made.id], ["often", ""]);
  const again = await client.enqueue("reports", { report: "sales" }, { schedule: { name: "often", when: "@every 1s" }, headers: { tenant: "acme" } });
  assert.equal(again.unchanged, true);
  const [m] = await receive("reports", 1);
  assert.deepEqual(m!.payload, { report: "sales" });
  assert.equal(m!.headers.get("Fila-Schedule"), "often");
  await fila.admin("schedule-delete", "reports", { name: "often" });
});

test("a refusal that no retry helps is thrown at once", async () => {
  await client.ensureQueue("strict", { fairness_header: "tenant" });
  await assert.rejects(client.enqueue("strict", 1, { headers: { "Fila-Id": "x" } }), (e) => e instanceof FilaError && e.code === 400 && e.errCode === 38400);
  await assert.rejects(client.enqueue("strict", 1, { headers: { tenant: "x".repeat(300) } }), (e) => e instanceof FilaError && e.errCode === 37400);
  await assert.rejects(client.enqueue("strict", Buffer.alloc(2 << 20)), (e) => e instanceof FilaError && e.errCode === 10413);
  await assert.rejects(client.enqueue("no queue", 1), /allowed are 1 to 128 bytes/);
  await assert.rejects(client.enqueue("no-queue", 1, { retryFor: 200 }), NoFilaError);
  await assert.rejects(client.admin("queue-inspect", "no-queue"), (e) => e instanceof FilaError && e.errCode === 10404);
});

test("an enqueue waits for room in a full queue", async () => {
  await client.ensureQueue("full", { max_depth: 1 });
  await client.enqueue("full", 1);
  await assert.rejects(client.enqueue("full", 2, { retryFor: 0 }), (e) => e instanceof FilaError && e.errCode === 10429);
  const waiting = client.enqueue("full", 2, { retryFor: 60_000 });
  const first = await Promise.race([waiting, sleep(200).then(() => undefined)]);
  assert.equal(first, undefined);
  const got = receive("full", 2);
  await waiting;
  assert.deepEqual((await got).map((m) => m.payload), [1, 2]);
});

test("a signal ends the retries", async () => {
  await client.ensureQueue("aborted", { max_depth: 1 });
  await client.enqueue("aborted", 1);
  const controller = new AbortController();
  const waiting = client.enqueue("aborted", 2, { retryFor: 60_000, signal: controller.signal });
  setTimeout(() => controller.abort(), 50);
  await assert.rejects(waiting, { name: "AbortError" });
});

test("a batch: each message is accepted or refused by itself", async () => {
  await client.ensureQueue("batch", { fairness_header: "tenant" });
  const messages = Array.from({ length: 2500 }, (_, i) => ({ payload: i, headers: { tenant: i === 1700 ? "x".repeat(300) : `t${i % 5}` }, dedupeId: i === 2400 ? "m-0" : `m-${i}` }));
  const { receipts, refused } = await client.enqueueBatch("batch", messages);
  assert.deepEqual(refused.map((r) => [r.index, (r.error as FilaError).errCode]), [[1700, 37400]]);
  assert.equal(receipts.length, 2500);
  assert.equal(receipts[1700], undefined);
  assert.deepEqual([receipts[2400]!.duplicate, receipts[2400]!.id], [true, receipts[0]!.id]);
  assert.equal(new Set(receipts.map((r) => r?.id)).size, 2499);
  assert.equal((await fila.admin("queue-inspect", "batch")).pending, 2498);
  const got = await receive("batch", 2498);
  assert.deepEqual(got.map((m) => m.payload as number).sort((a, b) => a - b), Array.from({ length: 2500 }, (_, i) => i).filter((i) => i !== 1700 && i !== 2400));
  assert.deepEqual(await client.enqueueBatch("batch", []), { receipts: [], refused: [] });
});

test("a batch: refusals by a limit are retried, and reported in the end", async () => {
  await client.ensureQueue("narrow", { max_depth: 10 });
  const messages = Array.from({ length: 15 }, (_, i) => ({ payload: i }));
  const { refused } = await client.enqueueBatch("narrow", messages, { retryFor: 0 });
  assert.deepEqual(refused.map((r) => r.index), [10, 11, 12, 13, 14]);
  assert.ok(refused.every((r) => (r.error as FilaError).code === 429));
  const waiting = client.enqueueBatch("narrow", messages, { retryFor: 60_000 });
  assert.equal((await receive("narrow", 25)).length, 25);
  const result = await waiting;
  assert.deepEqual(result.refused, []);
  assert.ok(result.receipts.every((r) => r && !r.duplicate));
});

test("a batch: one message that is too large does not stop the others", async () => {
  await client.ensureQueue("large");
  const { refused } = await client.enqueueBatch<unknown>("large", [{ payload: 1 }, { payload: Buffer.alloc(2 << 20) }, { payload: Buffer.alloc(300_000) }, { payload: 4 }]);
  assert.deepEqual(refused.map((r) => [r.index, (r.error as FilaError).errCode]), [[1, 10413]]);
  assert.equal((await fila.admin("queue-inspect", "large")).pending, 3);
});

test("ensureQueue changes the settings of a queue that exists", async () => {
  await client.ensureQueue("grows", { max_deliveries: 3 });
  await client.ensureQueue("grows", { max_deliveries: 3 });
  assert.equal((await client.ensureQueue("grows", { max_deliveries: 5 })).max_deliveries, 5);
});

test("a codec and a connection of one's own", async () => {
  const nc = await connect({ servers: fila.url });
  const text = { encode: (s: string) => Buffer.from(s), decode: (data: Uint8Array) => Buffer.from(data).toString() };
  const own = await Client.connect(nc, { codec: text });
  await own.ensureQueue("text");
  await own.enqueue("text", "plain text");
  const got: string[] = [];
  const worker = new Worker<string>(own, "text", (m) => void got.push(m.payload));
  await worker.start();
  await drained(fila, "text");
  await worker.stop();
  await own.close();
  assert.deepEqual(got, ["plain text"]);
  assert.equal(nc.isClosed(), false);
  await nc.close();
});

test("an enqueue survives a crash of fila, and is stored once", async () => {
  const crashing = await Fila.start();
  const c = await crashing.client({ retryFor: 60_000 });
  await c.ensureQueue("crash");
  const sent = Array.from({ length: 200 }, (_, i) => sleep(i).then(() => c.enqueue("crash", i)));
  await Promise.all(sent.slice(0, 50));
  await crashing.kill();
  await sleep(100);
  await crashing.restart();
  const receipts = await Promise.all(sent);
  assert.equal(new Set(receipts.map((r) => r.id)).size, 200);
  assert.equal((await crashing.admin("queue-inspect", "crash")).pending, 200);
  await c.close();
  await crashing.stop();
});
