import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { Fila } from "../src/testing.js";
import { until } from "./util.js";

const readme = readFileSync("README.md", "utf8");
const blocks = [...readme.matchAll(/```ts\n(.*?)```/gs)].map((m) => m[1]!);

test("the packed package: the service of the README runs as printed, without OpenTelemetry", { timeout: 300_000 }, async () => {
  const service = blocks[0]!;
  const lines = service.trimEnd().split("\n").length;
  assert.ok(lines <= 30, `${lines} lines`);
  const dir = mkdtempSync(join(tmpdir(), "fila-package-"));
  const npm = (cwd: string, ...args: string[]): string => execFileSync("npm", args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  const [packed] = JSON.parse(npm(".", "pack", "--ignore-scripts", "--json", "--pack-destination", dir));
  const files: string[] = packed.files.map((f: { path: string }) => f.path);
  for (const name of ["README.md", "LICENSE", "dist/index.js", "dist/index.d.ts", "dist/testing.js"]) assert.ok(files.includes(name), name);
  assert.ok(!files.some((f) => /^(src|test|bench|build)\//.test(f)), files.join(" "));
  writeFileSync(join(dir, "package.json"), JSON.stringify({ name: "service", private: true, type: "module" }));
  npm(dir, "install", "--no-audit", "--no-fund", "--prefer-offline", "--omit=peer", packed.filename);
  assert.throws(() => execFileSync("node", ["--input-type=module", "-e", 'await import("@opentelemetry/api")'], { cwd: dir, stdio: "ignore" }), "OpenTelemetry is installed");

  writeFileSync(join(dir, "service.ts"), service);
  const options = { target: "ES2022", module: "NodeNext", strict: true, noUncheckedIndexedAccess: true, types: ["node"], typeRoots: [resolve("node_modules/@types")], skipLibCheck: false };
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions: options, files: ["service.ts"] }));
  execFileSync("node", [resolve("node_modules/typescript/bin/tsc"), "-p", dir], { stdio: "inherit" });

  const mails: { to: string; at: number }[] = [];
  const api = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    mails.push({ to: JSON.parse(body).to, at: performance.now() });
    const first = mails.filter((m) => m.to === mails.at(-1)!.to).length === 1;
    response.writeHead(first && body.includes("fails") ? 500 : 200).end();
  });
  await once(api.listen(0, "127.0.0.1"), "listening");

  const fila = await Fila.start();
  const env = { ...process.env, NATS_URL: fila.url, MAIL_API: `http://127.0.0.1:${(api.address() as AddressInfo).port}/` };
  const child = spawn("node", ["service.js"], { cwd: dir, env, stdio: "inherit" });
  await until("the service", async () => (await fila.admin("queue-inspect", "mails").catch(() => undefined))?.consumers === 1);
  const client = await fila.client();
  const all = Array.from({ length: 12 }, (_, i) => ({ to: `big-${i}@example.com`, tenant: "big" }));
  all.push({ to: "small@example.com", tenant: "small" }, { to: "fails@example.com", tenant: "small" }, { to: "nobody", tenant: "small" });
  const began = performance.now();
  await client.enqueueBatch("mails", all.map(({ to, tenant }) => ({ payload: { to, text: "Hello" }, headers: { tenant } })));
  await until("the mails", () => mails.length === 15);
  const [dead] = await until("the dead letter", async () => {
    const { messages } = await fila.admin<{ messages: { dead: { error: string; error_code: string } }[] }>("peek", "mails.dlq");
    return messages.length === 1 && messages;
  });
  child.kill("SIGTERM");
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.deepEqual([dead!.dead.error, dead!.dead.error_code], ["no address", "bad_address"]);
  assert.deepEqual(mails.filter((m) => m.to.startsWith("fails")).length, 2);
  const last = Math.max(...mails.filter((m) => m.to.startsWith("big")).map((m) => m.at));
  assert.ok(last - began >= 1_400, `12 mails of a tenant in ${last - began} ms: 5 at once, then 5 a second`);
  await client.close();
  await fila.stop();
  api.close();
  rmSync(dir, { recursive: true });
});

