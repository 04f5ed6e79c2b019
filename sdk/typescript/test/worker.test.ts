import assert from "node:assert/strict";
import { once } from "node:events";
import { fork } from "node:child_process";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { headers } from "@nats-io/transport-node";
import { Client, Dead, Done, LeaseLostError, NoFilaError, Retry, StoppedError, Worker, type Message, type ConsumerRequest, type WorkerOptions, type Handler } from "../src/index.js";
import { Fila } from "../src/testing.js";
import { drained, until, type DeadLetter } from "./util.js";

let fila: Fila;
let client: Client;
const workers: Worker[] = [];
const failures: unknown[] = [];

before(async () => {
  fila = await Fila.start();
  client = await fila.client();
});
after(async () => {
  await Promise.all(workers.map((w) => w.stop({ deadline: 1000 }).catch(() => {})) /* a test has its rejection */);
  await client?.close();
  await fila?.stop();
});

async function work<T = any>(queue: string, handler: Handler<T>, options: WorkerOptions<T> = {}): Promise<Worker<T>> {
  const worker = new Worker<T>(client, queue, handler, { onError: (e) => failures.push(e), ...options });
  workers.push(worker);
  await worker.start();
  return worker;
}

async function deadLetters(queue: string, n: number): Promise<DeadLetter[]> {
  const all: DeadLetter[] = [];
  const worker = await work(`${queue}.dlq`, (m) => void all.push({
    id: m.id, attempt: Number(m.headers.get("Fila-Dead-Attempts")), reason: m.headers.get("Fila-Dead-Reason"),
    error: m.headers.get("Fila-Dead-Error"), code: m.headers.get("Fila-Dead-Error-Code"), payload: m.data[0] === 0x7b ? undefined : m.payload,
  }), { concurrency: 10 });
  await until(`${n} dead letters`, () => all.length >= n);
  await worker.stop();
  return all;
}

test("a fila from before batches gets a registration without them", async () => {
  const requests: ConsumerRequest[] = [];
  const old = client.nc.subscribe("old.consumer.*.*", {
    callback: (_, msg) => {
      const request = msg.json<ConsumerRequest>();
      requests.push(request);
      if (request.batch === undefined) return void msg.respond(JSON.stringify({ deliver: "", max_in_flight: 1, visibility_timeout_ms: 1000 }));
      const h = headers();
      h.set("Nats-Service-Error", "unknown field");
      h.set("Nats-Service-Error-Code", "400");
      msg.respond(JSON.stringify({ error: { code: 400, err_code: 11400, description: "unknown field" } }), { headers: h });
    },
  });
  const worker = new Worker(await Client.connect(client.nc, { prefix: "old" }), "jobs", () => {}, { batch: 8 });
  await worker.start();
  await worker.stop();
  assert.deepEqual(requests.map((r) => [r.batch, r.leave]), [[8, undefined], [undefined, undefined], [undefined, true]]);
  old.unsubscribe();
});

for (const batch of [1, 64]) {
  test(`results become acks, with batches of ${batch}`, async () => {
    const queue = `results-${batch}`;
    await client.ensureQueue(queue, { retry_initial_ms: 0, max_deliveries: 3 });
    const attempts = new Map<string, number[]>();
    await client.enqueueBatch(queue, ["ok", "done", "fail", "returned", "always", "dead", "thrown", "twice"].map((payload) => ({ payload })));
    await work<string>(queue, (m) => {
      const seen = attempts.get(m.payload) ?? [];
      attempts.set(m.payload, [...seen, m.attempt]);
      if (m.payload === "done") return new Done({ cost: 2.5 });
      if (m.payload === "fail" && m.attempt === 1) throw new Error("not now");
      if (m.payload === "returned" && m.attempt === 1) return new Retry({ delay: 0 });
      if (m.payload === "always") throw Object.assign(new TypeError("never"), { code: "E42" });
      if (m.payload === "dead") return new Dead("no such user", { code: "gone" });
      if (m.payload === "thrown") throw new Dead("no such\nuser");
      if (m.payload === "twice" && m.attempt < 3) throw new Retry({ error: "again", delay: 1 });
      return undefined;
    }, { concurrency: 8, batch });
    await drained(fila, queue);
    assert.deepEqual(Object.fromEntries(attempts), {
      ok: [1], done: [1], fail: [1, 2], returned: [1, 2], always: [1, 2, 3], dead: [1], thrown: [1], twice: [1, 2, 3],
    });
    const dead = (await deadLetters(queue, 3)).map(({ payload, reason, error, code, attempt }) => [payload, reason, error, code, attempt]).sort();
    assert.deepEqual(dead, [
      ["always", "max_deliveries", "never", "E42", 3],
      ["dead", "term", "no such user", "gone", 1],
      ["thrown", "term", "no such user", "", 1],
    ]);
  });
}

