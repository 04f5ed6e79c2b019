import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { headers, type Msg } from "@nats-io/transport-node";
import { LeaseLostError, NoReplyError } from "../src/index.js";
import { Leases } from "../src/leases.js";

// The tests give the time to every call: nothing here waits.
let sent: { subject: string; payload: string; token: string }[];
let failures: unknown[];
let deferred: (() => void)[];
let lost: string[];
let leases: Leases;
let broken: Error | undefined;

beforeEach(() => {
  sent = [];
  failures = [];
  deferred = [];
  lost = [];
  broken = undefined;
  leases = new Leases({
    send: (subject, payload, token) => {
      if (broken) throw broken;
      sent.push({ subject, payload, token });
    },
    error: (error) => failures.push(error),
    defer: (fn) => deferred.push(fn),
  });
  leases.visibility = 30_000;
});

const take = (n: number, batched = n > 1, now = 0) => leases.take("ack.1", batched, Array.from({ length: n }, (_, i) => ({ id: `m${i}`, lost: (r: Error) => lost.push(`m${i} ${r.name}`) })), now);
const payloads = () => sent.splice(0).map((s) => s.payload);
const ack = "+ACK";

function reply(body = "", error?: { code: number; err_code: number; after?: number }): Msg {
  const h = headers();
  if (error) h.set("Nats-Service-Error-Code", String(error.code));
  if (error?.after) h.set("Fila-Retry-After-Ms", String(error.after));
  const text = error ? JSON.stringify({ error: { ...error, description: "no" } }) : body;
  return { headers: h, data: Buffer.from(text), json: () => JSON.parse(text) } as unknown as Msg;
}

test("a lease is extended every third of the visibility timeout, until the answer", () => {
  const [l] = take(1);
  leases.tend(9_999);
  assert.deepEqual(payloads(), []);
  leases.tend(10_000);
  leases.tend(19_999);
  leases.tend(20_000);
  assert.deepEqual(payloads(), ["+WPI", "+WPI"]);
  leases.settle(l!, ack, 21_000);
  assert.deepEqual(payloads(), ["+ACK"]);
  leases.settle(l!, "-NAK", 21_000); // a second answer
  leases.tend(25_000);
  assert.deepEqual(payloads(), []);
});

test("a shorter visibility timeout counts at once", () => {
  take(1);
  leases.setVisibility(300, 50);
  leases.tend(149);
  assert.deepEqual(payloads(), []);
  leases.tend(150);
  assert.deepEqual(payloads(), ["+WPI"]);
});

test("an answer is repeated until fila confirms it", async () => {
  const [l] = take(1);
  leases.settle(l!, ack, 0);
  leases.tend(5_000); // no reply
  assert.deepEqual(payloads(), ["+ACK", "+ACK"]);
  const nobody = { headers: headers(503, "No Responders"), data: new Uint8Array() } as unknown as Msg;
  leases.reply("1-1", nobody, 5_000);
  leases.tend(5_249);
  leases.tend(5_250);
  assert.deepEqual(payloads(), ["+ACK"]);
  leases.reply("1-2", reply("", { code: 503, err_code: 10503, after: 700 }), 5_300);
  leases.tend(5_999);
  leases.tend(6_000);
  assert.equal(leases.unconfirmed, 1);
  const confirmed = leases.confirmed();
  leases.reply("1-3", reply(), 6_001);
  await confirmed;
  assert.equal(leases.unconfirmed, 0);
  assert.deepEqual(failures, []);
  leases.reply("1-3", reply(), 6_002); // late, twice, odd
  leases.reply("9-9", reply(), 6_002);
  leases.reply("x", reply(), 6_002);
  leases.resend(7_000);
  assert.deepEqual(payloads(), ["+ACK"]);
});

test("an answer without a reply is given up after two visibility timeouts", () => {
  const [l] = take(1);
  leases.settle(l!, ack, 0);
  for (let now = 0; now <= 60_000; now += 5_000) leases.tend(now);
  assert.equal(payloads().length, 12);
  assert.ok(failures[0] instanceof NoReplyError);
  assert.equal(leases.unconfirmed, 0);
});

