import { headers, type Msg, type MsgHdrs } from "@nats-io/transport-node";
import type { Codec } from "./codec.js";
import { Dead } from "./outcome.js";
import { Delivered, parseDelivered } from "./wire.js";

/**
 * A message that is leased to a worker. The same message may come again, in this process or
 * another one: after a failure, after a lost lease, and after an ack that was lost.
 */
export class Message<T = unknown> {
  readonly #source: Msg | Delivered;
  readonly #codec: Codec<T>;
  #headers: MsgHdrs | undefined;
  #controller: AbortController | undefined;
  #aborted: Error | undefined;

  /** @internal */
  constructor(
    /** The queue that delivers it. */
    readonly queue: string,
    codec: Codec<T>,
    source: Msg | Delivered,
  ) {
    this.#source = source;
    this.#codec = codec;
  }

  /** The headers: the producer's and, without `headers: "min"`, fila's. */
  get headers(): MsgHdrs {
    return (this.#headers ??= this.#source.headers ?? headers());
  }

  /** A UUID; the same over all attempts. */
  get id(): string {
    return this.#source instanceof Delivered ? this.#source.id : this.headers.get("Fila-Id");
  }

  /** 1 on the first delivery. */
  get attempt(): number {
    return this.#source instanceof Delivered ? this.#source.attempt : Number(this.headers.get("Fila-Attempt"));
  }

  /** The fairness key; empty with `headers: "min"`. */
  get key(): string {
    return this.headers.get("Fila-Key");
  }

  /** The route by which it goes; empty if it has no choice. */
  get route(): string {
    return this.headers.get("Fila-Route");
  }

  /** When it was enqueued; undefined with `headers: "min"`. */
  get enqueuedAt(): Date | undefined {
    return this.#time("Fila-Enqueued-At");
  }

  /** The end of the lease as of the delivery; undefined with `headers: "min"`, except in a batch. */
  get deadline(): Date | undefined {
    return this.#source instanceof Delivered ? this.#source.deadline : this.#time("Fila-Deadline");
  }

  /** The payload as it was sent. */
  get data(): Uint8Array {
    return this.#source.data;
  }

  /** The payload, decoded. It throws {@link Dead} if it cannot be decoded: no retry would help. */
  get payload(): T {
    try {
      return this.#codec.decode(this.data);
    } catch (error) {
      throw new Dead(`payload cannot be decoded: ${error instanceof Error ? error.message : error}`, { code: "bad_payload" });
    }
  }

  /**
   * Aborted when the result of the handler does not count any more: the lease is lost
   * ({@link LeaseLostError}), or the worker has stopped ({@link StoppedError}).
   */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** @internal */
  lost(reason: Error): void {
    this.#aborted ??= reason;
    this.#controller?.abort(reason);
  }

  #time(name: string): Date | undefined {
    const text = this.headers.get(name);
    return text === "" ? undefined : new Date(text);
  }
}

/** Returns the messages of a delivery, which may be a batch. */
export function messagesIn<T>(queue: string, codec: Codec<T>, msg: Msg): { batched: boolean; messages: Message<T>[] } {
  const n = msg.headers?.get("Fila-Batch");
  if (!n) return { batched: false, messages: [new Message(queue, codec, msg)] };
  return { batched: true, messages: parseDelivered(msg.data, Number(n)).map((part) => new Message(queue, codec, part)) };
}
