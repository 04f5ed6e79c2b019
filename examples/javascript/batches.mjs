// Sends messages to a queue of fila in one batch, and consumes them in batches, with
// @nats-io/transport-node alone.
//
//   node batches.mjs QUEUE [COUNT]

import { connect, headers } from "@nats-io/transport-node";

const [queue, count = 20] = process.argv.slice(2);
const nc = await connect({ servers: process.env.NATS_URL });

// frame is a message in a batch: two lengths, header lines, payload.
function frame(fields, payload) {
  const lines = Buffer.from(Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`).join(""));
  const lengths = Buffer.alloc(8);
  lengths.writeUInt32BE(lines.length, 0);
  lengths.writeUInt32BE(payload.length, 4);
  return Buffer.concat([lengths, lines, payload]);
}

// deliveries are the messages of a delivery.
function* deliveries(msg) {
  const data = Buffer.from(msg.data);
  for (let at = 0; at < data.length; ) {
    const body = at + 36 + data.readUInt32BE(at), end = body + data.readUInt32BE(at + 4);
    const lines = data.toString("utf8", at + 36, body).split("\r\n").slice(0, -1);
    yield {
      id: data.toString("hex", at + 8, at + 24),
      attempt: data.readUInt32BE(at + 24),
      headers: Object.fromEntries(lines.map((line) => line.split(/: (.*)/s, 2))),
      payload: data.subarray(body, end),
    };
    at = end;
  }
}

const handled = new Set();
const sub = nc.subscribe(`fila.deliver.batches.${queue}`);
await nc.flush();
await nc.request(`fila.consumer.batches.${queue}`, '{"max_in_flight":256,"batch":64}', { timeout: 10_000 });
const all = Array.from({ length: count }, (_, i) => frame({ tenant: "acme" }, Buffer.from(`message ${i}`)));
const h = headers();
h.set("Fila-Batch", String(count));
console.log("stored:", (await nc.request(`fila.enqueue.${queue}`, Buffer.concat(all), { timeout: 10_000, headers: h })).string());
for await (const msg of sub) {
  let answers = "";
  for (const [i, m] of [...deliveries(msg)].entries()) {
    const failed = m.payload.toString().endsWith("7") && m.attempt === 1;
    answers += failed ? `${i} -NAK {"error":"not now","delay":0}\n` : `${i} +ACK\n`;
    if (!failed) handled.add(m.id);
  }
  console.log("acked:", (await nc.request(msg.reply, answers, { timeout: 10_000 })).string());
  if (handled.size === Number(count)) break;
}
await nc.request(`fila.consumer.batches.${queue}`, '{"leave":true}', { timeout: 10_000 });
await nc.drain();
console.log(`handled ${handled.size} messages`);
