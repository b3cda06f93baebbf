// Shared by the scripts of this folder: a system in a temporary home, and counted checks.
import strict from "node:assert/strict"
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { createInterface } from "node:readline"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"

export const here = dirname(fileURLToPath(import.meta.url))
/** The program `ken` in the folder that the command line names. */
export const ken = resolve(process.argv[2] ?? join(here, "../../target/release"), "ken")

let checks = 0
/** The number of checks that have passed so far. */
export const counted = () => checks

/** `node:assert/strict`. Each assertion that passes is counted. */
export const assert = new Proxy(strict, {
  get: (target, name) => (...given) => {
    target[name](...given)
    checks += 1
  },
})

/** Waits up to a minute until a condition holds. This counts as a check. */
export async function until(what, holds) {
  for (const end = Date.now() + 60_000; !(await holds()); await sleep(100)) strict.ok(Date.now() < end, `not within a minute: ${what}`)
  checks += 1
}

/** A port that was free a moment ago. */
export function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address()
      server.close(() => done(port))
    })
  })
}

/** Starts ken in a temporary home with these files, calls `work` with `{ home, url }`, stops ken, and deletes the home. */
export async function within(name, { env = {}, files = {} }, work) {
  const home = mkdtempSync(join(tmpdir(), `ken-${name}-`))
  for (const [file, text] of Object.entries(files)) writeFileSync(join(home, file), text, { mode: 0o600 })
  const system = spawn(ken, ["--home", home, "up", "--port", "0", "--cognitive-port", "0"], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...env },
  })
  const ended = new Promise((done) => system.on("close", done).on("error", done))
  try {
    let url
    for await (const line of createInterface({ input: system.stdout })) {
      url = line.match(/gateway=(\S+)/)?.[1]
      if (url) break
    }
    strict.ok(url, `${ken} did not start`)
    return await work({ home, url })
  } finally {
    system.kill("SIGINT")
    await ended
    rmSync(home, { recursive: true, force: true })
  }
}
