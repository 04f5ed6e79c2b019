import type { Msg } from "@nats-io/transport-node";
import { FilaError, LeaseLostError, NoReplyError, refusalIn, refusalsIn } from "./errors.js";
import type { BatchReply } from "./types.js";
import { answerLine } from "./wire.js";

const resendAfter = 250; // ms until an answer without responders is repeated
const replyWithin = 5000; // ms until an answer without a reply is repeated
const maxAnswerBytes = 256 << 10; // of the answers in one request

/** A message that can lose its lease. */
export interface Leased {
  readonly id: string;
  lost(reason: Error): void;
}

/** A received message until fila has confirmed its answer. */
export interface Lease<M extends Leased = Leased> {
  readonly message: M;
  readonly delivery: Delivery;
  readonly index: number; // in the delivery
  due: number; // when to send the answer, or else an extension
  answer: string | undefined;
  sent: number; // how often the answer was sent
  giveUp: number; // when to stop repeating the answer, if there is one
  held: boolean;
}

/** A NATS message with one or several leased messages. */
interface Delivery {
  readonly id: number;
  readonly ackTo: string;
  readonly batched: boolean;
  leases: Lease[];
  held: number;
  open: number; // leases without an answer
  requests: (Request | undefined)[]; // by number
}

/** Answers or extensions that were sent together. */
interface Request {
  readonly answered: boolean;
  readonly leases: Lease[];
}

export interface LeaseEvents {
  /** Publishes to a reply subject. The reply comes back to {@link Leases.reply} with the token. */
  send(subject: string, payload: string, token: string): void;
  error(error: unknown): void;
  /** Calls a function when the present events are handled; answers of a batch wait until then. */
  defer(fn: () => void): void;
}

/**
 * The leases of a worker. It extends a lease until there is an answer, and repeats the answer
 * until fila confirms or refuses it. Answers to messages of one delivery go together. It has no
 * timers: the worker calls tend. Times are milliseconds of a clock that never goes back.
 */
export class Leases {
  /** How long a lease lasts, ms. */
  visibility = 30_000;
  #lastID = 0;
  #deliveries = new Map<number, Delivery>(); // with leases that are held
  #gathered = new Set<Delivery>(); // with answers that wait for others
  #unconfirmed = 0;
  #idle: (() => void)[] = [];

  constructor(private readonly events: LeaseEvents) {}

