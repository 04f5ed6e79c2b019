import { FilaError } from "./errors.js";
import { duration, inRange, year } from "./wire.js";

/** What an attempt, or a guarded call, has cost, and what its destination says about its limit. */
export interface Report {
  /** The actual cost in place of the estimate, 0 to 1,000,000, in the unit of the costs and rates. */
  cost?: number;
  /** The cost that the destination still admits, 0 to 1e12, for limits that learn. */
  remaining?: number;
  /** Milliseconds until the destination admits more, up to a year; only with `remaining`. */
  reset?: number;
}

/** Returns the fields of a report in the protocol. */
export function reportOf({ cost, remaining, reset }: Report): { cost?: number; remaining?: number; reset_ms?: number } {
  if (cost !== undefined) inRange("cost", cost, 0, 1_000_000);
  if (remaining !== undefined) inRange("remaining", remaining, 0, 1e12);
  if (reset === undefined) return { cost, remaining };
  if (remaining === undefined) throw new RangeError("reset is given without remaining: they go together");
  duration("reset", reset);
  return { cost, remaining, reset_ms: Math.ceil(reset) };
}

/** The result of a handler: the message is finished, at a cost that replaces the estimate. */
export class Done {
  constructor(readonly options: Report = {}) {
    reportOf(options);
  }
}

/** The report is about the failed attempt. */
export interface RetryOptions extends Report {
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
    reportOf(options);
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
  if (result instanceof Done) return withBody("+ACK", reportOf(result.options));
  return "+ACK";
}

function withBody(verb: string, fields: object): string {
  const body = JSON.stringify(fields);
  return body === "{}" ? verb : `${verb} ${body}`;
}

function payloadOf(verb: string, o: RetryOptions): string {
  return withBody(verb, {
    delay: o.delay === undefined ? undefined : duration("delay", o.delay),
    error: o.error?.slice(0, 1024),
    code: o.code?.slice(0, 64),
    retry_after_ms: o.retryAfter === undefined ? undefined : Math.ceil(o.retryAfter),
    ...reportOf(o),
  });
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
