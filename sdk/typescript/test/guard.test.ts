import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, FilaError, NoFilaError, RefusedError, Worker, type GuardVerdict } from "../src/index.js";
import { Fila } from "../src/testing.js";
import { until } from "./util.js";

let fila: Fila;
let client: Client;

before(async () => {
  fila = await Fila.start({
    config: `
      [circuit_defaults]
      threshold = 2
      [[retry_policy]]
      name = "backoff"
      initial_delay_ms = 500
      max_retries = 3
      [[error_rule]]
      name = "down"
      code = "E503"
      severity = "high"
      retry_policy = "backoff"
    `,
  });
  client = await fila.client();
});
after(async () => {
  await client?.close();
  await fila?.stop();
});

const coded = (message: string, code: string, retryAfter?: number): Error => Object.assign(new Error(message), { code, retryAfter });

test("check gives a permit, and done the verdict of the rules", async () => {
  const guard = client.guard({ caller: "billing" });
  const permit = await guard.check({ key: "vendor:stripe", with: ["tenant:acme"], ttl: 60_000 });
  assert.equal((await guard.state("vendor:stripe")).permits, 1);
  assert.equal(permit.signal.aborted, false);
  const verdict = await guard.done(permit, coded("upstream is down", "E503"));
  assert.deepEqual([verdict.severity, verdict.rule, verdict.retry, verdict.delay_ms, verdict.retries_left], ["high", "down", true, 500, 3]);
  assert.equal((await guard.done(permit)).duplicate, true);
  assert.equal((await guard.state("vendor:stripe")).permits, 0);
  await assert.rejects(client.guard({ caller: "other" }).done(permit), (e) => e instanceof FilaError && e.code === 400);
  await assert.rejects(guard.check({ key: "" }), (e) => e instanceof FilaError && e.code === 400);
});

test("a limit refuses, and says when to ask again", async () => {
  await client.admin("throttle-set", "tenant:two words", { limit: 1, window_ms: 3600_000 });
  const guard = client.guard();
  const call = { key: "vendor:two words", with: ["tenant:two words"] };
  assert.equal(await guard.run(call, () => 42), 42);
  await assert.rejects(guard.run(call, () => assert.fail("the call was made")), (e) => {
    assert.ok(e instanceof RefusedError);
    assert.deepEqual([e.gate, e.key, e.answer.limit?.limit], ["window", "tenant:two words", 1]);
    assert.ok(e.retryAfter! > 0 && e.message.includes("refused by window of tenant:two words, ask again in"));
    return true;
  });
});

test("the actual cost of a call corrects its estimate", async () => {
  await client.admin("throttle-set", "tokens", { rate: "1/1000000", burst: 1000 });
  const guard = client.guard();
  const left = async (): Promise<number | undefined> => (await guard.state("tokens")).limits[0]?.remaining;
  const call = { key: "tokens", cost: 100 };
  await guard.run(call, (_signal, setCost) => setCost(300));
  assert.equal(await left(), 700);
  const failing = guard.run(call, (_signal, setCost) => {
    setCost(20);
    throw new Error("down");
  });
  await assert.rejects(failing, /down/);
  assert.equal(await left(), 680);
  await guard.done(await guard.check(call), undefined, 80);
  assert.equal(await left(), 600);
  await client.admin("throttle-set", "tokens", { rate: 0.001, burst: 1000, adapt: { signal: "overload", min: 0.001 } });
  await guard.run(call, (_signal, setCost) => setCost({ cost: 10, remaining: 50, reset: 1000 }));
  assert.equal(await left(), 50);
});

test("failed calls open the circuit; the error is thrown unchanged", async () => {
  const guard = client.guard();
  const failure = coded("no", "E1");
  for (let i = 0; i < 2; i++) await assert.rejects(guard.run({ key: "vendor:down" }, () => Promise.reject(failure)), (e) => e === failure);
  await until("the open circuit", async () => (await guard.state("vendor:down")).answer.gate === "circuit");
  await assert.rejects(guard.run({ key: "vendor:down" }, () => 1), (e) => e instanceof RefusedError && e.gate === "circuit");
  await assert.rejects(guard.run({ key: "vendor:busy" }, () => Promise.reject(coded("busy", "429", 3600_000))), /busy/);
  await until("the open circuit", async () => (await guard.state("vendor:busy")).circuit?.cause === "retry_after");
});

test("a patient caller waits for its permit", async () => {
  await client.admin("throttle-set", "slow", { rate: 20, burst: 1 });
  const guard = client.guard({ wait: true });
  const results = await Promise.all([1, 2, 3].map((n) => guard.run({ key: "slow" }, () => n)));
  assert.deepEqual(results, [1, 2, 3]);
  await client.admin("throttle-set", "closed", { limit: 1, window_ms: 3600_000 });
  await guard.run({ key: "closed" }, () => 1);
  await assert.rejects(guard.run({ key: "closed", signal: AbortSignal.timeout(50) }, () => 2), { name: "AbortError" });
});

test("the signal of a call ends with the permit", async () => {
  const reason = await client.guard().run({ key: "hangs", ttl: 50 }, (signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(signal.reason.name))));
  assert.equal(reason, "TimeoutError");
});

test("guarded wraps functions, and decorates methods", async () => {
  const guard = client.guard();
  const charge = guard.guarded((tenant: string) => ({ key: "vendor:wrap", with: [`tenant:${tenant}`] }))(async (tenant: string) => `charged ${tenant}`);
  assert.equal(await charge("acme"), "charged acme");

  class Vendor {
    constructor(readonly name: string) {}
    @guard.guarded({ key: "vendor:method" })
    async charge(amount: number): Promise<string> {
      return `${this.name} ${amount} ${(await guard.state("vendor:method")).permits}`;
    }
  }
  assert.equal(await new Vendor("stripe").charge(5), "stripe 5 1");
});

test("a refusal in a handler delays the message as long as the guard says", async () => {
  await client.ensureQueue("calls", { circuit_header: "vendor" });
  await client.admin("throttle-set", "tenant:limited", { limit: 1, window_ms: 3600_000 });
  const guard = client.guard();
  await guard.run({ key: "tenant:limited" }, () => 1);
  const { id } = await client.enqueue("calls", 1, { headers: { vendor: "v" } });
  const worker = new Worker(client, "calls", () => guard.run({ key: "tenant:limited" }, () => undefined));
  await worker.start();
  const [attempt] = await until("the attempt", async () => {
    const { history } = await fila.admin<{ history?: { delay_ms: number; decided_by: string; error_code: string }[] }>("message-show", "", { id });
    return history?.length ? history : undefined;
  });
  await worker.stop();
  assert.deepEqual([attempt!.decided_by, attempt!.error_code], ["consumer", "429"]);
  assert.ok(attempt!.delay_ms > 3000_000);
});

test("without fila a call is refused, unless it may fail open", async () => {
  const nowhere = await Client.connect(fila.url, { prefix: "nobody" });
  await assert.rejects(nowhere.guard().run({ key: "x" }, () => 1), NoFilaError);
  assert.equal(await nowhere.guard({ failOpen: true }).run({ key: "x" }, () => 1), 1);
  await nowhere.close();
  const verdict: GuardVerdict = await client.guard().done(await client.guard().check({ key: "y" }));
  assert.equal(verdict.retry, false);
});
