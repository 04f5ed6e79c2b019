import { setTimeout as sleep } from "node:timers/promises";
import { randomUUID } from "node:crypto";
import { connect, errors, headers as newHeaders, type ConnectionOptions, type Msg, type MsgHdrs, type NatsConnection, type NodeConnectionOptions } from "@nats-io/transport-node";
import { encode, json, type Codec } from "./codec.js";
import { FilaError, NoFilaError, NoReplyError, refusalIn, refusalsIn } from "./errors.js";
import { Guard, type GuardOptions } from "./guard.js";
import { Tracing } from "./tracing.js";
import type { AdminVerbs, BatchReply, ConsumeReply, ConsumerRequest, EnqueueReply, QueueReply, QueueSettings } from "./types.js";
import { checkQueue, duration, frame, inRange, keyTail, parseIDs } from "./wire.js";

export interface ClientOptions {
  /** The subject prefix, by default `fila`. */
  prefix?: string;
  /** Milliseconds that a request waits for its reply, by default 5,000. */
  timeout?: number;
  /** Milliseconds for which enqueues are retried, by default 10,000; 0: never. */
  retryFor?: number;
  /** How payloads become bytes, by default JSON. Bytes stay as they are. */
  codec?: Codec<any>;
  /** The beginning of reply subjects, by default that of the connection or `_INBOX`. */
  inboxPrefix?: string;
}

/** When a schedule makes messages. */
export interface ScheduleOptions {
  /** A schedule of the same name is replaced; 1 to 64 bytes of A-Za-z0-9_-. */
  name: string;
  /** `@every 90m`, `@daily`, `@at 2030-01-02T15:04:05Z` or cron with seconds: `0 30 2 * * mon-fri`. */
  when: string;
  /** The IANA time zone of cron, by default UTC. */
  timeZone?: string;
  /** What fila does about runs that it missed, by default `one`. */
  missed?: "skip" | "one" | "all";
}

export interface MessageOptions {
  /** Headers of the message. The settings of the queue say which one is the fairness key, and so on. */
  headers?: Record<string, string>;
  /**
   * The id by which fila recognises the message when it is sent again, 1 to 256 bytes; by default
   * a random one. Give your own, such as an order number, if your program may enqueue the same
   * message twice: after a crash, or when its own caller retries.
   */
  dedupeId?: string;
  /** Milliseconds until the message may be delivered. */
  delay?: number;
  /** The time before which the message is not delivered. */
  notBefore?: Date;
  /** Milliseconds, at least 1,000, after which the message is dead-lettered instead of delivered. */
  ttl?: number;
}

export interface RetryingOptions {
  /** Milliseconds for which the enqueue is retried; by default as the client says. */
  retryFor?: number;
  /** Ends the retries. */
  signal?: AbortSignal;
}

export interface EnqueueOptions extends MessageOptions, RetryingOptions {
  /** Makes a schedule of the queue instead of a message. Neither dedupeId, delay nor notBefore go with it. */
  schedule?: ScheduleOptions;
}

export interface BatchMessage<T = unknown> extends MessageOptions {
  payload: T;
}

/** Confirms an enqueue: the message is on disk, or finished. */
export type Receipt = EnqueueReply & { duplicate: boolean };

export interface BatchResult {
  /** By index; undefined if the message is refused. */
  receipts: (Receipt | undefined)[];
  /** The messages that are not confirmed, in their order. */
  refused: { index: number; error: Error }[];
}

/** What a part of the package hears of the connection. @internal */
export interface ConnectionListener {
  reconnected(): void;
  failed(error: Error): void;
}

const tenYears = 10 * 365 * 24 * 3600 * 1000;
const batchMessages = 1000;
const batchBytes = 256 << 10;
const headerRoom = 8 << 10; // what fila keeps of max_payload for its own headers

