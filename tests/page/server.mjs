// A real server for a test, on a free port of this machine.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

const SOURCE = join(process.env.CELLM_PAGE_TESTS, "..", "..");
export const MODEL = join(SOURCE, "models", "cellm-nano-int8.cellm");

export function hasModel() {
  return existsSync(MODEL);
}

export class Server {
  static start(...options) {
    return Server.startAt("0", ...options);
  }

  static async startAt(port, ...options) {
    const server = new Server();
    const environment = { ...process.env };
    delete environment.CELLM_API_KEY;
    server.child = spawn(
      process.env.CELLM_BINARY,
      ["serve", "--port", port, "--model", MODEL, ...options],
      { stdio: ["ignore", "ignore", "pipe"], env: environment },
    );
    let said = "";
    server.url = await new Promise((resolve, reject) => {
      server.child.stderr.on("data", (bytes) => {
        said += bytes;
        const url = /serve: (http:\S+)/.exec(said);
        if (url !== null) resolve(url[1]);
      });
      server.child.on("exit", (code) => reject(new Error(`the server ended (${code}): ${said}`)));
    });
    server.port = new URL(server.url).port;
    return server;
  }

  async metric(name) {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const lines = text.split("\n").filter((line) => line.startsWith(name) && !line.startsWith("#"));
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
  }

  // At once, as a crash would.
  kill() {
    return new Promise((resolve) => {
      if (this.child.exitCode !== null || this.child.signalCode !== null) return resolve();
      this.child.on("exit", resolve);
      this.child.kill("SIGKILL");
    });
  }
}