test("retries back off as the queue says", async () => {
  await client.ensureQueue("backoff", { retry_initial_ms: 100, retry_jitter: 0, max_deliveries: 4 });
  const at: number[] = [];
  const { id } = await client.enqueue("backoff", 1);
  await work("backoff", () => {
    at.push(performance.now());
    throw new Error("down");
  });
  await drained(fila, "backoff");
  const history = (await fila.admin<{ history: { delay_ms?: number; decided_by: string; error_code?: string }[] }>("message-show", "", { id })).history;
  assert.deepEqual(history.map((h) => h.delay_ms ?? h.decided_by), [100, 200, 400, "max_deliveries"]);
  assert.deepEqual(history.map((h) => h.error_code), ["Error", "Error", "Error", "Error"]);
  const waits = at.slice(1).map((t, i) => t - at[i]!);
  assert.ok(waits.every((ms, i) => ms >= 100 * 2 ** i - 5), `waits of ${waits} ms`);
});

test("retryAfter opens the circuit of the destination", async () => {
  await client.ensureQueue("vendor", { circuit_header: "vendor" });
  await client.enqueue("vendor", 1, { headers: { vendor: "stripe" } });
  const worker = await work("vendor", () => {
    throw Object.assign(new Error("too many requests"), { code: 429, retryAfter: 3600_000 });
  });
  const circuit = await until("the open circuit", async () => {
    const info = await fila.admin("circuit-show", "stripe").catch(() => undefined);
    return info?.state === "open" && info;
  });
  assert.equal(circuit.cause, "retry_after");
  await worker.stop();
});

test("a payload that cannot be decoded becomes a dead letter", async () => {
  await client.ensureQueue("garbled");
  await client.enqueue("garbled", Buffer.from("{half"));
  await work("garbled", (m) => void m.payload);
  await drained(fila, "garbled");
  const [dead] = await deadLetters("garbled", 1);
  assert.deepEqual([dead!.reason, dead!.code], ["term", "bad_payload"]);
});

test("middleware runs around the handler, the outermost first", async () => {
  await client.ensureQueue("middle", { retry_initial_ms: 0 });
  const log: string[] = [];
  const worker = await work<string>("middle", (m) => void log.push(`handle ${m.payload}`), {
    middleware: [
      async (m, next) => {
        log.push(`begin ${m.attempt}`);
        const result = await next();
        log.push("end");
        return result;
      },
      async (m, next) => (m.attempt === 1 ? new Retry() : next()),
    ],
  });
  await client.enqueue("middle", "x");
  await drained(fila, "middle");
  await worker.stop();
  assert.deepEqual(log, ["begin 1", "end", "begin 2", "handle x", "end"]);
});

