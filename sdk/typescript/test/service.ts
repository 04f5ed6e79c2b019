// A process for the test of signals.
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker } from "../src/index.js";

const client = await Client.connect();
await new Worker(client, "service", () => sleep(200), { concurrency: 3 }).run();
await client.close();
