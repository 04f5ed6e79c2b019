// Works on the messages of a queue of fila with @nats-io/transport-node alone.
//
//   node consumer.mjs QUEUE
//
// NATS_URL is the address of NATS. An interrupt stops it gracefully. It survives
// restarts of fila and NATS: it registers again, and repeats an ack until it is
// answered.

import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "@nats-io/transport-node";

const name = "javascript-1";
const maxInFlight = 16;
const ttl = 30_000; // ms

const [queue] = process.argv.slice(2);
if (!queue) {
  console.error("usage: node consumer.mjs QUEUE");
  process.exit(2);
}

const nc = await connect({ servers: process.env.NATS_URL, maxReconnectAttempts: -1, reconnectTimeWait: 100 });
let lease; // ms: the visibility timeout

// Subscribe first, then register: a delivery without a subscriber ends a registration.
const tasks = new Set();
const subscription = nc.subscribe(`fila.deliver.${name}.${queue}`, {
  callback: (error, msg) => {
    if (error) {
      console.error(error.message);
      return;
    }
    const task = handle(msg).catch((e) => console.error(`${msg.string()}: ${e.message}`));
    tasks.add(task); // at most maxInFlight of them
    task.finally(() => tasks.delete(task));
  },
});
await nc.flush();
await register();
console.log("registered", name);

const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => stopping.abort());

// Register again at once after a reconnect, and in good time.
(async () => {
  for await (const status of nc.status()) {
    if (status.type === "reconnect") await renew();
  }
})();
while (!stopping.signal.aborted) {
  await sleep(ttl / 3, undefined, { signal: stopping.signal }).then(renew, () => {});
}

// Leave, so that no more deliveries come; let the received ones finish.
await ask({ leave: true }).catch((error) => console.error("leave:", error.message));
await subscription.drain();
await Promise.all(tasks);
await nc.close();

// renew tries until it works.
async function renew() {
  for (;;) {
    try {
      return await register();
    } catch (error) {
      if (stopping.signal.aborted || nc.isClosed()) return;
      console.error("register:", error.message);
      await sleep(1000);
    }
  }
}

async function register() {
  const reply = await ask({ max_in_flight: maxInFlight, ttl_ms: ttl });
  lease = reply.visibility_timeout_ms;
}

// ask sends a request to fila.consumer and reads the reply, which may be an error.
async function ask(request) {
  const reply = await nc.request(`fila.consumer.${name}.${queue}`, JSON.stringify(request), { timeout: 5000 });
  if (reply.headers?.get("Nats-Service-Error-Code")) throw new Error(reply.string());
  return reply.json();
}

// handle shows the ways in which a message can end.
async function handle(msg) {
  const attempt = msg.headers.get("Fila-Attempt");
  const todo = msg.headers.get("todo");
  const first = attempt === "1";
  const say = (what, how = "") => console.log(`${what} ${msg.string()}, attempt ${attempt}${how}`);
  if (todo === "hopeless") {
    say("terminated");
    msg.respond("+TERM nothing will help"); // to the dead letter queue
  } else if (todo === "fail" && first) {
    // With an error, for on_failure and for people.
    say("nacked", ": with an error");
    msg.respond('-NAK {"error":"no luck today","code":"luck"}');
  } else if (todo === "later" && first) {
    say("nacked", ": with a delay");
    msg.respond("-NAK 300ms");
  } else if (todo === "busy" && first) {
    // The provider said Retry-After: tell fila, which keeps others away too.
    say("nacked", ": with Retry-After");
    const details = { error: "provider is busy", code: "429", delay: "300ms", retry_after_ms: 300 };
    msg.respond("-NAK " + JSON.stringify(details));
  } else {
    if (todo === "slow") await slowly(msg);
    await ack(msg);
  }
}

// slowly works longer than the visibility timeout and extends the lease.
async function slowly(msg) {
  while (!lease) await sleep(10); // the delivery may be here before the reply
  for (let i = 0; i < 6; i++) {
    await sleep(lease / 3);
    msg.respond("+WPI");
  }
}

// ack finishes a message for good: it repeats the ack until fila has answered.
// (msg.respond("+ACK") is enough where a message may come again now and then.)
async function ack(msg) {
  for (;;) {
    let reply;
    try {
      reply = await nc.request(msg.reply, "", { timeout: 2000 });
    } catch {
      await sleep(100); // no responders, no reply: fila or NATS is away
      continue;
    }
    const code = reply.headers?.get("Nats-Service-Error-Code");
    if (code === "500" || code === "503") {
      await sleep(100);
      continue;
    }
    if (code) {
      // 409: the lease is lost, or an earlier try arrived.
      console.log(`refused ack of ${msg.string()}: ${reply.string()}`);
    } else {
      console.log(`acked ${msg.string()}, attempt ${msg.headers.get("Fila-Attempt")}`);
    }
    return;
  }
}
