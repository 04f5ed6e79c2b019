import { headers, type MsgHdrs } from "@nats-io/transport-node";

/** Milliseconds, the longest time that fila accepts in most places. */
export const year = 365 * 24 * 3600 * 1000;

/** Refuses a number that fila would refuse. */
export function inRange(name: string, value: number, low: number, high: number): number {
  if (value >= low && value <= high) return value; // false for NaN
  throw new RangeError(`${name} is ${value}: allowed are ${low} to ${high}`);
}

/** Returns milliseconds as a Go duration. */
export function duration(name: string, ms: number, low = 0, high = year): string {
  return `${Math.ceil(inRange(name, ms, low, high))}ms`;
}

export function checkQueue(name: string): string {
  if (/^[\w-]+(\.[\w-]+)*$/.test(name) && name.replace(/\.dlq$/, "").length <= 128) return name;
  throw new RangeError(`queue name ${JSON.stringify(name)}: allowed are 1 to 128 bytes of A-Za-z0-9_- with dots between non-empty parts`);
}

export function checkConsumer(name: string): string {
  if (/^[\w-]{1,64}$/.test(name)) return name;
  throw new RangeError(`consumer name ${JSON.stringify(name)}: allowed are 1 to 64 bytes of A-Za-z0-9_-`);
}

/** Returns the tail of a subject for a key. Keys that are not legal there go into the body as `key`. */
export function keyTail(key: string): { tail: string; body: { key?: string } } {
  const legal = Buffer.byteLength(key) <= 512 && /^[^\s>\p{C}\p{Z}]+$/u.test(key) && key.split(".").every((part) => part !== "" && part !== "*");
  return legal ? { tail: key, body: {} } : { tail: "_", body: { key } };
}

/** Returns a message as it is in a batch: two lengths, header lines, payload. */
export function frame(h: MsgHdrs, payload: Uint8Array): Uint8Array[] {
  let lines = "";
  for (const [name, values] of h) for (const value of values) lines += `${name}: ${value}\r\n`;
  const text = Buffer.from(lines);
  const lengths = Buffer.allocUnsafe(8);
  lengths.writeUInt32BE(text.length, 0);
  lengths.writeUInt32BE(payload.length, 4);
  return [lengths, text, payload];
}

const head = 36; // bytes in front of a delivery

/** A message of a batch of deliveries. It shares memory with the batch. */
export class Delivered {
  constructor(
    private readonly batch: Buffer,
    private readonly at: number,
    private readonly body: number, // where the payload begins
    private readonly end: number,
  ) {}

  get id(): string {
    return uuid(this.batch.subarray(this.at + 8, this.at + 24));
  }

  get attempt(): number {
    return this.batch.readUInt32BE(this.at + 24);
  }

  /** The end of the lease. */
  get deadline(): Date {
    return new Date(Number(this.batch.readBigInt64BE(this.at + 28) / 1_000_000n));
  }

  get headers(): MsgHdrs {
    const h = headers();
    for (const line of this.batch.toString("utf8", this.at + head, this.body).split("\r\n")) {
      const colon = line.indexOf(":");
      if (colon > 0) h.append(line.slice(0, colon), line.slice(colon + 1));
    }
    return h;
  }

  get data(): Uint8Array {
    return this.batch.subarray(this.body, this.end);
  }
}

/** Returns the messages of a batch of n deliveries. */
export function parseDelivered(batch: Uint8Array, n: number): Delivered[] {
  const data = Buffer.from(batch.buffer, batch.byteOffset, batch.byteLength);
  const all: Delivered[] = [];
  let at = 0;
  for (let i = 0; i < n; i++) {
    const body = data.length - at < head ? Infinity : at + head + data.readUInt32BE(at);
    const end = body === Infinity ? body : body + data.readUInt32BE(at + 4);
    if (end > data.length) throw new Error(`the batch ends within delivery ${i} of ${n}`);
    all.push(new Delivered(data, at, body, end));
    at = end;
  }
  if (at < data.length) throw new Error(`${data.length - at} bytes follow the ${n} deliveries of the batch`);
  return all;
}

/** Returns the ids in the reply to a batch of n messages. */
export function parseIDs(ids: string | undefined, n: number): string[] {
  const raw = Buffer.from(ids ?? "", "base64url");
  if (raw.length !== 16 * n) throw new Error(`the reply to a batch has ${raw.length} bytes of ids for ${n} messages`);
  return Array.from({ length: n }, (_, i) => uuid(raw.subarray(16 * i, 16 * i + 16)));
}

function uuid(raw: Buffer): string {
  const hex = raw.toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** Returns the line that answers the messages of a batch from one index to another. */
export function answerLine(from: number, to: number, payload: string): string {
  return `${from === to ? from : `${from}-${to}`} ${payload.replace(/[\r\n]/g, " ")}\n`;
}