  /** Holds the messages of a delivery. */
  take<M extends Leased>(ackTo: string, batched: boolean, messages: M[], now: number): Lease<M>[] {
    const d: Delivery = { id: ++this.#lastID, ackTo, batched, leases: [], held: messages.length, open: messages.length, requests: [] };
    const due = now + this.#extendEvery;
    const leases = messages.map<Lease<M>>((message, index) => ({ message, delivery: d, index, due, answer: undefined, sent: 0, giveUp: 0, held: true }));
    d.leases = leases;
    this.#deliveries.set(d.id, d);
    return leases;
  }

  /** Answers a message, unless its lease is lost or answered. */
  settle(lease: Lease, answer: string, now: number): void {
    if (!lease.held || lease.answer) return;
    const d = lease.delivery;
    lease.answer = answer;
    lease.giveUp = now + 2 * Math.max(this.visibility, replyWithin);
    lease.due = now + replyWithin;
    this.#unconfirmed++;
    d.open--;
    if (d.open === 0) return this.#sendNew(d, now);
    if (this.#gathered.size === 0) this.events.defer(() => this.flush(now));
    this.#gathered.add(d);
  }

  /** Sends the answers that wait for others. */
  flush(now: number): void {
    const all = [...this.#gathered];
    this.#gathered.clear();
    for (const d of all) this.#sendNew(d, now);
  }

  /** Sends what is due. */
  tend(now: number): void {
    for (const d of this.#deliveries.values()) {
      const due = d.leases.filter((l) => l.held && l.due <= now);
      for (const l of due) {
        if (!l.answer || l.giveUp > now) continue;
        this.#release(l);
        this.events.error(new NoReplyError(`the ack of message ${l.message.id}`));
      }
      this.#send(d, due.filter((l) => l.held), now);
    }
  }

  /** Makes everything due: a connection that broke may have lost it. */
  resend(now: number): void {
    for (const l of this.#held()) l.due = now;
    this.tend(now);
  }

  /** Changes the visibility timeout, and extends earlier if it is shorter. */
  setVisibility(ms: number, now: number): void {
    this.visibility = ms;
    for (const l of this.#held()) l.due = Math.min(l.due, now + this.#extendEvery);
  }

  /** Aborts the messages without an answer. */
  abort(reason: Error): void {
    for (const l of this.#held()) if (!l.answer) l.message.lost(reason);
  }

  /** Resolves when fila has confirmed or refused every answer. */
  confirmed(): Promise<void> {
    return this.#unconfirmed === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  /** The number of answers that fila has not confirmed. */
  get unconfirmed(): number {
    return this.#unconfirmed;
  }

  /** Handles the reply to a request. */
  reply(token: string, msg: Msg, now: number): void {
    const [id = -1, number = -1] = token.split("-").map(Number);
    const d = this.#deliveries.get(id);
    const request = d?.requests[number];
    if (!d || !request) return;
    d.requests[number] = undefined;
    const whole = refusalIn(msg);
    const nobody = !whole && msg.data.length === 0 && msg.headers?.code === 503;
    const refused = whole || msg.data.length === 0 ? undefined : refusalsIn(msg.json<BatchReply>().refused);
    const { answered } = request;
    for (const lease of request.leases) {
      // A reply to an extension of a message that was answered meanwhile says nothing.
      if (!lease.held || answered !== (lease.answer !== undefined)) continue;
      const refusal = whole ?? refused?.get(lease.index);
      if (nobody || (refusal && refusal.code >= 500)) {
        const again = now + Math.max(refusal?.retryAfter ?? 0, resendAfter);
        lease.due = answered ? again : Math.min(lease.due, again);
      } else if (refusal) {
        this.#refused(lease, answered, refusal);
      } else if (answered) {
        this.#release(lease);
      }
    }
  }

  /** So two extensions may be lost. */
  get #extendEvery(): number {
    return Math.ceil(this.visibility / 3);
  }

  #held(): Lease[] {
    return [...this.#deliveries.values()].flatMap((d) => d.leases.filter((l) => l.held));
  }

  #refused(lease: Lease, answered: boolean, refusal: FilaError): void {
    this.#release(lease);
    if (answered) {
      // After several tries a lost lease may mean that an earlier one has arrived.
      const times = lease.sent > 1 ? `, sent ${lease.sent} times` : "";
      this.events.error(new Error(`ack of message ${lease.message.id}${times}: ${refusal.message}`, { cause: refusal }));
      return;
    }
    const lost = new LeaseLostError(lease.message.id, refusal);
    lease.message.lost(lost);
    this.events.error(lost);
  }

  #sendNew(d: Delivery, now: number): void {
    this.#send(d, d.leases.filter((l) => l.held && l.answer && l.sent === 0), now);
  }

  /** Sends answers or extensions of messages in the order of their index. */
  #send(d: Delivery, leases: Lease[], now: number): void {
    for (let from = 0, to = 0; from < leases.length; from = to) {
      const first = leases[from]!;
      let payload = "";
      // A request has answers or extensions.
      while (to < leases.length && sameRequest(leases[to]!, first) && payload.length < maxAnswerBytes) {
        const start = leases[to]!;
        const same = start.answer ?? "+WPI";
        do {
          this.#sent(leases[to]!, now);
          to++;
        } while (to < leases.length && leases[to]!.index === leases[to - 1]!.index + 1 && sameRequest(leases[to]!, first) && (leases[to]!.answer ?? "+WPI") === same);
        payload += d.batched ? answerLine(start.index, leases[to - 1]!.index, same) : same;
      }
      const request = { answered: first.answer !== undefined, leases: leases.slice(from, to) };
      const token = `${d.id}-${d.requests.push(request) - 1}`;
      try {
        this.events.send(d.ackTo, payload, token);
      } catch (error) {
        this.events.error(error); // such as a closed connection
        if (request.answered) for (const l of request.leases) this.#release(l);
      }
    }
  }

  #sent(l: Lease, now: number): void {
    if (l.answer) l.sent++;
    l.due = now + (l.answer ? replyWithin : this.#extendEvery);
  }

  #release(l: Lease): void {
    if (!l.held) return;
    l.held = false;
    const d = l.delivery;
    if (--d.held === 0) this.#deliveries.delete(d.id);
    if (!l.answer) {
      d.open--;
      return;
    }
    if (--this.#unconfirmed === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }
}

function sameRequest(a: Lease, b: Lease): boolean {
  return (a.answer === undefined) === (b.answer === undefined);
}
