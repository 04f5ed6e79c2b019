// Compares a worker with an empty handler with a loop of the plain NATS client that sends the
// same acks and counts their confirmations. Rounds are interleaved; it prints medians.
//
//   npm run bench -- [MESSAGES [ROUNDS]]
import { createInbox } from "@nats-io/transport-node";
import { Worker, type Client } from "../src/index.js";
import { Fila } from "../src/testing.js";

const [messages = 20_000, rounds = 7] = process.argv.slice(2).map(Number);
const credit = 256;
const queue = "bench";

interface Result {
  rate: number; // messages per second
  cpu: number; // microseconds of this process per message
}

async function measure(consume: (done: () => void) => Promise<() => Promise<unknown>>): Promise<Result> {
  const all = Array.from({ length: messages }, (_, payload) => ({ payload }));
  const { refused } = await client.enqueueBatch(queue, all);
  if (refused.length > 0) throw refused[0]!.error;
  const cpu = process.cpuUsage();
  const began = performance.now();
  let stop: (() => Promise<unknown>) | undefined;
  await new Promise<void>((resolve, reject) => consume(resolve).then((s) => (stop = s), reject));
  const seconds = (performance.now() - began) / 1000;
  const used = process.cpuUsage(cpu);
  await stop?.();
  return { rate: messages / seconds, cpu: (used.user + used.system) / messages };
}

/** The worker stops when all acks are confirmed. */
const worker = (batch: number) => (): Promise<Result> => measure(async (done) => {
  let handled = 0;
  const w = new Worker(client, queue, () => {
    if (++handled === messages) setImmediate(() => void w.stop().then(done));
  }, { concurrency: credit, batch });
  await w.start();
  return () => w.stop();
});

/** A loop that publishes its acks and counts their confirmations, or that requests each, as plain consumers do. */
const plain = (batch: number, request: boolean) => (): Promise<Result> => measure(async (done) => {
  const { nc } = client;
  const inbox = createInbox();
  const sizes: number[] = [];
  let confirmed = 0;
  const count = (n: number): void => {
    confirmed += n;
    if (confirmed === messages) void leave().then(done);
  };
  const replies = nc.subscribe(`${inbox}.*`, { callback: (_, reply) => count(sizes[Number(reply.subject.slice(inbox.length + 1))]!) });
  const deliveries = nc.subscribe(`fila.deliver.plain.${queue}`, { callback: (_, msg) => {
    const n = Number(msg.headers?.get("Fila-Batch") || 1);
    if (batch > 1) payloads(msg.data);
    const ack = batch > 1 ? `0-${n - 1} +ACK\n` : "+ACK";
    if (request) void nc.request(msg.reply!, ack, { timeout: 10_000 }).then(() => count(n));
    else nc.publish(msg.reply!, ack, { reply: `${inbox}.${sizes.push(n) - 1}` });
  } });
  const ask = (body: object): Promise<unknown> => nc.request(`fila.consumer.plain.${queue}`, JSON.stringify(body), { timeout: 10_000 });
  const leave = (): Promise<unknown> => ask({ leave: true }).then(() => (deliveries.unsubscribe(), replies.unsubscribe()));
  await nc.flush();
  await ask({ max_in_flight: credit, ttl_ms: 30_000, batch: batch > 1 ? batch : undefined });
  return async () => {};
});

/** Returns the payloads in a batch of deliveries. */
function payloads(batch: Uint8Array): Uint8Array[] {
  const data = Buffer.from(batch.buffer, batch.byteOffset, batch.byteLength);
  const all: Uint8Array[] = [];
  for (let at = 0; at < data.length; ) {
    const body = at + 36 + data.readUInt32BE(at);
    const end = body + data.readUInt32BE(at + 4);
    all.push(data.subarray(body, end));
    at = end;
  }
  return all;
}

const median = (all: number[]): number => all.sort((a, b) => a - b)[Math.floor(all.length / 2)]!;

const fila = await Fila.start();
const client: Client = await fila.client();
await client.ensureQueue(queue);
for (const batch of [1, 64]) {
  const runs = { worker: worker(batch), "plain, acks requested": plain(batch, true), "plain, acks published": plain(batch, false) };
  const results = new Map(Object.keys(runs).map((name) => [name, [] as Result[]]));
  for (let round = -1; round < rounds; round++) {
    for (const [name, run] of Object.entries(runs)) {
      const result = await run();
      if (round >= 0) results.get(name)!.push(result); // the first round warms up
    }
  }
  console.log(`deliveries of ${batch}, ${messages} messages, medians of ${rounds} rounds`);
  for (const [name, all] of results) {
    const against = (what: keyof Result): string => median(results.get("worker")!.map((w, i) => what === "rate" ? w.rate / all[i]!.rate : all[i]!.cpu / w.cpu)).toFixed(2);
    console.log(`  ${name.padEnd(22)} ${Math.round(median(all.map((r) => r.rate)))}/s, ${median(all.map((r) => r.cpu)).toFixed(1)} µs of CPU a message; the worker has ${against("rate")} of its rate, and ${against("cpu")} by CPU`);
  }
}
await client.close();
await fila.stop();