for (const batch of [1, 10]) {
  test(`leases are extended while handlers run, and while messages wait, with batches of ${batch}`, async () => {
    const queue = `slow-${batch}`;
    await client.ensureQueue(queue, { visibility_timeout_ms: 500 });
    await client.enqueueBatch(queue, [1, 2, 3].map((payload) => ({ payload })));
    const attempts: number[] = [];
    await work(queue, async (m) => {
      attempts.push(m.attempt);
      await sleep(1500);
      assert.equal(m.signal.aborted, false);
    }, { concurrency: 3, batch });
    const info = await drained(fila, queue);
    assert.deepEqual(attempts, [1, 1, 1]);
    assert.equal(info.counters["expired"] ?? 0, 0);
  });

  test(`a handler whose lease is lost is cancelled, and its result is not sent, with batches of ${batch}`, async () => {
    const queue = `lost-${batch}`;
    await client.ensureQueue(queue, { visibility_timeout_ms: 300, retry_initial_ms: 0 });
    // The reply subject of the delivery allows the test to end the lease behind the worker's back.
    let ackTo = "";
    const spy = client.nc.subscribe(`fila.deliver.spied-${batch}.${queue}`, { callback: (_, msg) => void (ackTo ||= msg.reply!) });
    await client.nc.flush();
    const reasons: unknown[] = [];
    const attempts: number[] = [];
    const worker = await work(queue, async (m) => {
      attempts.push(m.attempt);
      if (m.attempt > 1) return undefined;
      await client.nc.request(ackTo, "-NAK 0s", { timeout: 10_000 });
      if (!m.signal.aborted) await new Promise((resolve) => m.signal.addEventListener("abort", resolve));
      reasons.push(m.signal.reason);
      return new Dead("this result must not count");
    }, { name: `spied-${batch}`, concurrency: 2, batch });
    const { id } = await client.enqueue(queue, 1);
    await until("the abort", () => reasons.length > 0);
    await drained(fila, queue);
    await worker.stop();
    spy.unsubscribe();
    assert.ok(reasons[0] instanceof LeaseLostError);
    assert.ok(failures.some((e) => e instanceof LeaseLostError && e.message.includes(id)));
    assert.deepEqual(attempts, [1, 2]);
    assert.equal((await fila.admin("queue-inspect", `${queue}.dlq`)).pending, 0);
  });
}

test("concurrency bounds handlers and what fila sends", async () => {
  await client.ensureQueue("bound");
  await client.enqueueBatch("bound", Array.from({ length: 60 }, (_, payload) => ({ payload })));
  let running = 0;
  let most = 0;
  const worker = await work("bound", async () => {
    most = Math.max(most, ++running);
    await sleep(5);
    running--;
  }, { concurrency: 7 });
  await until("full use", () => most === 7);
  assert.ok((await fila.admin("queue-inspect", "bound")).in_flight <= 7);
  await drained(fila, "bound");
  await worker.stop();
  assert.equal(most, 7);
});

test("messages of tenants come fairly, and at most as many as the throttle admits", async () => {
  await client.ensureQueue("fair", { fairness_header: "tenant", throttle_headers: ["tenant:{tenant}"] });
  await client.admin("throttle-set", "tenant:*", { limit: 5, window_ms: 3600_000 });
  await client.enqueueBatch("fair", Array.from({ length: 50 }, (_, i) => ({ payload: i, headers: { tenant: "big" } })));
  await client.enqueueBatch("fair", Array.from({ length: 3 }, (_, i) => ({ payload: i, headers: { tenant: "small" } })));
  const keys: string[] = [];
  const worker = await work("fair", (m) => void keys.push(m.key));
  await until("eight messages", () => keys.length === 8);
  assert.equal(keys.slice(0, 6).filter((k) => k === "small").length, 3);
  assert.equal((await fila.admin("throttle-show", "tenant:big")).state, "window");
  await worker.stop();
});

test("fewer headers, with and without batches", async () => {
  for (const batch of [1, 8]) {
    const queue = `few-${batch}`;
    await client.ensureQueue(queue, { fairness_header: "tenant" });
    const got: Message[] = [];
    const worker = await work(queue, (m) => void got.push(m), { headers: "min", batch, concurrency: 8 });
    const { id } = await client.enqueue(queue, 1, { headers: { tenant: "acme" } });
    await drained(fila, queue);
    await worker.stop();
    const m = got[0]!;
    assert.deepEqual([m.id, m.attempt, m.key, m.enqueuedAt, m.headers.get("tenant"), m.deadline === undefined], [id, 1, "", undefined, "acme", batch === 1]);
  }
});

