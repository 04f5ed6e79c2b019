// Asks fila before calls to a vendor, and tells it how they went, with
// @nats-io/transport-node alone.
//
//   node guard.mjs COUNT KEY [KEY...]
//
// The first key is the vendor, whose circuit is asked; the limits of all keys are.
// NATS_URL says where.

import { setTimeout as sleep } from "node:timers/promises";
import { connect, errors } from "@nats-io/transport-node";

const [count, key, ...further] = process.argv.slice(2);
if (!key) {
  console.error("usage: node guard.mjs COUNT KEY [KEY...]");
  process.exit(2);
}

const nc = await connect({ servers: process.env.NATS_URL });
for (let call = 0; call < Number(count); call++) await make(call);
await nc.close();

// callVendor stands for the call itself: the first attempt of call 1 fails.
async function callVendor(call, attempt) {
  if (call === 1 && attempt === 1) throw Object.assign(new Error("upstream is down"), { code: "503" });
}

// make makes a call, again as long as fila advises it.
async function make(call) {
  for (let attempt = 1; ; attempt++) {
    const permit = await check(call);
    let failure;
    try {
      await callVendor(call, attempt);
    } catch (error) {
      failure = error;
    }
    if (!failure) {
      // The call was made, whatever becomes of this; a permit ends by itself.
      await done(permit, attempt).catch((error) => console.error(`call ${call}: ${error.message}`));
      console.log(`made call ${call}, attempt ${attempt}`);
      return;
    }
    const verdict = await done(permit, attempt, failure);
    console.log(`failed call ${call}, attempt ${attempt}: ${verdict.severity}`);
    if (!verdict.retry) return;
    await sleep(verdict.delay_ms ?? 0);
  }
}

// check returns a permit, when the call may be made.
async function check(call) {
  for (;;) {
    const answer = await ask("check", { with: further, caller: "example", ttl_ms: 10_000 });
    if (answer.allowed) return answer.permit;
    const ms = answer.retry_after_ms ?? 1000; // absent: nobody knows, perhaps it is paused
    console.log(`refused call ${call} by ${answer.gate} of ${answer.key}, again in ${ms} ms`);
    await sleep(ms);
  }
}

// done gives the permit back, and returns what to do about an error.
function done(permit, attempt, error) {
  const how = { permit, attempt, caller: "example", outcome: "ok" };
  if (error) Object.assign(how, { outcome: "error", error_code: error.code, error: error.message });
  return ask("done", how);
}

// ask sends a request; the first key is in the subject, where permissions bind it. A
// key that is not legal in a subject goes into the request as "key", and the subject
// ends in "_" instead.
async function ask(verb, request) {
  for (;;) {
    let reply;
    try {
      reply = await nc.request(`fila.guard.${verb}.${key}`, JSON.stringify(request), { timeout: 2000 });
    } catch (error) {
      // Whether to call without a permit is yours to say.
      if (!(error instanceof errors.RequestError && error.isNoResponders())) throw error;
      console.error("nobody is there, again in 250 ms");
      await sleep(250);
      continue;
    }
    const code = reply.headers?.get("Nats-Service-Error-Code");
    if (!code) return reply.json();
    // 429: a cap is full. 503: fila is stopping.
    if (code !== "429" && code !== "503") throw new Error(reply.string());
    await sleep(Number(reply.headers.get("Fila-Retry-After-Ms")) || 250);
  }
}
