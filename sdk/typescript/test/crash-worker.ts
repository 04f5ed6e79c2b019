// A worker process that the test of crashes kills. It writes a line for each message that it has handled.
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker } from "../src/index.js";

const client = await Client.connect();
const worker = new Worker<number>(client, "crashes", async (m) => {
  await sleep(Math.random() * 5);
  appendFileSync(process.env["HANDLED"]!, `${m.payload}\n`);
}, { concurrency: 32, batch: Number(process.env["BATCH"]), registrationTtl: 2000, onError: () => {} });
await worker.run();
await client.close();