test("the worker of docs/coming-from.md runs as printed", async () => {
  const page = readFileSync("../../docs/coming-from.md", "utf8");
  const worker = [...page.matchAll(/```ts\n(.*?)```/gs)].map((m) => m[1]!).find((block) => block.includes("fila-worker"))!;
  const dir = mkdtempSync(join(tmpdir(), "fila-worker-"));
  writeFileSync(join(dir, "package.json"), JSON.stringify({ type: "module" }));
  mkdirSync(join(dir, "node_modules"));
  symlinkSync(resolve("."), join(dir, "node_modules/fila-worker"));
  // What the worker leaves to the reader. It stops after its first mail.
  writeFileSync(join(dir, "globals.d.ts"), "interface Mail { to: string }\ndeclare function sendMail(mail: Mail): Promise<void>;\n");
  writeFileSync(join(dir, "globals.mjs"), `globalThis.sendMail = async (mail) => { console.log("sent to " + mail.to); process.kill(process.pid, "SIGTERM"); };`);
  writeFileSync(join(dir, "worker.ts"), worker);
  const options = { target: "ES2022", lib: ["ES2022"], module: "NodeNext", strict: true, types: ["node"], typeRoots: [resolve("node_modules/@types")], skipLibCheck: true };
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions: options, files: ["globals.d.ts", "worker.ts"] }));
  execFileSync("node", [resolve("node_modules/typescript/bin/tsc"), "-p", dir], { stdio: "inherit" });

  const fila = await Fila.start({ config: '[[queue]]\nname = "mails"\nfairness_header = "tenant"' });
  const output = execFileSync("node", ["--import", "./globals.mjs", "worker.js"], { cwd: dir, encoding: "utf8", env: { ...process.env, NATS_URL: fila.url } });
  assert.equal(output, "sent to ann@example.com\n");
  const { pending, in_flight } = await fila.admin("queue-inspect", "mails");
  assert.deepEqual([pending, in_flight], [0, 0]);
  await fila.stop();
  rmSync(dir, { recursive: true });
});

test("the other examples of the README have correct types", () => {
  const dir = mkdtempSync(join(tmpdir(), "fila-readme-"));
  // What the examples leave to the reader. Their own names hide these.
  writeFileSync(join(dir, "globals.d.ts"), `
    type Package = typeof import("fila-worker");
    declare var Worker: Package["Worker"], client: import("fila-worker").Client, handler: import("fila-worker").Handler<any>;
    type Middleware = import("fila-worker").Middleware;
    declare var tenant: string, mails: unknown[], order: unknown;
    declare var histogram: { record(ms: number, attributes: object): void };
    declare var stripe: { createInvoice(order: unknown, o: { signal: AbortSignal }): Promise<string> };
    declare var guard: import("fila-worker").Guard;
  `);
  const names = blocks.slice(1).map((block, i) => {
    writeFileSync(join(dir, `${i}.ts`), `${block}\nexport {};\n`);
    return `${i}.ts`;
  });
  assert.ok(names.length >= 7, `${names.length} examples`);
  writeFileSync(join(dir, "package.json"), JSON.stringify({ type: "module" }));
  cpSync("dist", join(dir, "node_modules/fila-worker/dist"), { recursive: true });
  cpSync("package.json", join(dir, "node_modules/fila-worker/package.json"));
  cpSync("node_modules/@nats-io", join(dir, "node_modules/@nats-io"), { recursive: true });
  const options = { target: "ES2022", lib: ["ES2022"], module: "NodeNext", strict: true, noEmit: true, types: ["node"], typeRoots: [resolve("node_modules/@types")], skipLibCheck: true };
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions: options, files: ["globals.d.ts", ...names] }));
  execFileSync("node", [resolve("node_modules/typescript/bin/tsc"), "-p", dir], { stdio: "inherit" });
  rmSync(dir, { recursive: true });
});
