// node torture.js DIRECTORY-OF-PROGRAMS: starts ken in a temporary folder on a free port, and runs the public suite three times:
// undisturbed, while the store is killed every five seconds, and while the gateway is. The exit status is 0 if the first two
// pass completely, and the third gets no wrong answer.
import { execFileSync, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { here, ken, within } from "./system.js"

const KILL_MS = 5_000

/** What a test reports whose connection was cut: no answer, and so no wrong one. Of a stream of events, it has then read nothing. */
const CUT = /fetch failed|terminated|other side closed|ECONNRESET|expected '' to contain/

/** Runs the suite. Returns the number of tests that passed, the number of those that only lost their connection, and whether all passed. */
async function run({ url, home }, env) {
  const vitest = join(here, "node_modules/vitest/vitest.mjs")
  const report = join(home, "suite.json")
  const suite = spawn(process.execPath, [vitest, "run", "--reporter=dot", "--reporter=json", `--outputFile.json=${report}`], {
    cwd: here,
    stdio: "inherit",
    env: { ...process.env, ...env, CONFORMANCE_TEST_URL: `${url}/streams` },
  })
  const status = await new Promise((done) => suite.on("close", done))
  const { numPassedTests, numFailedTests, testResults } = JSON.parse(readFileSync(report, "utf8"))
  const failed = testResults.flatMap((file) => file.assertionResults).filter((test) => test.status === "failed")
  const cut = failed.filter((test) => test.failureMessages.every((message) => CUT.test(message))).length
  return { isWhole: status === 0, passed: numPassedTests, cut, hasWrong: cut < numFailedTests }
}

function kill(part, home) {
  const reply = execFileSync(ken, ["--home", home, "call", "kend", "parts.status"], { encoding: "utf8" })
  const { pid } = JSON.parse(reply.trim().split("\n").at(-1)).parts.find(({ name }) => name === part)
  if (pid) process.kill(pid, "SIGKILL")
  return pid ? 1 : 0
}

await within("torture", {}, async (system) => {
  console.log("the public suite for Durable Streams, undisturbed")
  const calm = await run(system, {})
  const held = [`${calm.passed} tests hold undisturbed`]
  process.exitCode = calm.isWhole ? 0 : 1
  for (const part of ["store", "gateway"]) {
    console.log(`the public suite for Durable Streams, with kill -9 of the ${part} every ${KILL_MS / 1000} s`)
    let kills = 0
    const killer = setInterval(() => (kills += kill(part, system.home)), KILL_MS)
    const { isWhole, passed, cut, hasWrong } = await run(system, { KEN_RETRY: "1" })
    clearInterval(killer)
    held.push(`${passed} while the ${part} was killed ${kills} times (${cut} lost their connection)`)
    // A request that waits for longer than the gateway lives is cut more often than it is repeated. A wrong answer is none of these.
    const holds = part === "gateway" ? !hasWrong : isWhole
    if (!holds || kills === 0) process.exitCode = 1
  }
  console.log(`Durable Streams: ${held.join(", ")}`)
})
