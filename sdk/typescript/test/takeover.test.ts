import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "../src/index.js";
import { Fila } from "../src/testing.js";
import { drained, until } from "./util.js";

test("a producer and a worker go on when the node that owns their queue is killed", { timeout: 300_000 }, async (t) => {
  const nats = await Fila.start({ config: `[nats]\nsubject_prefix = "unused"\n[nats.embedded]\njetstream = true\n` });
  const node = (name: string): Promise<Fila> => Fila.start({
    config: `[nats]\nurl = "${nats.url}"\n[cluster]\nenabled = true\nname = "test"\nnode = "${name}"\nshards = 1\nreplicas = 1\nallow_r1 = true\n`,
  });
  const nodes = new Map([["a", await node("a")], ["b", await node("b")]]);
  const client = await nats.client({ retryFor: 60_000 });
  await until("the first owner", () => client.ensureQueue("orders", { visibility_timeout_ms: 2000 }).catch(() => undefined));

  const attempts: number[] = [];
  const worker = new Worker<number>(client, "orders", (m) => void attempts.push(m.payload), { concurrency: 4, onError: () => {} });
  await worker.start();
  const confirmed: number[] = [];
  let producing = true;
  const producer = (async () => {
    for (let n = 0; producing; n++) {
      await client.enqueue("orders", n);
      confirmed.push(n);
    }
  })();
  await until("work", () => attempts.length > 50);
  const { owner } = await client.admin("queue-inspect", "orders");
  await nodes.get(owner!)!.kill();
  const before = confirmed.length;
  await until("work of the other node", () => confirmed.length > before + 50);
  producing = false;
  await producer;
  await drained(nats, "orders");
  assert.notEqual((await client.admin("queue-inspect", "orders")).owner, owner);
  await worker.stop();

  const handled = new Set(attempts);
  t.diagnostic(`${confirmed.length} confirmed, ${handled.size} handled, ${attempts.length - handled.size} again`);
  assert.deepEqual([...handled].sort((a, b) => a - b), confirmed);
  await client.close();
  for (const fila of [...nodes.values(), nats]) await fila.stop();
});
