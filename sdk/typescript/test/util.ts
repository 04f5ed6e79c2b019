import { setTimeout as sleep } from "node:timers/promises";
import type { QueueInfo } from "../src/index.js";
import type { Fila } from "../src/testing.js";

/** Waits until fn returns something; a minute only turns a hang into a failure. */
export async function until<T>(what: string, fn: () => T | Promise<T>, patience = 60_000): Promise<Exclude<T, undefined | null | false | "">> {
  for (const end = performance.now() + patience; performance.now() < end; await sleep(10)) {
    const value = await fn();
    if (value) return value as Exclude<T, undefined | null | false | "">;
  }
  throw new Error(`waited in vain for ${what}`);
}

/** Waits until no message of a queue is left. */
export function drained(fila: Fila, queue: string): Promise<QueueInfo> {
  return until(`the end of ${queue}`, async () => {
    const info = await fila.admin("queue-inspect", queue);
    return info.pending + info.delayed + info.in_flight + (info.moving ?? 0) === 0 && info;
  });
}

export interface DeadLetter {
  id: string;
  attempt: number;
  reason?: string;
  error?: string;
  code?: string;
  payload: unknown;
}
