import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { headers, type Msg } from "@nats-io/transport-node";
import { Dead, Done, FilaError, Retry } from "../src/index.js";
import { failureOf, answerOf, outcomeOf } from "../src/outcome.js";
import { refusalIn, refusalsIn } from "../src/errors.js";
import { Message } from "../src/message.js";
import { json } from "../src/codec.js";
import { answerLine, checkConsumer, checkQueue, duration, frame, keyTail, parseDelivered, parseIDs } from "../src/wire.js";

// What the Go code makes and reads: golden.go writes it.
const golden = JSON.parse(readFileSync("test/testdata/golden.json", "utf8"));

test("a batch has the bytes that the Go code makes", () => {
  const parts = golden.messages.flatMap((m: { name: string; value: string; payload: string }) => {
    const h = headers();
    if (m.name) h.set(m.name, m.value);
    return frame(h, Buffer.from(m.payload, "hex"));
  });
  assert.equal(Buffer.concat(parts).toString("hex"), golden.batch);
});

test("a batch of deliveries of the Go code is read", () => {
  const bytes = Buffer.from(golden.delivered, "hex");
  const all = parseDelivered(bytes, 3);
  assert.deepEqual(all.map((d) => d.id), [0, 1, 2].map((i) => `01981c2e-0000-7000-8000-00000000000${i}`));
  assert.deepEqual(all.map((d) => d.attempt), [1, 2, 3]);
  assert.deepEqual(all.map((d) => d.deadline.getTime()), [1893596645123, 1893596645123, 1893596645123]);
  assert.deepEqual(all.map((d) => Buffer.from(d.data).toString("hex")), golden.messages.map((m: { payload: string }) => m.payload));
  for (const [i, m] of golden.messages.entries()) assert.equal(all[i]!.headers.get(m.name), m.value);
  for (let n = 0; n < bytes.length; n++) {
    assert.throws(() => parseDelivered(bytes.subarray(0, n), 3), /ends within delivery|follow/);
  }
  assert.throws(() => parseDelivered(bytes, 2), /bytes follow the 2 deliveries/);
  assert.throws(() => parseDelivered(bytes, 4), /ends within delivery 3 of 4/);
});

test("the answers are those that the Go code understands", () => {
  const outcomes: unknown[] = [
    undefined, new Done({ cost: 3.12 }), new Done({ cost: 0 }), new Done({ cost: 12, remaining: 4000, reset: 800.5 }), new Retry(), new Retry({ code: "429", cost: 0, remaining: 0 }),
    new Retry({ delay: 30_000, error: 'timeout "x"\n2nd line', code: "E42", retryAfter: 1000 }), new Retry({ delay: 0 }),
    new Dead(""), new Dead("no such\nuser"), new Dead("no such user", { code: "gone" }),
  ];
  const answers = outcomes.map((o) => answerOf(o));
  const known = golden.acks.map((a: { payload: string }) => a.payload);
  assert.deepEqual(answers, known.slice(0, -1)); // the last one is +WPI
  assert.deepEqual(golden.acks.map((a: { kind: string }) => a.kind), ["ack", "ack", "ack", "ack", "nack", "nack", "nack", "nack", "term", "term", "term", "progress"]);
  assert.equal(golden.acks[6].delay_ms, 30_000);
});

test("results and errors become answers", () => {
  assert.equal(answerOf(null), "+ACK");
  assert.equal(answerOf(42), "+ACK"); // a handler may return anything
  assert.equal(answerOf(new Done()), "+ACK");
  class CardError extends Error {}
  const cases: [unknown, string][] = [
    [new CardError("declined"), '-NAK {"error":"declined","code":"CardError"}'],
    [Object.assign(new Error("no"), { code: "ECONNREFUSED" }), '-NAK {"error":"no","code":"ECONNREFUSED"}'],
    [Object.assign(new Error("busy"), { code: 429, retryAfter: 1500.2 }), '-NAK {"error":"busy","code":"429","retry_after_ms":1501}'],
    [Object.assign(new Error("busy"), { retryAfter: Infinity }), '-NAK {"error":"busy","code":"Error","retry_after_ms":31536000000}'],
    [Object.assign(new Error("busy"), { retryAfter: NaN }), '-NAK {"error":"busy","code":"Error"}'],
    [new FilaError(429, 10429, "full", 500), '-NAK {"delay":"500ms","error":"full (429, err_code 10429)","code":"429"}'],
    ["just text", '-NAK {"error":"just text","code":"Error"}'],
    [undefined, '-NAK {"error":"undefined","code":"Error"}'],
    [new Error(""), '-NAK {"error":"Error","code":"Error"}'],
    [new Dead("x"), '+TERM {"error":"x"}'],
  ];
  for (const [thrown, payload] of cases) assert.equal(answerOf(outcomeOf(thrown)), payload);
  assert.equal(failureOf(new Error("x".repeat(5000))).error.length, 1024);
});