/** Talks to one fila over a NATS connection. */
export class Client {
  readonly prefix: string;
  readonly codec: Codec<any>;
  /** @internal */
  readonly tracing: Tracing;
  /** @internal */
  readonly inboxPrefix: string;
  readonly #timeout: number;
  readonly #retryFor: number;
  readonly #owned: boolean;
  readonly #waiting = new Set<(error: Error) => void>(); // requests without a reply
  readonly #listeners = new Set<ConnectionListener>();

  private constructor(
    readonly nc: NatsConnection,
    owned: boolean,
    tracing: Tracing,
    o: ClientOptions,
  ) {
    this.#owned = owned;
    this.prefix = o.prefix ?? "fila";
    this.codec = o.codec ?? json;
    this.tracing = tracing;
    this.inboxPrefix = o.inboxPrefix ?? (nc as { options?: ConnectionOptions }).options?.inboxPrefix ?? "_INBOX";
    this.#timeout = inRange("timeout", o.timeout ?? 5000, 1, tenYears);
    this.#retryFor = inRange("retryFor", o.retryFor ?? 10_000, 0, tenYears);
    void this.#watch();
  }

  /**
   * Connects to NATS, by default to `NATS_URL` or nats://127.0.0.1:4222, and reconnects for ever.
   * A connection of your own stays yours: close does not close it.
   */
  static async connect(to: string | string[] | NodeConnectionOptions | NatsConnection = process.env["NATS_URL"] ?? "nats://127.0.0.1:4222", options: ClientOptions = {}): Promise<Client> {
    const tracing = await Tracing.load();
    if (typeof to === "object" && "publish" in to) return new Client(to, false, tracing, options);
    const given = typeof to === "string" ? { servers: to.split(",") } : Array.isArray(to) ? { servers: to } : to;
    const nc = await connect({ maxReconnectAttempts: -1, reconnectTimeWait: 250, noAsyncTraces: true, inboxPrefix: options.inboxPrefix, ...given });
    return new Client(nc, true, tracing, options);
  }

