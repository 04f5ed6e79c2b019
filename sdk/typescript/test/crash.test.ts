import assert from "node:assert/strict";
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Fila } from "../src/testing.js";
import { drained, until } from "./util.js";

// FILA_KILLS is how often a worker is killed, by default 5.
const kills = Number(process.env["FILA_KILLS"] ?? 5);

test(`nothing that was confirmed is lost when workers are killed ${kills} times under load`, { timeout: 600_000 }, async (t) => {
  const fila = await Fila.start();
  const client = await fila.client({ retryFor: 60_000 });
  await client.ensureQueue("crashes", { visibility_timeout_ms: 1000, retry_initial_ms: 0, max_deliveries: 0 });
  const handled = join(fila.dir, "handled");
  writeFileSync(handled, "");
  const seen = (): number[] => readFileSync(handled, "utf8").split("\n").slice(0, -1).map(Number);
  let children = 0;
  const spawn = (): ChildProcess => fork(new URL("crash-worker.js", import.meta.url), {
    env: { ...process.env, NATS_URL: fila.url, HANDLED: handled, BATCH: String(children++ % 2 === 0 ? 1 : 16) },
  });

  const confirmed = new Set<number>();
  let producing = true;
  let next = 0;
  const produce = async (): Promise<void> => {
    while (producing) {
      const messages = Array.from({ length: 20 }, () => ({ payload: next++ }));
      const { receipts } = await client.enqueueBatch("crashes", messages);
      receipts.forEach((r, i) => r && confirmed.add(messages[i]!.payload));
      await sleep(20);
    }
  };
  const producer = produce();
  for (let i = 0; i < kills; i++) {
    const before = seen().length;
    const child = spawn();
    await until("work of the new process", () => seen().length > before + 20);
    await sleep(Math.random() * 50);
    child.kill("SIGKILL");
    await once(child, "exit");
  }
  producing = false;
  await producer;
  const last = spawn();
  await drained(fila, "crashes");
  last.kill("SIGTERM");
  assert.deepEqual(await once(last, "exit"), [0, null]);

  const all = seen();
  const distinct = new Set(all);
  const missing = [...confirmed].filter((n) => !distinct.has(n));
  t.diagnostic(`${kills} kills, ${confirmed.size} confirmed, ${distinct.size} handled, ${all.length - distinct.size} more than once, ${missing.length} lost`);
  assert.deepEqual(missing, []);
  assert.equal((await fila.admin("queue-inspect", "crashes.dlq")).pending, 0);
  await client.close();
  await fila.stop();
});
