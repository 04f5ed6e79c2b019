import { setImmediate as immediate, setTimeout as sleep } from "node:timers/promises";
import { randomBytes } from "node:crypto";
import { createInbox, errors, type Msg, type Subscription } from "@nats-io/transport-node";
import type { Client } from "./client.js";
import type { Codec } from "./codec.js";
import { FilaError, NoFilaError, NoReplyError, StoppedError } from "./errors.js";
import { Leases, type Lease } from "./leases.js";
import { messagesIn, type Message } from "./message.js";
import { answerOf, outcomeOf, Retry, type Outcome } from "./outcome.js";
import type { ConsumerRequest } from "./types.js";
import { checkConsumer, checkQueue, inRange, year } from "./wire.js";

/**
 * Works on a message. When it returns, the message is finished; {@link Done}, {@link Retry} and
 * {@link Dead} say more. When it throws, the attempt has failed, with the text of the error and
 * its `code` or the name of its class.
 */
export type Handler<T> = (message: Message<T>) => Outcome | Promise<Outcome>;

/** Runs around the handler, or the next middleware. */
export type Middleware<T = any> = (message: Message<T>, next: () => Promise<Outcome>) => Outcome | Promise<Outcome>;

export interface WorkerOptions<T = any> {
  /** The name of the consumer, 1 to 64 bytes of A-Za-z0-9_-, unique among processes; by default random. */
  name?: string;
  /** How many handlers run at once, and how many messages fila sends ahead, 1 to 65,536, by default 1. */
  concurrency?: number;
  /** How many messages a delivery may have, 1 to 1,000, by default 1. Handlers see no difference. */
  batch?: number;
  /** `min`: deliveries cost less, without fila's headers other than the id and the attempt. */
  headers?: "all" | "min";
  /** How payloads are decoded; by default the client's codec. */
  codec?: Codec<T>;
  /** Functions around the handler, the outermost first. */
  middleware?: Middleware<T>[];
  /** Milliseconds for which fila keeps the registration without renewal, from 100, by default 30,000. */
  registrationTtl?: number;
  /** Hears of lost leases, refused acks and failed renewals; by default it writes to stderr. */
  onError?: (error: unknown) => void;
}

export interface RunOptions {
  /** The signals that stop the worker, by default SIGTERM and SIGINT. */
  signals?: NodeJS.Signals[];
  /** Milliseconds that {@link Worker.stop} waits, by default 25,000. */
  deadline?: number;
}

const retryRegister = 1000; // ms after a failed registration
const unknownField = 11400;
const longestTick = 250; // ms between two looks at leases

/** Receives messages of a queue and calls a handler for each, until it is stopped. */
export class Worker<T = any> {
  readonly name: string;
  readonly #client: Client;
  readonly #o: Required<Omit<WorkerOptions<T>, "name" | "middleware">>;
  readonly #chain: Handler<T>;
  readonly #leases: Leases;
  readonly #waiting: Lease<Message<T>>[] = [];
  readonly #keeping = new AbortController(); // of the registration
  readonly #inbox: string;
  #running = 0; // handlers
  #deliveries: Subscription | undefined;
  #replies: Subscription | undefined;
  #ticker: NodeJS.Timeout | undefined;
  #unlisten = (): void => {};
  #stopped: Promise<void> | undefined;
  #quiet: (() => void) | undefined; // called when no handler runs and no message waits
  #over = false; // the deadline of stop has passed