test("values out of range are refused with what is allowed", () => {
  assert.throws(() => new Done({ cost: -1 }), /cost is -1: allowed are 0 to 1000000/);
  assert.throws(() => new Done({ cost: NaN }), /cost is NaN/);
  assert.throws(() => new Retry({ remaining: 1e13 }), /remaining is 10000000000000: allowed are 0 to 1000000000000/);
  assert.throws(() => new Done({ reset: 5 }), /reset is given without remaining/);
  assert.throws(() => new Retry({ delay: 366 * 24 * 3600 * 1000 }), /delay is 31622400000: allowed are 0 to 31536000000/);
  assert.throws(() => new Retry({ retryAfter: -5 }), /retryAfter is -5/);
  assert.throws(() => duration("ttl", 999, 1000), /ttl is 999: allowed are 1000 to/);
  for (const bad of ["", "a..b", ".a", "a.", "a b", "a*", "ä", "x".repeat(129)]) assert.throws(() => checkQueue(bad), /allowed are 1 to 128 bytes/);
  for (const good of ["orders", "a.b-c_D.9", "x".repeat(128), `${"x".repeat(128)}.dlq`]) assert.equal(checkQueue(good), good);
  for (const bad of ["", "a.b", "x".repeat(65)]) assert.throws(() => checkConsumer(bad), /allowed are 1 to 64 bytes/);
});

test("keys that are not legal in a subject go into the body, as in the Go code", () => {
  for (const [key, tail] of Object.entries(golden.key_tails)) {
    assert.deepEqual(keyTail(key), tail === "_" ? { tail, body: { key } } : { tail, body: {} }, JSON.stringify(key));
  }
});

test("lines answer single messages and ranges", () => {
  const lines = answerLine(0, 1, "+ACK") + answerLine(2, 2, '-NAK {"error":"timeout"}') + answerLine(3, 3, "+WPI") + answerLine(4, 6, "+ACK");
  assert.equal(lines, golden.lines);
  assert.deepEqual(golden.kinds, ["ack", "ack", "nack", "progress", "ack", "ack", "ack"]);
  assert.equal(answerLine(7, 7, "+TERM a\r\nb"), "7 +TERM a  b\n");
});

test("the reply to a batch is read", () => {
  assert.deepEqual(parseIDs(golden.batch_reply.ids, 4).slice(0, 2), ["00010203-0405-0607-0809-0a0b0c0d0e0f", "10111213-1415-1617-1819-1a1b1c1d1e1f"]);
  assert.throws(() => parseIDs(golden.batch_reply.ids, 3), /64 bytes of ids for 3 messages/);
  assert.throws(() => parseIDs(undefined, 1), /0 bytes of ids for 1 messages/);
  const refused = refusalsIn(golden.batch_reply.refused);
  assert.deepEqual([...refused.keys()], [2, 3]);
  assert.equal(refused.get(3)!.description, 'queue "orders" is full'); // given with the first of its number
  assert.equal(refused.get(3)!.retryAfter, 500);
});

test("a refusal is read from header and body", () => {
  const reply = (h: Record<string, string>, body: string): Msg => {
    const hs = headers();
    for (const [name, value] of Object.entries(h)) hs.set(name, value);
    return { headers: hs, data: Buffer.from(body), json: () => JSON.parse(body) } as unknown as Msg;
  };
  assert.equal(refusalIn(reply({}, "{}")), undefined);
  const full = refusalIn(reply({ "Nats-Service-Error-Code": "429", "Nats-Service-Error": "full", "Fila-Retry-After-Ms": "120" }, '{"error":{"code":429,"err_code":10429,"description":"is full"}}'))!;
  assert.deepEqual([full.code, full.errCode, full.description, full.retryAfter], [429, 10429, "is full", 120]);
  const foreign = refusalIn(reply({ "Nats-Service-Error-Code": "x", "Nats-Service-Error": "odd", "Retry-After": "2" }, "no json"))!;
  assert.deepEqual([foreign.code, foreign.errCode, foreign.description, foreign.retryAfter], [500, 0, "odd", 2000]);
});

test("a payload that cannot be decoded is dead", () => {
  const part = parseDelivered(Buffer.from(golden.delivered, "hex"), 3)[2]!;
  const m = new Message("q", json, part);
  assert.throws(() => m.payload, (error) => error instanceof Dead && error.options.code === "bad_payload");
  assert.equal(Buffer.from(m.data).toString("hex"), "00ff");
});
