// node messenger.js DIRECTORY-OF-PROGRAMS: talks with ken through telegram-test-api, an implementation of the Bot API that others
// have written: messages and commands by polling, an unknown user, a forged button, and the address of a webhook. Ends with
// 0 if all of it is as it should be.
import assert from "node:assert/strict"
import { execFile, spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"

const TelegramServer = createRequire(import.meta.url)("telegram-test-api")
const here = dirname(fileURLToPath(import.meta.url))
const ken = resolve(process.argv[2] ?? join(here, "../../target/release"), "ken")
const TOKEN = "17:token-of-a-test"

async function freePort() {
  const server = createServer()
  await new Promise((done) => server.listen(0, "127.0.0.1", done))
  const { port } = server.address()
  await new Promise((done) => server.close(done))
  return port
}

async function start(home, env) {
  const system = spawn(ken, ["--home", home, "up", "--port", "0", "--cognitive-port", "0"], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...env },
  })
  for await (const line of createInterface({ input: system.stdout })) {
    const ready = line.match(/gateway=(\S+)/)
    if (ready) return { system, url: ready[1] }
  }
  throw new Error("ken did not start")
}

async function until(what, holds) {
  const end = Date.now() + 30_000
  while (!(await holds())) {
    assert.ok(Date.now() < end, `not within 30 s: ${what}`)
    await new Promise((done) => setTimeout(done, 50))
  }
}

const platform = new TelegramServer({ port: await freePort(), host: "127.0.0.1" })
await platform.start()
const sent = (chat) => platform.storage.botMessages.filter((one) => String(one.message.chat_id) === String(chat)).map((one) => one.message)

async function within(mode, work) {
  const home = mkdtempSync(join(tmpdir(), "ken-messenger-"))
  writeFileSync(join(home, "secrets.env"), `MESSENGER_BOT_TOKEN=${TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN=secret-of-a-test\n`, { mode: 0o600 })
  const { system, url } = await start(home, {
    MESSENGER_API_BASE_URL: platform.config.apiURL,
    MESSENGER_MODE: mode,
    MESSENGER_APPROVED_USER_IDS: "7",
  })
  const get = async (path) => (await fetch(url + path)).json()
  const run = (...words) => promisify(execFile)(ken, ["--home", home, ...words])
  try {
    await work({ get, run })
  } finally {
    const ended = new Promise((done) => system.on("close", done))
    system.kill("SIGINT")
    await ended
    rmSync(home, { recursive: true, force: true })
  }
}

try {
  await within("poll", async ({ get }) => {
    const health = () => get("/api/connectors/messenger/health")
    await until("the poller runs", async () => (await health()).pollerRunning)
    const friend = platform.getClient(TOKEN, { userId: 7, chatId: 7, firstName: "Ada" })
    const stranger = platform.getClient(TOKEN, { userId: 8, chatId: 8 })
    await friend.sendMessage(friend.makeMessage("Hello."))
    await until("the answer is there", () => sent(7).length === 1)
    assert.ok(sent(7)[0].text.length > 0)
    await friend.sendCommand(friend.makeCommand("/help"))
    await until("the command is answered", () => sent(7).length === 2)
    assert.match(sent(7)[1].text, /\/new/)
    assert.equal(sent(7)[1].parse_mode, "HTML")
    await stranger.sendMessage(stranger.makeMessage("Let me in."))
    await stranger.sendCallback(stranger.makeCallbackQuery("forged"))
    await until("four updates are taken", async () => (await health()).updateCount === 4)
    const found = await health()
    assert.deepEqual([found.rejected.dm_pairing_required, found.ignoredCount, found.duplicateCount], [1, 1, 0])
    assert.deepEqual(found.outbox, { pending: 0, sent: 2, failed: 0, unknown: 0 })
    assert.equal(sent(8).length, 0)
  })
  await within("webhook", async ({ run }) => {
    await run("messenger", "set-webhook", "https://ken.example/channels/messenger/webhook")
    const known = platform.webhooks[TOKEN]
    assert.equal(known.url, "https://ken.example/channels/messenger/webhook")
    assert.equal(known.secret_token, "secret-of-a-test")
    assert.ok(known.allowed_updates.includes("callback_query"))
    await run("messenger", "set-webhook", "")
    assert.equal(platform.webhooks[TOKEN], undefined)
  })
  console.log("telegram-test-api: messages, commands, a stranger, a forged button and the address of a webhook are as they should be")
} finally {
  await platform.stop()
}
