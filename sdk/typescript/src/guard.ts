import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "./client.js";
import { FilaError, NoFilaError, NoReplyError } from "./errors.js";
import { failureOf, reportOf, type Report } from "./outcome.js";
import type { GuardAnswer, GuardCheckRequest, GuardDoneRequest, GuardStatus, GuardVerdict } from "./types.js";
import { keyTail } from "./wire.js";

export interface GuardOptions {
  /** The name of the caller, up to 64 bytes. */
  caller?: string;
  /** A refused call waits and asks again, if fila knows when that makes sense, until its signal is aborted. */
  wait?: boolean;
  /** Calls are made without a permit when fila does not answer: then no limit holds. */
  failOpen?: boolean;
}

export interface GuardCall {
  /** The destination, whose circuit decides and learns how the call went. */
  key: string;
  /** Up to seven further keys with limits, such as a tenant. */
  with?: string[];
  /** What the call takes of rates, 0.001 to 1,000,000, by default 1. {@link Guard.done} and {@link Guard.run} can correct it. */
  cost?: number;
  /** Milliseconds after which the permit ends by itself, 1 to an hour, by default 30,000: a second or two above the timeout of the call. */
  ttl?: number;
  /** The number of this call for the same work, by default 1. */
  attempt?: number;
  /** The retry policy for failures to which no rule gives one. */
  retryPolicy?: string;
  /** Ends the waiting for a permit. */
  signal?: AbortSignal;
}

/** A call that a limit or circuit refuses. `retryAfter` says when to ask again, if fila knows. */
export class RefusedError extends FilaError {
  constructor(
    /** What refuses: `rate`, `window`, `concurrency`, `circuit`, `paused`, ... */
    readonly gate: string,
    readonly key: string,
    readonly answer: GuardAnswer,
  ) {
    const again = answer.retry_after_ms;
    super(429, 0, `refused by ${gate} of ${key}${again === undefined ? "" : `, ask again in ${again} ms`}`, again);
  }
}

/** An allowed call. Give it back with {@link Guard.done}, also if the call fails. */
export interface Permit {
  readonly call: GuardCall;
  readonly permit: string;
  /** The call is a probe of a half-open circuit. */
  readonly probe: boolean;
  /** Aborted when the permit ends by itself. */
  readonly signal: AbortSignal;
}

/** Applies the limits and circuits of fila to calls that are no messages. */
export class Guard {
  constructor(
    private readonly client: Client,
    private readonly options: GuardOptions,
  ) {}

  /** Checks a call. It rejects with a {@link RefusedError} if the call may not be made. */
  async check(call: GuardCall): Promise<Permit> {
    const { tail, body } = keyTail(call.key);
    const request: GuardCheckRequest = { ...body, with: call.with, cost: call.cost, ttl_ms: call.ttl, caller: this.options.caller };
    for (;;) {
      const signal = AbortSignal.timeout(call.ttl ?? 30_000); // from before fila gives the permit
      const answer = await this.client.call<GuardAnswer>(`${this.client.prefix}.guard.check.${tail}`, request);
      if (answer.allowed) return { call, permit: answer.permit ?? "", probe: answer.probe ?? false, signal };
      const refused = new RefusedError(answer.gate ?? "", answer.key ?? call.key, answer);
      if (!this.options.wait || refused.retryAfter === undefined) throw refused;
      await sleep(refused.retryAfter, undefined, { signal: call.signal });
    }
  }

  /**
   * Gives a permit back and reports how the call went. The reply to an error says whether to retry.
   * `report` is the actual cost of the call, which replaces the estimate of the check, also if the
   * call failed; or that and what the destination says about its limit.
   */
  async done(permit: Permit, error?: unknown, report: number | Report = {}): Promise<GuardVerdict> {
    const { tail, body } = keyTail(permit.call.key);
    const { attempt, retryPolicy: retry_policy } = permit.call;
    const request: GuardDoneRequest = { ...body, permit: permit.permit, caller: this.options.caller, attempt, retry_policy, outcome: "ok", ...reportOf(typeof report === "number" ? { cost: report } : report) };
    if (error !== undefined) {
      const failure = failureOf(error);
      Object.assign(request, { outcome: "error", error: failure.error, error_code: failure.code, retry_after_ms: failure.retryAfter });
    }
    return this.client.call(`${this.client.prefix}.guard.done.${tail}`, request);
  }

  /**
   * Makes a call if it is allowed, and reports the outcome. The signal is aborted when the permit
   * ends. `setCost` sets the actual cost, or the whole report, as in {@link done}. An error of the
   * call is thrown unchanged.
   */
  async run<R>(call: GuardCall, fn: (signal: AbortSignal, setCost: (report: number | Report) => void) => R | Promise<R>): Promise<R> {
    let report: number | Report | undefined;
    const setCost = (actual: number | Report): void => void (report = actual);
    let permit: Permit;
    try {
      permit = await this.check(call);
    } catch (error) {
      if (this.options.failOpen && (error instanceof NoFilaError || error instanceof NoReplyError)) return fn(new AbortController().signal, setCost);
      throw error;
    }
    try {
      const result = await fn(permit.signal, setCost);
      await this.#report(permit, undefined, report);
      return result;
    } catch (error) {
      await this.#report(permit, error ?? new Error("the call failed"), report);
      throw error;
    }
  }

  /**
   * Wraps a function so that each call of it is a {@link run}. It is a decorator of methods, too.
   * The call may depend on the arguments.
   */
  guarded<C extends any[] = any[]>(call: GuardCall | ((...args: C) => GuardCall)) {
    const guard = this;
    return function <This, A extends C, R>(fn: (this: This, ...args: A) => R | Promise<R>, _context?: ClassMethodDecoratorContext) {
      return function (this: This, ...args: A): Promise<R> {
        return guard.run(typeof call === "function" ? call(...args) : call, () => fn.apply(this, args));
      };
    };
  }

  /** Returns the state of a key. */
  state(key: string): Promise<GuardStatus> {
    const { tail, body } = keyTail(key);
    return this.client.call(`${this.client.prefix}.guard.state.${tail}`, { ...body, caller: this.options.caller });
  }

  /** Without an answer the permit ends by itself; the outcome of the call stands. */
  async #report(permit: Permit, error?: unknown, report?: number | Report): Promise<void> {
    try {
      await this.done(permit, error, report);
    } catch {
      return;
    }
  }
}