  constructor(client: Client, readonly queue: string, handler: Handler<T>, o: WorkerOptions<T> = {}) {
    this.name = checkConsumer(o.name ?? `w-${randomBytes(9).toString("hex")}`);
    checkQueue(queue);
    this.#client = client;
    this.#o = {
      concurrency: inRange("concurrency", o.concurrency ?? 1, 1, 65_536),
      batch: inRange("batch", o.batch ?? 1, 1, 1000),
      headers: o.headers ?? "all",
      codec: o.codec ?? client.codec,
      registrationTtl: inRange("registrationTtl", o.registrationTtl ?? 30_000, 100, year),
      onError: o.onError ?? ((error) => console.error(`fila worker of ${queue}:`, error)),
    };
    this.#chain = compose(handler, o.middleware ?? []);
    this.#inbox = `${createInbox(client.inboxPrefix)}.`;
    this.#leases = new Leases({
      send: (subject, payload, token) => this.#client.nc.publish(subject, payload, { reply: this.#inbox + token }),
      error: (error) => this.#o.onError(error),
      defer: (fn) => setImmediate(fn),
    });
  }

  /**
   * Starts, works until the process gets a signal, and stops. It rejects if the worker cannot
   * start, if the connection is closed for good, or if {@link stop} rejects.
   */
  async run({ signals = ["SIGTERM", "SIGINT"], deadline = 25_000 }: RunOptions = {}): Promise<void> {
    let stop = (): void => {};
    const signalled = new Promise<void>((resolve) => (stop = resolve));
    for (const signal of signals) process.once(signal, stop);
    try {
      await Promise.race([this.start(), signalled]);
      const closed = this.#client.nc.closed().then((error) => {
        if (!this.#stopped) throw new Error("the connection to NATS is closed", { cause: error });
      });
      await Promise.race([signalled, closed]);
      await this.stop({ deadline });
    } finally {
      for (const signal of signals) process.removeListener(signal, stop);
    }
  }

  /** Subscribes and registers. For 30 seconds it retries if fila does not answer. */
  async start(): Promise<void> {
    const { nc, prefix } = this.#client;
    if (this.#deliveries) throw new Error(`worker ${this.name} of ${this.queue} was started before`);
    const replies = this.#inbox.length;
    this.#replies = nc.subscribe(`${this.#inbox}*`, { callback: this.#receiver((msg) => this.#leases.reply(msg.subject.slice(replies), msg, now())) });
    // Before the registration: a delivery without a subscriber would end it.
    this.#deliveries = nc.subscribe(`${prefix}.deliver.${this.name}.${this.queue}`, { queue: this.name, callback: this.#receiver((msg) => this.#deliver(msg)) });
    try {
      await nc.flush();
      await this.#registerFirst();
    } catch (error) {
      this.#close();
      throw error;
    }
    if (this.#keeping.signal.aborted) return; // stopped meanwhile
    this.#unlisten = this.#client.listen({
      reconnected: () => {
        this.#leases.resend(now());
        void this.#renew();
      },
      failed: (error) => {
        if (error instanceof errors.PermissionViolationError && error.subject.endsWith(`.${this.queue}`)) this.#o.onError(error);
      },
    });
    void this.#keepRegistered();
  }

  /**
   * Leaves the queue, lets handlers finish the received messages, and waits until fila has
   * confirmed their acks. After the deadline it aborts the signals of the handlers, gives back the
   * messages that no handler has begun, and rejects if handlers or acks are left over.
   */
  stop({ deadline = 25_000 }: { deadline?: number } = {}): Promise<void> {
    return (this.#stopped ??= this.#stop(deadline));
  }

  async #stop(deadline: number): Promise<void> {
    const { nc } = this.#client;
    this.#keeping.abort();
    const timer = new AbortController();
    const over = sleep(deadline, false, { signal: timer.signal }).catch(() => true);
    await Promise.race([over, this.#client.consumer(this.name, this.queue, { leave: true }).catch(this.#o.onError)]);
    if (!nc.isClosed()) this.#deliveries?.unsubscribe(); // after the reply to leave nothing comes
    const quiet = new Promise<void>((resolve) => (this.#quiet = resolve));
    this.#pump();
    const inTime = await Promise.race([over, quiet.then(() => this.#leases.confirmed()).then(() => true)]);
    timer.abort();
    if (!inTime) await this.#giveUp();
    this.#close();
    const unconfirmed = this.#leases.unconfirmed;
    if (this.#running + unconfirmed > 0) {
      throw new Error(`worker of ${this.queue} stopped after ${deadline} ms with ${this.#running} unfinished handlers and ${unconfirmed} unconfirmed acks`);
    }
  }

  /** Gives back messages, and lets handlers that heed their signal end. */
  async #giveUp(): Promise<void> {
    this.#over = true;
    this.#leases.abort(new StoppedError());
    for (const lease of this.#waiting.splice(0)) this.#leases.settle(lease, answerOf(stopped()), now());
    await immediate(); // a handler that heeds its signal ends here
    await Promise.race([this.#leases.confirmed(), sleep(1000, undefined, { ref: false })]);
  }

  #close(): void {
    clearInterval(this.#ticker);
    this.#unlisten();
    if (this.#client.nc.isClosed()) return;
    this.#deliveries?.unsubscribe();
    this.#replies?.unsubscribe();
  }

  // --- registration

  async #register(): Promise<void> {
    const { concurrency, batch, headers, registrationTtl } = this.#o;
    const request: ConsumerRequest = { max_in_flight: concurrency, ttl_ms: registrationTtl, headers };
    const reply = await this.#client.consumer(this.name, this.queue, batch > 1 ? { ...request, batch } : request).catch((error) => {
      if (batch === 1 || !(error instanceof FilaError && error.errCode === unknownField)) throw error;
      return this.#client.consumer(this.name, this.queue, request); // a fila from before batches
    });
    if (reply.visibility_timeout_ms === this.#leases.visibility && this.#ticker) return;
    this.#leases.setVisibility(reply.visibility_timeout_ms, now());
    clearInterval(this.#ticker);
    this.#ticker = setInterval(() => this.#leases.tend(now()), Math.max(Math.min(reply.visibility_timeout_ms / 12, longestTick), 1));
  }

  async #registerFirst(): Promise<void> {
    for (const until = now() + 30_000; !this.#keeping.signal.aborted; await sleep(retryRegister)) {
      try {
        return await this.#register();
      } catch (error) {
        const again = error instanceof NoFilaError || error instanceof NoReplyError || (error instanceof FilaError && error.code === 503);
        if (!again || now() + retryRegister > until) throw error;
      }
    }
  }

  /** Renews the registration after a third of its time. */
  async #keepRegistered(): Promise<void> {
    const signal = this.#keeping.signal;
    for (let renewed = true; !signal.aborted && !this.#client.nc.isClosed(); renewed = await this.#renew()) {
      const third = this.#o.registrationTtl / 3;
      await sleep(renewed ? third : Math.min(third, retryRegister), undefined, { signal }).catch(() => {});
    }
  }

  async #renew(): Promise<boolean> {
    if (this.#keeping.signal.aborted) return true; // a registration after the leave would stay
    try {
      await this.#register();
      return true;
    } catch (error) {
      if (!this.#keeping.signal.aborted) this.#o.onError(new Error(`renew worker ${this.name} of ${this.queue}`, { cause: error }));
      return false;
    }
  }

  // --- messages

  #receiver(handle: (msg: Msg) => void): (error: Error | null, msg: Msg) => void {
    return (error, msg) => {
      try {
        if (error) throw error;
        handle(msg);
      } catch (failure) {
        this.#o.onError(failure); // what could not be parsed comes again when its lease ends
      }
    };
  }

  #deliver(msg: Msg): void {
    if (!msg.reply) return;
    const { batched, messages } = messagesIn<T>(this.queue, this.#o.codec, msg);
    this.#waiting.push(...this.#leases.take(msg.reply, batched, messages, now()));
    this.#pump();
  }

  #pump(): void {
    while (this.#running < this.#o.concurrency && this.#waiting.length > 0) {
      const lease = this.#waiting.shift()!;
      if (!lease.held) continue; // it was lost while it waited
      this.#running++;
      void this.#handle(lease);
    }
    if (this.#running === 0 && this.#waiting.length === 0) this.#quiet?.();
  }

  async #handle(lease: Lease<Message<T>>): Promise<void> {
    const message = lease.message;
    let result: unknown;
    try {
      result = await this.#client.tracing.processing(this.name, message, () => this.#chain(message));
    } catch (error) {
      result = this.#over ? stopped() : outcomeOf(error);
    }
    this.#leases.settle(lease, answerOf(result), now());
    this.#running--;
    this.#pump();
  }
}

/** The outcome of a message that another worker shall have at once. */
function stopped(): Outcome {
  return new Retry({ delay: 0, error: "worker stopped", code: "stopped" });
}

function compose<T>(handler: Handler<T>, middleware: Middleware<T>[]): Handler<T> {
  return middleware.reduceRight<Handler<T>>((next, around) => (message) => around(message, async () => next(message)), handler);
}

function now(): number {
  return Math.floor(performance.now());
}