  /** Sends what is buffered and closes the connection, unless it is your own. Stop workers before. */
  async close(): Promise<void> {
    if (this.#owned && !this.nc.isClosed()) await this.nc.drain();
  }

  /**
   * Enqueues a message. When it resolves, the message survives a crash of fila. It retries
   * refusals with 429, 500 and 503, and requests without a reply, which is safe: every message
   * has a dedupe id. After `retryFor` it rejects with the last error; with a
   * {@link NoReplyError} the message may have been stored.
   */
  async enqueue<T>(queue: string, payload: T, options: EnqueueOptions = {}): Promise<Receipt> {
    const subject = `${this.prefix}.enqueue.${checkQueue(queue)}`;
    const data = encode(this.codec, payload);
    const h = enqueueHeaders(options, options.schedule, queue);
    return this.tracing.publishing(queue, h, data.length, async () => {
      const retry = new Retrying(options, this.#retryFor);
      for (;;) {
        try {
          const reply = (await this.request(subject, data, h)).json<EnqueueReply>();
          return { ...reply, duplicate: reply.duplicate ?? false };
        } catch (error) {
          await retry.after([error as Error]);
        }
      }
    });
  }

  /**
   * Enqueues messages in batches. fila accepts or refuses each message by itself; refusals are
   * retried like those of {@link enqueue}, and what is refused in the end is in the result.
   */
  async enqueueBatch<T>(queue: string, messages: BatchMessage<T>[], options: RetryingOptions = {}): Promise<BatchResult> {
    const subject = `${this.prefix}.enqueue.${checkQueue(queue)}`;
    const frames = messages.map((m) => {
      const h = enqueueHeaders(m);
      this.tracing.inject(h);
      return frame(h, encode(this.codec, m.payload));
    });
    const results = new Array<Receipt | Error>(messages.length);
    const retry = new Retrying(options, this.#retryFor);
    for (let open = [...frames.keys()]; open.length > 0; ) {
      await this.#sendBatches(subject, frames, open, results);
      open = open.filter((i) => retryable(results[i]));
      try {
        if (open.length > 0) await retry.after(open.map((i) => results[i] as Error));
      } catch {
        break; // the result has the errors
      }
    }
    const refused = results.flatMap((error, index) => (error instanceof Error ? [{ index, error }] : []));
    return { receipts: results.map((r) => (r instanceof Error ? undefined : r)), refused };
  }

  /** Sends messages in their order, until a batch fails as a whole: later ones must not overtake it. */
  async #sendBatches(subject: string, frames: Uint8Array[][], open: number[], results: (Receipt | Error)[]): Promise<void> {
    const limit = Math.min(batchBytes, (this.nc.info?.max_payload ?? Infinity) - headerRoom);
    for (let from = 0; from < open.length; ) {
      let bytes = 0;
      let to = from;
      for (; to < open.length && to - from < batchMessages; to++) {
        bytes += frames[open[to]!]!.reduce((n, part) => n + part.length, 0);
        if (bytes > limit && to > from) break;
      }
      const part = open.slice(from, to);
      from = to;
      const h = newHeaders();
      h.set("Fila-Batch", String(part.length));
      try {
        const reply = (await this.request(subject, Buffer.concat(part.flatMap((i) => frames[i]!)), h)).json<BatchReply>();
        const ids = parseIDs(reply.ids, part.length);
        const refused = refusalsIn(reply.refused);
        const duplicates = new Set(reply.duplicates);
        part.forEach((i, n) => (results[i] = refused.get(n) ?? { id: ids[n]!, queue: reply.queue, duplicate: duplicates.has(n) }));
      } catch (error) {
        const rest = retryable(error) ? open.slice(from - part.length) : part;
        for (const i of rest) results[i] = error as Error;
        if (retryable(error)) return;
      }
    }
  }

  /** Makes a request of an admin verb. The tail is the queue or key that the verb is about. */
  async admin<V extends keyof AdminVerbs>(verb: V, tail: string, request?: AdminVerbs[V][0]): Promise<AdminVerbs[V][1]>;
  async admin<R = unknown>(verb: string, tail?: string, request?: object): Promise<R>;
  async admin(verb: string, tail = "", request: object = {}): Promise<unknown> {
    const key = tail === "" ? { tail: "", body: {} } : keyTail(tail);
    return this.call(`${this.prefix}.admin.${verb}${key.tail && "."}${key.tail}`, { ...request, ...key.body });
  }

  /** Makes a queue with these settings, or changes the settings of the queue that exists. */
  async ensureQueue(queue: string, settings: Partial<Omit<QueueSettings, "name">> = {}): Promise<QueueReply> {
    try {
      return await this.admin("queue-create", checkQueue(queue), settings);
    } catch (error) {
      if (!(error instanceof FilaError && error.errCode === 11409)) throw error;
      return this.admin("queue-update", queue, settings);
    }
  }

  /** Returns a guard, for calls that are no messages. */
  guard(options: GuardOptions = {}): Guard {
    return new Guard(this, options);
  }

  /** @internal */
  consumer(name: string, queue: string, request: ConsumerRequest): Promise<ConsumeReply> {
    return this.call(`${this.prefix}.consumer.${name}.${queue}`, request);
  }

  /** Makes a request whose body and reply are JSON. @internal */
  async call<R>(subject: string, body: object): Promise<R> {
    const h = newHeaders();
    h.set("Fila-Timeout-Ms", String(this.#timeout));
    this.tracing.inject(h);
    return (await this.request(subject, Buffer.from(JSON.stringify(body)), h)).json<R>();
  }

  /** Makes a request. It rejects with a refusal, a NoFilaError, a NoReplyError or an error of NATS. @internal */
  async request(subject: string, data: Uint8Array, headers: MsgHdrs): Promise<Msg> {
    const max = this.nc.info?.max_payload;
    if (max !== undefined && data.length > max) throw new FilaError(413, 10413, `the payload has ${data.length} bytes: allowed are ${max}, headers included`);
    let give: (error: Error) => void;
    const broken = new Promise<never>((_, reject) => this.#waiting.add((give = reject)));
    try {
      const reply = await Promise.race([broken, this.nc.request(subject, data, { timeout: this.#timeout, headers })]);
      const refusal = refusalIn(reply);
      if (refusal) throw refusal;
      return reply;
    } catch (error) {
      if (error instanceof errors.NoRespondersError || (error instanceof errors.RequestError && error.isNoResponders())) throw new NoFilaError(subject);
      if (error instanceof errors.TimeoutError || error === connectionLost) throw new NoReplyError(subject, { cause: error });
      throw error;
    } finally {
      this.#waiting.delete(give!);
    }
  }

  /** @internal */
  listen(listener: ConnectionListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #watch(): Promise<void> {
    for await (const status of this.nc.status()) {
      // What was sent between a disconnect and the reconnect is lost as well.
      if (status.type === "disconnect" || status.type === "reconnect") for (const give of this.#waiting) give(connectionLost);
      if (status.type === "reconnect") for (const l of this.#listeners) l.reconnected();
      if (status.type === "error") for (const l of this.#listeners) l.failed(status.error);
    }
  }
}

const connectionLost = new Error("the connection to NATS broke");

/** Reports whether the same message may be accepted later. A refused predecessor is retried before it. */
function retryable(error: unknown): boolean {
  if (error instanceof FilaError) return [429, 500, 503].includes(error.code) || error.errCode === 20409;
  return error instanceof NoFilaError || error instanceof NoReplyError;
}

/** The retries of an enqueue. */
class Retrying {
  readonly #until: number;
  readonly #signal: AbortSignal | undefined;
  #tries = 0;

  constructor(o: RetryingOptions, retryFor: number) {
    this.#until = performance.now() + (o.retryFor ?? retryFor);
    this.#signal = o.signal;
  }

  /** Waits for the next try, or throws the first error if there is none. */
  async after(all: Error[]): Promise<void> {
    const backoff = Math.min(50 * 2 ** this.#tries++, 2000);
    const asked = Math.max(...all.map((e) => (e instanceof FilaError && e.retryAfter) || 0));
    // Spread the retries of clients that failed at the same time.
    const pause = asked > 0 ? asked * (1 + Math.random() / 4) : backoff * (0.5 + Math.random() / 2);
    if (!retryable(all[0]) || performance.now() + pause > this.#until) throw all[0];
    await sleep(pause, undefined, { signal: this.#signal });
  }
}

function enqueueHeaders(o: MessageOptions, schedule?: ScheduleOptions, queue?: string): MsgHdrs {
  const h = newHeaders();
  for (const [name, value] of Object.entries(o.headers ?? {})) h.set(name, value);
  if (o.delay !== undefined) h.set("Fila-Delay", duration("delay", o.delay, 0, tenYears));
  if (o.notBefore !== undefined) h.set("Fila-Not-Before", o.notBefore.toISOString());
  if (o.ttl !== undefined) h.set(schedule ? "Nats-Schedule-TTL" : "Nats-TTL", duration("ttl", o.ttl, 1000, tenYears));
  if (o.dedupeId !== undefined || !schedule) h.set("Nats-Msg-Id", o.dedupeId ?? randomUUID());
  if (!schedule) return h;
  h.set("Nats-Schedule", schedule.when);
  h.set("Nats-Schedule-Target", queue ?? "");
  h.set("Fila-Schedule-Name", schedule.name);
  if (schedule.timeZone !== undefined) h.set("Nats-Schedule-Time-Zone", schedule.timeZone);
  if (schedule.missed !== undefined) h.set("Fila-Schedule-Missed", schedule.missed);
  return h;
}
