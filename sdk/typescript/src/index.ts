/**
 * Enqueue messages to fila, and work on them. All times are milliseconds.
 *
 * @packageDocumentation
 */
export { Client } from "./client.js";
export type { BatchMessage, BatchResult, ClientOptions, EnqueueOptions, MessageOptions, Receipt, RetryingOptions, ScheduleOptions } from "./client.js";
export { json, type Codec } from "./codec.js";
export { FilaError, LeaseLostError, NoFilaError, NoReplyError, StoppedError } from "./errors.js";
export { Guard, RefusedError, type GuardCall, type GuardOptions, type Permit } from "./guard.js";
export type { Message } from "./message.js";
export { Dead, Done, Retry, type Outcome, type Report, type RetryOptions } from "./outcome.js";
export { Worker, type Handler, type Middleware, type RunOptions, type WorkerOptions } from "./worker.js";
export type * from "./types.js";