test("a refused extension loses the lease, and a late result is not sent", () => {
  const [l] = take(1);
  leases.tend(10_000);
  leases.reply("1-0", reply("", { code: 409, err_code: 10409 }), 10_001);
  assert.deepEqual(lost, ["m0 LeaseLostError"]);
  assert.ok(failures[0] instanceof LeaseLostError);
  payloads();
  leases.settle(l!, ack, 10_002);
  leases.tend(60_000);
  assert.deepEqual(payloads(), []);
  assert.equal(leases.unconfirmed, 0);
});

test("the late reply to an extension does not count as one to the answer", () => {
  const [l] = take(1);
  leases.tend(10_000);
  leases.settle(l!, ack, 10_001);
  leases.reply("1-0", reply("", { code: 409, err_code: 10409 }), 10_002);
  assert.equal(leases.unconfirmed, 1);
  assert.deepEqual(lost, []);
  leases.reply("1-1", reply(), 10_003);
  assert.equal(leases.unconfirmed, 0);
});

test("a refused answer is an error that says how often it was sent", () => {
  const [l] = take(1);
  leases.settle(l!, ack, 0);
  leases.tend(5_000);
  leases.reply("1-1", reply("", { code: 409, err_code: 10409 }), 5_001);
  assert.match(String(failures[0]), /ack of message m0, sent 2 times: no \(409/);
  assert.equal(leases.unconfirmed, 0);
});

test("answers of a batch go together, in ranges", () => {
  const all = take(7);
  for (const i of [0, 1, 4, 5]) leases.settle(all[i]!, ack, 1);
  leases.settle(all[2]!, '-NAK {"error":"timeout"}', 1);
  assert.deepEqual(payloads(), []);
  assert.equal(deferred.length, 1);
  deferred[0]!();
  assert.deepEqual(payloads(), ['0-1 +ACK\n2 -NAK {"error":"timeout"}\n4-5 +ACK\n']);
  leases.settle(all[3]!, ack, 2);
  leases.settle(all[6]!, ack, 2); // the last one waits for nobody
  assert.deepEqual(payloads(), ["3 +ACK\n6 +ACK\n"]);
  leases.flush(3);
  assert.deepEqual(payloads(), []);
});

test("refusals of a batch are read by index; the others are confirmed", () => {
  const all = take(3);
  for (const l of all) leases.settle(l, ack, 0);
  assert.deepEqual(payloads(), ["0-2 +ACK\n"]);
  leases.reply("1-0", reply('{"queue":"q","refused":[{"index":1,"code":409,"err_code":10409,"description":"gone"}]}'), 1);
  assert.equal(leases.unconfirmed, 0);
  assert.match(String(failures[0]), /ack of message m1: gone/);
});

test("only what is open of a batch is extended", () => {
  const all = take(4);
  leases.settle(all[1]!, ack, 1);
  deferred[0]!();
  leases.reply("1-0", reply('{"queue":"q"}'), 2);
  payloads();
  leases.tend(10_000);
  assert.deepEqual(payloads(), ["0 +WPI\n2-3 +WPI\n"]);
});

test("after a reconnect everything is sent again at once", () => {
  const all = take(2);
  leases.settle(all[0]!, ack, 0);
  deferred[0]!();
  payloads();
  leases.resend(100);
  assert.deepEqual(payloads(), ["0 +ACK\n", "1 +WPI\n"]);
});

test("large answers are split", () => {
  const all = take(1000);
  for (const [i, l] of all.entries()) leases.settle(l, `-NAK {"error":"${i}${"x".repeat(1000)}"}`, 0);
  const lines = sent.flatMap((s) => s.payload.trimEnd().split("\n").map((line) => Number(line.split(" ")[0])));
  assert.ok(sent.length > 1 && sent.every((s) => s.payload.length < 264_000), `${sent.length} requests`);
  assert.deepEqual(lines, all.map((_, i) => i));
});

test("on a closed connection answers fail instead of waiting", async () => {
  const [l] = take(1);
  broken = new Error("closed");
  leases.settle(l!, ack, 0);
  assert.deepEqual(failures, [broken]);
  await leases.confirmed();
});
