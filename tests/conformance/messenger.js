// node messenger.js DIRECTORY-OF-PROGRAMS: talks with ken through telegram-test-api, a third-party implementation of the Bot API:
// messages and commands by polling, an unknown user, a forged button, and the address of a webhook. The exit status is 0 if all
// checks pass.
import { execFile } from "node:child_process"
import { createRequire } from "node:module"
import { promisify } from "node:util"
import { assert, counted, freePort, ken, until, within } from "./system.js"

const TelegramServer = createRequire(import.meta.url)("telegram-test-api")
const TOKEN = "17:token-of-a-test"

const platform = new TelegramServer({ port: await freePort(), host: "127.0.0.1" })
await platform.start()
const sent = (chat) => platform.storage.botMessages.filter((one) => String(one.message.chat_id) === String(chat)).map((one) => one.message)

function connected(mode, work) {
  const secrets = `MESSENGER_BOT_TOKEN=${TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN=secret-of-a-test\n`
  const env = { MESSENGER_API_BASE_URL: platform.config.apiURL, MESSENGER_MODE: mode, MESSENGER_APPROVED_USER_IDS: "7" }
  return within("messenger", { env, files: { "secrets.env": secrets } }, work)
}

try {
  await connected("poll", async ({ url }) => {
    const health = async () => (await fetch(`${url}/api/connectors/messenger/health`)).json()
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
    console.log("telegram-test-api: a message and a command are answered")
    await stranger.sendMessage(stranger.makeMessage("Let me in."))
    await stranger.sendCallback(stranger.makeCallbackQuery("forged"))
    await until("four updates are taken", async () => (await health()).updateCount === 4)
    const found = await health()
    assert.deepEqual([found.rejected.dm_pairing_required, found.ignoredCount, found.duplicateCount], [1, 1, 0])
    assert.deepEqual(found.outbox, { pending: 0, sent: 2, failed: 0, unknown: 0 })
    assert.equal(sent(8).length, 0)
    console.log("telegram-test-api: a stranger and a forged button are refused")
  })
  await connected("webhook", async ({ home }) => {
    const run = (...words) => promisify(execFile)(ken, ["--home", home, ...words])
    await run("messenger", "set-webhook", "https://ken.example/channels/messenger/webhook")
    const known = platform.webhooks[TOKEN]
    assert.equal(known.url, "https://ken.example/channels/messenger/webhook")
    assert.equal(known.secret_token, "secret-of-a-test")
    assert.ok(known.allowed_updates.includes("callback_query"))
    await run("messenger", "set-webhook", "")
    assert.equal(platform.webhooks[TOKEN], undefined)
    console.log("telegram-test-api: a webhook is set and removed")
  })
  console.log(`telegram-test-api: ${counted()} checks hold`)
} finally {
  await platform.stop()
}
