// node torture.js DIRECTORY-OF-PROGRAMS: starts ken in a folder of its own on a free port, runs the public suite against
// it, and once more while the store is killed every five seconds. Ends with 0 if both runs are whole.
import { spawn, execFileSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"

const here = dirname(fileURLToPath(import.meta.url))
const ken = resolve(process.argv[2] ?? join(here, "../../target/release"), "ken")
const home = mkdtempSync(join(tmpdir(), "ken-torture-"))
const KILL_MS = 5_000

async function start() {
  const system = spawn(ken, ["--home", home, "up", "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] })
  for await (const line of createInterface({ input: system.stdout })) {
    const ready = line.match(/gateway=(\S+)/)
    if (ready) return { system, url: ready[1] }
  }
  throw new Error("ken did not start")
}

function run(url, env) {
  const vitest = join(here, "node_modules/vitest/vitest.mjs")
  const suite = spawn(process.execPath, [vitest, "run", "--reporter=dot"], {
    cwd: here,
    stdio: "inherit",
    env: { ...process.env, ...env, CONFORMANCE_TEST_URL: `${url}/streams` },
  })
  return new Promise((done) => suite.on("close", done))
}

function killStore() {
  const reply = execFileSync(ken, ["--home", home, "call", "kend", "parts.status"], { encoding: "utf8" })
  const store = JSON.parse(reply.trim().split("\n").at(-1)).parts.find((part) => part.name === "store")
  if (store?.pid) process.kill(store.pid, "SIGKILL")
  return store?.pid
}

const { system, url } = await start()
let failed
let kills = 0
try {
  console.log("the public suite, undisturbed")
  failed = await run(url, {})
  console.log(`the public suite, with kill -9 of the store every ${KILL_MS / 1000} s`)
  const killer = setInterval(() => (kills += killStore() ? 1 : 0), KILL_MS)
  failed ||= await run(url, { KEN_RETRY: "1" })
  clearInterval(killer)
  console.log(`the store was killed ${kills} times`)
} finally {
  const ended = new Promise((done) => system.on("close", done))
  system.kill("SIGINT")
  await ended
  rmSync(home, { recursive: true, force: true })
}
process.exitCode = failed || kills === 0 ? 1 : 0
