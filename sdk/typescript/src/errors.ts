import type { Msg } from "@nats-io/transport-node";
import type { BatchRefusal, ErrorBody } from "./types.js";

/** A refusal by fila. */
export class FilaError extends Error {
  override readonly name = "FilaError";

  constructor(
    /** The class of the refusal: 400, 404, 409, 413, 429, 500 or 503. */
    readonly code: number,
    /** The stable number of the refusal; its last three digits are `code`. */
    readonly errCode: number,
    /** One line for people. It may change. */
    readonly description: string,
    /** In how many milliseconds a retry makes sense, if fila knows. */
    readonly retryAfter?: number,
  ) {
    super(`${description} (${code}, err_code ${errCode})`);
  }
}

/** Nobody listens on the subject: no fila runs, or the queue of an enqueue does not exist. */
export class NoFilaError extends Error {
  override readonly name = "NoFilaError";

  constructor(subject: string) {
    super(`no fila listens on ${subject}, or the queue does not exist`);
  }
}

/** A request had no reply in time, or the connection broke. Whether it had an effect is unknown. */
export class NoReplyError extends Error {
  override readonly name = "NoReplyError";

  constructor(subject: string, options?: ErrorOptions) {
    super(`no reply to ${subject} in time; whether it was done is not known`, options);
  }
}

/**
 * The reason of a message's signal when its lease is lost: another worker may have the message.
 * The cause is fila's refusal.
 */
export class LeaseLostError extends Error {
  override readonly name = "LeaseLostError";

  constructor(id: string, cause: FilaError) {
    super(`the lease of message ${id} is lost`, { cause });
  }
}

/** The reason of a message's signal when the worker stops and the deadline has passed. */
export class StoppedError extends Error {
  override readonly name = "StoppedError";

  constructor() {
    super("worker stopped");
  }
}

/** Returns the refusal in a reply, or undefined. */
export function refusalIn(reply: Msg): FilaError | undefined {
  const headers = reply.headers;
  const code = headers?.get("Nats-Service-Error-Code");
  if (!headers || !code) return undefined;
  let error: Partial<ErrorBody["error"]> = {};
  try {
    error = reply.json<ErrorBody>().error ?? {};
  } catch {
    // An error of another NATS service: the headers say enough.
  }
  const after = Number(headers.get("Fila-Retry-After-Ms")) || 1000 * Number(headers.get("Retry-After")) || undefined;
  const description = error.description ?? headers.get("Nats-Service-Error");
  return new FilaError(error.code ?? (Number(code) || 500), error.err_code ?? 0, description, after);
}

/** Returns the refusals in the reply to a batch by index. */
export function refusalsIn(refused: BatchRefusal[] | undefined): Map<number, FilaError> {
  const descriptions = new Map<number, string>();
  const all = new Map<number, FilaError>();
  for (const r of refused ?? []) {
    if (r.description !== undefined) descriptions.set(r.err_code, r.description);
    all.set(r.index, new FilaError(r.code, r.err_code, descriptions.get(r.err_code) ?? "", r.retry_after_ms));
  }
  return all;
}
