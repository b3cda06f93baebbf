// node openai_clients.js DIRECTORY-OF-PROGRAMS: talks to a system of ken through the TypeScript library of OpenAI, with nothing but a base
// URL, and kills gateway and agent while it waits: its own retries get one answer of one turn. The exit status is 0 if all checks pass.
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import OpenAI from "openai"
import { assert, counted, ken, until, within } from "./system.js"

const LINES = [
  { when: "slowly", events: [{ text: "One " }, { sleep_ms: 700 }, { text: "two " }, { sleep_ms: 700 }, { text: "three." }] },
  { when: "weather", after_tools: 1, events: [{ text: "It is 18." }] },
  { when: "weather", events: [{ tool: { name: "client__weather", arguments: { city: "Paris" } } }] },
  { events: [{ text: "Hello" }, { text: " there." }] },
]
const user = (content) => ({ role: "user", content })

function part(home, name) {
  const reply = execFileSync(ken, ["--home", home, "call", "kend", "parts.status"], { encoding: "utf8" })
  return JSON.parse(reply.trim().split("\n").at(-1)).parts.find((one) => one.name === name)
}

async function isStable(home, name) {
  const { pid } = part(home, name)
  await sleep(1_200)
  return pid && part(home, name).pid === pid
}

async function sessions(url) {
  const listed = await fetch(`${url}/api/chat/sessions?empty=1&limit=100`)
  return (await listed.json()).sessions.length
}

async function read(stream) {
  let text = ""
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ""
  return text
}

async function chat(client) {
  const { data, response } = await client.chat.completions.create({ model: "ken", messages: [user("hello")], top_p: 1 }).withResponse()
  assert.equal(data.choices[0].message.content, "Hello there.")
  assert.equal(response.headers.get("x-ken-ignored"), "top_p")
  const messages = [user("hello"), data.choices[0].message, user("slowly")]
  const next = await client.chat.completions.create({ model: "ken", messages, stream: true }).withResponse()
  assert.equal(next.response.headers.get("x-ken-session"), response.headers.get("x-ken-session"))
  assert.equal(await read(next.data), "One two three.")
  const helper = client.chat.completions.stream({ model: "ken", messages: [user("hello")] })
  assert.equal(await helper.finalContent(), "Hello there.")
  const refused = client.chat.completions.create({ model: "ken", messages: [user("hello")], n: 2 })
  await assert.rejects(refused, ({ status, param }) => status === 400 && param === "n")
  await assert.rejects(client.models.retrieve("gpt-4o"), ({ status, code }) => status === 404 && code === "model_not_found")
  assert.equal((await client.models.retrieve("ken")).id, "ken")
}

async function responses(client) {
  const first = await client.responses.create({ model: "ken", input: "hello" })
  assert.equal(first.output_text, "Hello there.")
  const next = await client.responses.create({ model: "ken", input: "slowly", previous_response_id: first.id, stream: true })
  const events = []
  for await (const event of next) events.push(event)
  assert.equal(events.at(-1).response.output[0].content[0].text, "One two three.")
  const { id } = events.at(-1).response
  const rest = await client.responses.retrieve(id, { stream: true, starting_after: 3 })
  const numbers = []
  for await (const event of rest) numbers.push(event.sequence_number)
  assert.deepEqual(numbers, events.slice(4).map((event) => event.sequence_number))
  await client.responses.delete(id)
  await assert.rejects(client.responses.retrieve(id), ({ status }) => status === 404)
}

/** The library calls the tool itself, and goes on with what it returns. */
async function tools(client) {
  const asked = []
  const weather = {
    name: "weather",
    description: "The weather.",
    parameters: { type: "object", properties: { city: { type: "string" } } },
    parse: JSON.parse,
    function: ({ city }) => (asked.push(city), "18"),
  }
  for (const stream of [false, true]) {
    const tools = [{ type: "function", function: weather }]
    const runner = client.chat.completions.runTools({ model: "ken", messages: [user("weather")], tools, stream })
    assert.equal(await runner.finalContent(), "It is 18.")
  }
  assert.deepEqual(asked, ["Paris", "Paris"])
}

async function kills(client, { url, home }) {
  for (const name of ["gateway", "agent"]) {
    await until(`${name} runs`, () => isStable(home, name))
    const before = await sessions(url)
    const killer = setTimeoutOnce(500, () => process.kill(part(home, name).pid, "SIGKILL"))
    const answer = await client.chat.completions.create({ model: "ken", messages: [user(`slowly, ${name}`)] })
    await killer
    assert.equal(answer.choices[0].message.content, "One two three.")
    assert.equal(await sessions(url), before + 1)
    await until(`${name} runs`, () => isStable(home, name))
    const again = setTimeoutOnce(500, () => process.kill(part(home, name).pid, "SIGKILL"))
    const response = await client.responses.create({ model: "ken", input: `slowly, response ${name}` })
    await again
    assert.equal(response.output_text, "One two three.")
    assert.equal(await sessions(url), before + 2)
  }
}

async function setTimeoutOnce(ms, work) {
  await sleep(ms)
  work()
}

const folder = mkdtempSync(join(tmpdir(), "ken-openai-script-"))
mkdirSync(join(folder, "model"))
const script = join(folder, "model", "script.jsonl")
writeFileSync(script, LINES.map((line) => `${JSON.stringify(line)}\n`).join(""))
try {
  await within("openai", { env: { KEN_MODEL: "script", KEN_SCRIPT: script } }, async (system) => {
    const client = new OpenAI({ baseURL: `${system.url}/v1`, apiKey: "local", maxRetries: 8 })
    await chat(client)
    await responses(client)
    await tools(client)
    await kills(client, system)
  })
} finally {
  rmSync(folder, { recursive: true, force: true })
}
console.log(`the interface of OpenAI: ${counted()} checks hold with openai from npm`)
