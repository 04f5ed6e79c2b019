import { FilaError } from "./errors.js";
import { duration, inRange, year } from "./wire.js";

/** The result of a handler: the message is finished, at a cost that replaces the estimate. */
export class Done {
  /** The cost is 0 to 1,000,000, in the unit of the costs and rates of the message. */
  constructor(readonly options: { cost?: number } = {}) {
    if (options.cost !== undefined) inRange("cost", options.cost, 0, 1_000_000);
  }
}

export interface RetryOptions {
  /** Milliseconds until the next attempt, up to a year. Absent: fila decides. */
  delay?: number;
  /** Text for people and rules; fila keeps 1,024 bytes. */
  error?: string;
  /** Short code for rules; fila keeps 64 bytes. */
  code?: string;
  /** Milliseconds for which the destination asked not to be called: its circuit is open until then. */
  retryAfter?: number;
}

/** The failure of an attempt, thrown or returned by a handler. */
export class Retry extends Error {
  override readonly name = "Retry";

  constructor(readonly options: RetryOptions = {}) {
    super(options.error ?? "");
    if (options.delay !== undefined) duration("delay", options.delay);
    if (options.retryAfter !== undefined) duration("retryAfter", options.retryAfter);
  }
}

/** Dead-letters the message at once, thrown or returned by a handler. */
export class Dead extends Error {
  override readonly name = "Dead";

  constructor(
    readonly reason: string,
    readonly options: { code?: string } = {},
  ) {
    super(reason);
  }
}

/** What a handler returns. Any result but Retry and Dead finishes the message. */
export type Outcome = void | undefined | null | Done | Retry | Dead;

/** Returns the payload that tells fila the result of a handler. */
export function answerOf(result: unknown): string {
  if (result instanceof Dead) return payloadOf("+TERM", { error: result.reason || undefined, code: result.options.code });
  if (result instanceof Retry) return payloadOf("-NAK", result.options);
  if (result instanceof Done && result.options.cost !== undefined) return `+ACK ${JSON.stringify({ cost: result.options.cost })}`;
  return "+ACK";
}

function payloadOf(verb: string, o: RetryOptions): string {
  const body = JSON.stringify({
    delay: o.delay === undefined ? undefined : duration("delay", o.delay),
    error: o.error?.slice(0, 1024),
    code: o.code?.slice(0, 64),
    retry_after_ms: o.retryAfter === undefined ? undefined : Math.ceil(o.retryAfter),
  });
  return body === "{}" ? verb : `${verb} ${body}`;
}

/** What fila and its rules see of an error: its text, its `code` or the name of its class, and its `retryAfter`. */
export function failureOf(error: unknown): { error: string; code: string; retryAfter?: number } {
  if (!(error instanceof Error)) return { error: String(error), code: "Error" };
  const { code, retryAfter } = error as { code?: unknown; retryAfter?: unknown };
  return {
    error: (error.message || error.name).slice(0, 1024),
    code: (typeof code === "string" || typeof code === "number" ? String(code) : error.constructor.name).slice(0, 64),
    retryAfter: typeof retryAfter === "number" && retryAfter >= 0 ? Math.ceil(Math.min(retryAfter, year)) : undefined,
  };
}

/**
 * Returns the outcome for what a handler threw. The retryAfter of fila's own refusals delays the
 * message: it says nothing about the destination of the message.
 */
export function outcomeOf(error: unknown): Retry | Dead {
  if (error instanceof Retry || error instanceof Dead) return error;
  const { retryAfter, ...failure } = failureOf(error);
  return new Retry(error instanceof FilaError ? { ...failure, delay: retryAfter } : { ...failure, retryAfter });
}
