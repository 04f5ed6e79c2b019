// Publishes messages to a queue of fila with @nats-io/transport-node alone, and
// waits for the confirmation of each.
//
//   node producer.mjs QUEUE [COUNT [TODO]]
//
// NATS_URL is the address of NATS. It survives restarts of fila and NATS: whatever is
// not confirmed is published again with the same Nats-Msg-Id, so that it is
// stored once.

import { setTimeout as sleep } from "node:timers/promises";
import { connect, errors, headers } from "@nats-io/transport-node";

// Tells the example consumers what to show with a message.
let todo = ["ack", "fail", "later", "busy", "slow", "hopeless"];

const [queue, count = todo.length, only] = process.argv.slice(2);
if (only) todo = [only];
if (!queue) {
  console.error("usage: node producer.mjs QUEUE [COUNT [TODO]]");
  process.exit(2);
}

const nc = await connect({ servers: process.env.NATS_URL, maxReconnectAttempts: -1, reconnectTimeWait: 100 });

// publish returns when the message is on disk, or throws when it never can be.
async function publish(i) {
  const text = `message ${i}`;
  const h = headers();
  h.set("tenant", ["acme", "globex"][i % 2]);
  h.set("Nats-Msg-Id", `javascript-${i}`);
  h.set("todo", todo[i % todo.length]);
  for (;;) {
    let reply;
    try {
      reply = await nc.request(`fila.enqueue.${queue}`, text, { timeout: 2000, headers: h });
    } catch (error) {
      if (nc.isClosed()) throw error;
      // Nobody is there, no reply, or not connected.
      console.error(`${text}: ${reason(error)}, again in 250 ms`);
      await sleep(250);
      continue;
    }
    const code = reply.headers?.get("Nats-Service-Error-Code");
    if (!code) {
      console.log(`stored ${text} as ${reply.json().id}`);
      return;
    }
    // 429: the queue is full. 503: fila is stopping. 500: perhaps stored.
    if (!["429", "500", "503"].includes(code)) {
      throw new Error(`${text}: refused: ${reply.string()}`);
    }
    const ms = Math.max(Number(reply.headers.get("Fila-Retry-After-Ms")), 100);
    console.log(`refused ${text} with ${code}, again in ${ms} ms`);
    await sleep(ms);
  }
}

function reason(error) {
  const noOne = error instanceof errors.RequestError && error.isNoResponders();
  return noOne ? "nobody is there" : error.message;
}

// Several at a time: fila writes messages that arrive together in one commit.
let next = 0;
async function publisher() {
  while (next < Number(count)) await publish(next++);
}
await Promise.all(Array.from({ length: 16 }, publisher));
await nc.close();
