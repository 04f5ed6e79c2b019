import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, type ClientOptions } from "./client.js";
import type { AdminVerbs } from "./types.js";

export interface FilaOptions {
  /** The binary, by default that of FILA_BINARY, or `fila` in PATH. */
  binary?: string;
  /** The text of config.toml, such as `[[queue]]` and `[[error_rule]]` tables. */
  config?: string;
  /** Milliseconds until it must be ready, by default 30,000. */
  patience?: number;
}

/** A fila with an embedded NATS server on free ports and a temporary directory, for tests. */
export class Fila {
  /** The address of NATS. It stays the same over a restart. */
  url = "";
  #process: ChildProcess | undefined;
  #admin: Client | undefined;
  #log = "";
  readonly #reap = (): void => void this.#process?.kill("SIGKILL");

  private constructor(
    /** The directory with configuration and data. */
    readonly dir: string,
    private readonly options: FilaOptions,
  ) {
    process.once("exit", this.#reap);
  }

  /** Starts fila, and resolves when it is ready. */
  static async start(options: FilaOptions = {}): Promise<Fila> {
    const fila = new Fila(await mkdtemp(join(tmpdir(), "fila-")), options);
    await writeFile(join(fila.dir, "config.toml"), options.config ?? "");
    try {
      await fila.restart();
    } catch (error) {
      await fila.stop();
      throw error;
    }
    return fila;
  }

  /** Starts fila again after {@link kill}, with the same data and address. */
  async restart(): Promise<void> {
    const { binary = process.env["FILA_BINARY"] ?? "fila", patience = 30_000 } = this.options;
    const env = {
      ...process.env, FILA_DATA_DIR: join(this.dir, "data"), FILA_NATS__EMBEDDED__PORT: this.url.split(":").at(-1) || "-1",
      FILA_HTTP__ADDR: "", FILA_DRAIN_TIMEOUT_MS: "500", FILA_LOG__FORMAT: "text",
    };
    const child = spawn(binary, ["serve", "--config", join(this.dir, "config.toml")], { env, stdio: ["ignore", "ignore", "pipe"] });
    this.#process = child;
    this.#log = "";
    await new Promise<void>((resolve, reject) => {
      const fail = (why: string): void => reject(new Error(`${binary} serve ${why}\n${this.#log}`));
      const timer = setTimeout(() => fail(`was not ready within ${patience} ms`), patience);
      child.once("error", (error) => fail(`cannot be run (${error.message}): set FILA_BINARY, or put fila into PATH`));
      child.once("exit", (code, signal) => fail(`ended with ${signal ?? `exit code ${code}`}`));
      child.stderr!.setEncoding("utf8").on("data", (text: string) => {
        this.#log = (this.#log + text).slice(-65_536);
        const ready = /fila is ready.* nats=(\S+)/.exec(this.#log);
        if (!ready) return;
        this.url = ready[1]!;
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Connects a client. Close it before {@link stop}. */
  client(options?: ClientOptions): Promise<Client> {
    return Client.connect(this.url, options);
  }

  /** Makes a request of an admin verb, as {@link Client.admin}. */
  async admin<V extends keyof AdminVerbs>(verb: V, tail: string, request?: AdminVerbs[V][0]): Promise<AdminVerbs[V][1]>;
  async admin<R = unknown>(verb: string, tail?: string, request?: object): Promise<R>;
  async admin(verb: string, tail?: string, request?: object): Promise<unknown> {
    this.#admin ??= await this.client();
    return this.#admin.admin(verb, tail, request);
  }

  /** Kills fila as a crash does. */
  kill(): Promise<void> {
    return this.#end("SIGKILL");
  }

  /** Stops fila and removes its directory. */
  async stop(): Promise<void> {
    await this.#admin?.nc.close();
    await this.#end("SIGTERM");
    process.removeListener("exit", this.#reap);
    await rm(this.dir, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (!child?.pid || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }
}