test("the registration is renewed, and made again after a crash of fila", async () => {
  const crashing = await Fila.start();
  const c = await crashing.client();
  await c.ensureQueue("again", { visibility_timeout_ms: 60_000 });
  const got = new Map<number, number>();
  const errors: unknown[] = [];
  const worker = new Worker<number>(c, "again", async (m) => {
    await sleep(20);
    got.set(m.payload, (got.get(m.payload) ?? 0) + 1);
  }, { concurrency: 5, registrationTtl: 600, onError: (e) => errors.push(e) });
  await worker.start();
  await sleep(1500); // it would be over by now
  await c.enqueueBatch("again", Array.from({ length: 100 }, (_, payload) => ({ payload })));
  await until("some messages", () => got.size > 20);
  await crashing.kill();
  await sleep(1000); // longer than the registration
  await crashing.restart();
  await until("all messages", () => got.size === 100);
  await drained(crashing, "again");
  assert.match(String(errors.find((e) => String(e).includes("renew"))), /renew worker w-[0-9a-f]+ of again/);
  await worker.stop();
  await c.close();
  await crashing.stop();
});

test("a worker that cannot start says why", async () => {
  await assert.rejects(new Worker(client, "missing", () => {}).start(), /missing/);
  assert.throws(() => new Worker(client, "fair", () => {}, { concurrency: 0 }), /concurrency is 0: allowed are 1 to 65536/);
  assert.throws(() => new Worker(client, "fair", () => {}, { batch: 1001 }), /batch is 1001: allowed are 1 to 1000/);
  assert.throws(() => new Worker(client, "fair", () => {}, { name: "a b" }), /consumer name "a b": allowed are/);
});

test("a worker that waits for fila can be stopped, and starts once", async () => {
  const nowhere = await Client.connect(fila.url, { prefix: "nobody" });
  const worker = new Worker(nowhere, "fair", () => {}, { onError: (e) => failures.push(e) });
  const starting = worker.start();
  await assert.rejects(worker.start(), /was started before/);
  await worker.stop();
  await starting;
  assert.ok(failures.some((e) => e instanceof NoFilaError));
  await nowhere.close();
});

test("stop takes nothing new, finishes what it has, and leaves", async () => {
  await client.ensureQueue("stopped");
  await client.enqueueBatch("stopped", Array.from({ length: 20 }, (_, payload) => ({ payload })));
  let begun = 0;
  let done = 0;
  const worker = await work("stopped", async () => {
    begun++;
    await sleep(300);
    done++;
  }, { concurrency: 4 });
  await until("handlers", () => begun === 4);
  await Promise.all([worker.stop(), worker.stop()]);
  assert.deepEqual([begun, done], [4, 4]);
  const info = await fila.admin("queue-inspect", "stopped");
  assert.deepEqual([info.pending, info.in_flight, info.consumers], [16, 0, 0]);
});

test("at the deadline stop aborts handlers and gives messages back", async () => {
  await client.ensureQueue("deadline", { visibility_timeout_ms: 3600_000, retry_initial_ms: 3600_000, retry_max_ms: 3600_000 });
  await client.enqueueBatch("deadline", [{ payload: "heeds" }, { payload: "ignores" }]);
  let begun = 0;
  const reasons: unknown[] = [];
  const worker = await work<string>("deadline", async (m) => {
    begun++;
    if (m.payload === "ignores") return new Promise(() => {});
    return new Promise((_, reject) => m.signal.addEventListener("abort", () => {
      reasons.push(m.signal.reason);
      reject(m.signal.reason);
    }));
  }, { concurrency: 2 });
  await until("handlers", () => begun === 2);
  await assert.rejects(worker.stop({ deadline: 100 }), /stopped after 100 ms with 1 unfinished handlers and 0 unconfirmed acks/);
  const info = await fila.admin("queue-inspect", "deadline");
  assert.deepEqual([info.pending, info.in_flight, info.delayed], [1, 1, 0]); // given back to be delivered at once
  assert.ok(reasons[0] instanceof StoppedError);
});

test("a process stops gracefully on SIGTERM", async () => {
  await client.ensureQueue("service");
  const child = fork(new URL("service.js", import.meta.url), { env: { ...process.env, NATS_URL: fila.url } });
  await client.enqueueBatch("service", Array.from({ length: 50 }, (_, payload) => ({ payload })));
  await until("work", async () => (await fila.admin("queue-inspect", "service")).in_flight === 3);
  child.kill("SIGTERM");
  assert.deepEqual(await once(child, "exit"), [0, null]);
  const info = await fila.admin("queue-inspect", "service");
  assert.deepEqual([info.in_flight, info.delayed, info.consumers, info.counters["failed"] ?? 0], [0, 0, 0, 0]);
  assert.ok(info.pending < 50);
});
