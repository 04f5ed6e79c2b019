// Checks with fila before calls to a vendor, and reports their outcome, with
// @nats-io/transport-node alone.
//
//   node guard.mjs COUNT KEY [KEY...]
//
// The first key is the vendor with its circuit; the limits of all keys apply.
// NATS_URL is the address of NATS, CALL_SECONDS the duration of a call.

import { setTimeout as sleep } from "node:timers/promises";
import { connect, errors } from "@nats-io/transport-node";

const [count, key, ...further] = process.argv.slice(2);
if (!key) {
  console.error("usage: node guard.mjs COUNT KEY [KEY...]");
  process.exit(2);
}

const permitMs = 10_000; // how long a permit lives without a done: longer than a call takes
const patienceMs = 60_000; // how long a check waits for an answer

const nc = await connect({ servers: process.env.NATS_URL });
for (let call = 0; call < Number(count); call++) await make(call);
await nc.close();

// callVendor stands for the call itself: the first attempt of call 1 fails.
async function callVendor(call, attempt) {
  await sleep(1000 * Number(process.env.CALL_SECONDS ?? 0));
  if (call === 1 && attempt === 1) throw Object.assign(new Error("upstream is down"), { code: "503" });
}

// make makes a call, again as long as fila advises it.
async function make(call) {
  for (let attempt = 1; ; attempt++) {
    const { permit, ends } = await check(call);
    let failure;
    try {
      await callVendor(call, attempt);
    } catch (error) {
      failure = error;
    }
    if (!failure) {
      await done(permit, ends, attempt); // the call was made, whatever becomes of this
      console.log(`made call ${call}, attempt ${attempt}`);
      return;
    }
    const verdict = await done(permit, ends, attempt, failure);
    if (!verdict) {
      // Whether to try again without advice is yours to say.
      console.log(`failed call ${call}, attempt ${attempt}`);
      return;
    }
    console.log(`failed call ${call}, attempt ${attempt}: ${verdict.severity}`);
    if (!verdict.retry) return;
    await sleep(verdict.delay_ms ?? 0);
  }
}

// check returns a permit and when it ends, when the call may be made.
async function check(call) {
  for (;;) {
    const asked = Date.now();
    const answer = await ask("check", { with: further, caller: "example", ttl_ms: permitMs }, asked + patienceMs);
    if (answer.allowed) return { permit: answer.permit, ends: asked + permitMs };
    const ms = answer.retry_after_ms ?? 1000; // absent: unknown, for example while paused
    console.log(`refused call ${call} by ${answer.gate} of ${answer.key}, again in ${ms} ms`);
    await sleep(ms);
  }
}

// done gives the permit back, and returns what to do about an error. Repeated reports do
// no harm, so it repeats until the permit has ended by itself. undefined: the report did not
// arrive, and the circuit does not count the call.
async function done(permit, ends, attempt, error) {
  const how = { permit, attempt, caller: "example", outcome: "ok" };
  if (error) Object.assign(how, { outcome: "error", error_code: error.code, error: error.message });
  try {
    return await ask("done", how, ends);
  } catch (why) {
    console.error(`not told: ${why.message}`);
  }
}

// ask sends a request, and again until it is answered or the time is over. The first key is
// in the subject, where permissions bind it. A key that is not legal in a subject goes into
// the request as "key", and the subject ends in "_" instead.
async function ask(verb, request, until) {
  for (;;) {
    let wait = 250;
    let why;
    try {
      // A done may take 2 s where several filas answer one guard.
      const reply = await nc.request(`fila.guard.${verb}.${key}`, JSON.stringify(request), { timeout: 5000 });
      const code = reply.headers?.get("Nats-Service-Error-Code");
      if (!code) return reply.json();
      why = new Error(reply.string());
      // 429: a cap is full. 503: fila is stopping or, as the answer to a done (err_code
      // 14503), the fila that gave the permit has ended or cannot be reached.
      if (code !== "429" && code !== "503") throw why;
      wait = Number(reply.headers.get("Fila-Retry-After-Ms")) || wait;
    } catch (error) {
      const nobody = error instanceof errors.RequestError && error.isNoResponders();
      // Whether to call without a permit is yours to say.
      if (!nobody && !(error instanceof errors.TimeoutError)) throw error;
      why = nobody ? new Error("nobody is there") : error;
    }
    if (Date.now() + wait > until) throw why;
    console.error(`${verb}: ${why.message}, again in ${wait} ms`);
    await sleep(wait);
  }
}
