// node mcp_clients.js DIRECTORY-OF-PROGRAMS: tests ken as a server of the Model Context Protocol, and as an agent for editors, with
// clients of others: both official TypeScript clients over pipes and streamable HTTP, the MCP inspector in CLI mode, and the official
// client of the Agent Client Protocol. Parts are killed during calls. The exit status is 0 if all holds.
import { spawn, spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Readable, Writable } from "node:stream"
import * as acp from "@agentclientprotocol/sdk"
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client"
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio"
import { Client as FirstClient } from "@modelcontextprotocol/sdk/client/index.js"
import { StdioClientTransport as FirstStdio } from "@modelcontextprotocol/sdk/client/stdio.js"
import { StreamableHTTPClientTransport as FirstHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import { assert, counted, here, ken, until, within } from "./system.js"

const script = [
  { when: "slowly", events: [{ think: "Hm." }, { sleep_ms: 5000 }, { text: "At last." }] },
  { when: "hold", events: [{ sleep_ms: 60_000 }] },
  { when: "please", after_tools: 0, events: [{ tool: { name: "gated", arguments: {} } }] },
  { when: "please", after_tools: 1, events: [{ text: "Done." }] },
  { events: [{ text: "Hello " }, { text: "there." }] },
]
const gated = {
  name: "gated", description: "A tool.", command: ["sh", "-c", "cat >/dev/null; echo did it"],
  input: { type: "object" }, writes: "text", agents: ["orchestrator"],
}

async function run({ home, url }) {
  const front = (...words) => spawnSync(ken, ["--home", home, ...words], { encoding: "utf8" })
  const runs = async () => (await (await fetch(`${url}/api/telemetry/runs?limit=100`)).json()).runs
  const count = async (status) => (await runs()).filter((run) => run.status === status).length
  mkdirSync(join(home, "tools.d"), { recursive: true })
  writeFileSync(join(home, "tools.d/gated.json"), JSON.stringify(gated), { mode: 0o600 })
  const mcp = join(ken, "../ken-mcp")

  // Calls tools, lists prompts, and has a part killed in the middle of a call.
  async function client(name, client, transport) {
    await client.connect(transport)
    const { tools } = await client.listTools()
    assert.deepEqual(tools.map((tool) => tool.name).sort(), ["ask_ken", "get_result", "judge_text", "knowledge_search", "read_emotion", "reason", "run_workflow", "verify_rules"])
    assert.equal((await client.listPrompts()).prompts[0].name, "research")
    assert.match((await client.getPrompt({ name: "research", arguments: { task: "Compare." } })).messages[0].content.text, /Compare\.$/)
    const call = (name, given, options) => client.callTool({ name, arguments: given }, ...options)
    const options = client instanceof FirstClient ? (given) => [undefined, given] : (given) => [given]
    const reasoned = await call("reason", { facts: ["Socrates is a man"], rules: [[["?x is a man"], "?x is mortal"]] }, options({}))
    assert.match(reasoned.content[0].text, /Socrates is mortal/)
    assert.equal((await call("reason", { facts: "x" }, options({}))).isError, true)
    assert.equal((await call("ask_ken", { question: `hi from ${name}` }, options({}))).content[0].text, "Hello there.")
    const steps = []
    const slow = await call("ask_ken", { question: `slowly, ${name}` }, options({ onprogress: (step) => steps.push(step) }))
    assert.equal(slow.content[0].text, "At last.")
    assert.ok(steps.length > 0, "no progress was told")
    const { resources } = await client.listResources()
    const read = await client.readResource({ uri: resources[0].uri })
    assert.deepEqual([read.contents[0].uri, read.contents[0].mimeType], [resources[0].uri, "text/markdown"])
    const before = await count("aborted")
    const stop = new AbortController()
    const held = call("ask_ken", { question: `hold, ${name}` }, options({ signal: stop.signal })).then(() => "answered", () => "cancelled")
    await until("the turn runs", async () => (await count("running")) === 1)
    stop.abort()
    assert.equal(await held, "cancelled")
    await until("the cancelled turn has ended", async () => (await count("aborted")) === before + 1)
    for (const part of ["agent", "gateway"]) {
      const question = { question: `slowly, ${name}, and ${part} is killed` }
      const done = await count("completed")
      // What the client does not do itself is done as its user would: the call is made again.
      const again = async () => {
        for (let tries = 0; ; tries += 1) {
          try {
            return await call("ask_ken", question, options({}))
          } catch (error) {
            if (tries === 20) throw error
            await new Promise((done) => setTimeout(done, 500))
          }
        }
      }
      const answer = again()
      await until("the turn runs", async () => (await count("running")) === 1)
      assert.equal(front("kill", part).status, 0)
      assert.equal((await answer).content[0].text, "At last.")
      assert.equal(await count("completed"), done + 1)
    }
    await client.close()
    console.log(`${name}: tools, prompts, resources, progress, cancellation, one turn through kills`)
  }
  const info = { name: "conformance", version: "1" }
  const pipe = { command: mcp, args: ["--home", home] }
  await client("SDK 1 over pipes", new FirstClient(info), new FirstStdio(pipe))
  await client("SDK 1 over HTTP", new FirstClient(info), new FirstHttp(new URL(`${url}/mcp`)))
  for (const mode of ["auto", "legacy"]) {
    const versionNegotiation = { mode }
    await client(`SDK 2 over pipes, ${mode}`, new Client(info, { versionNegotiation }), new StdioClientTransport(pipe))
    await client(`SDK 2 over HTTP, ${mode}`, new Client(info, { versionNegotiation }), new StreamableHTTPClientTransport(new URL(`${url}/mcp`)))
  }

  const inspector = join(here, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
  for (const target of [[`${url}/mcp`, "--transport", "http"], [mcp, "--home", home]]) {
    const inspect = (...words) => {
      const done = spawnSync(process.execPath, [inspector, "--cli", ...target, ...words], { encoding: "utf8" })
      assert.equal(done.status, 0, done.stderr + done.stdout)
      return JSON.parse(done.stdout)
    }
    assert.equal(inspect("--method", "tools/list").tools.length, 8)
    const asked = inspect("--method", "tools/call", "--tool-name", "ask_ken", "--tool-arg", `question=inspect ${target[0]}`)
    assert.equal(asked.content[0].text, "Hello there.")
  }
  console.log("inspector: lists and calls over both transports")

  // The agent for editors.
  const project = mkdtempSync(join(tmpdir(), "ken-project-"))
  async function editor(name, choose, work) {
    const agent = spawn(ken, ["--home", home, "acp"], { stdio: ["pipe", "pipe", "inherit"] })
    const updates = []
    const connected = acp.client({ name })
      .onRequest(acp.methods.client.session.requestPermission, (ctx) => choose(ctx.params))
      .onNotification(acp.methods.client.session.update, (ctx) => void updates.push(ctx.params.update))
    await connected.connectWith(acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), async (ctx) => {
      const { protocolVersion, agentCapabilities } = await ctx.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} })
      assert.deepEqual([protocolVersion, agentCapabilities.loadSession], [1, true])
      await work(ctx, updates, agent)
    })
    agent.kill()
  }
  const said = (updates, kind = "agent_message_chunk") =>
    updates.filter((update) => update.sessionUpdate === kind).map((update) => update.content.text).join("")
  const once = ({ options }) => ({ outcome: { outcome: "selected", optionId: options.find((option) => option.kind === "allow_once").optionId } })
  let session
  await editor("editor", once, async (ctx, updates) => {
    const open = (given) => ctx.request(acp.methods.agent.session.new, { cwd: project, mcpServers: [], ...given })
    const refusal = (opened) => opened.then(() => "opened", (error) => error.message)
    assert.match(await refusal(open()), /workspace trust/)
    assert.equal(front("workspace", "trust", project).status, 0)
    assert.match(await refusal(open({ mcpServers: [{ name: "files", command: "/bin/true", args: [], env: [] }] })), /files.*ken.*accept files/)
    session = (await open()).sessionId
    const prompt = (text) => ctx.request(acp.methods.agent.session.prompt, { sessionId: session, prompt: [{ type: "text", text }] })
    assert.equal((await prompt("slowly, editor")).stopReason, "end_turn")
    assert.equal(said(updates).trim(), "At last.")
    assert.equal(said(updates, "agent_thought_chunk"), "Hm.")
    updates.length = 0
    assert.equal((await prompt("please, editor")).stopReason, "end_turn")
    assert.equal(said(updates).trim(), "Done.")
    assert.ok(updates.some((update) => update.sessionUpdate === "tool_call" && update.title === "gated"), JSON.stringify(updates))
    const held = prompt("hold, editor")
    await until("the turn runs", async () => (await count("running")) === 1)
    await ctx.notify(acp.methods.agent.session.cancel, { sessionId: session })
    assert.equal((await held).stopReason, "cancelled")
    for (const part of ["gateway", "agent"]) {
      const done = await count("completed")
      updates.length = 0
      const answer = prompt(`slowly, editor, and ${part} is killed`)
      await until("the turn runs", async () => (await count("running")) === 1)
      assert.equal(front("kill", part).status, 0)
      assert.equal((await answer).stopReason, "end_turn")
      assert.equal(said(updates).trim(), "At last.")
      assert.equal(await count("completed"), done + 1)
    }
  })
  await editor("second editor", once, async (ctx, updates) => {
    await ctx.request(acp.methods.agent.session.load, { sessionId: session, cwd: project, mcpServers: [] })
    assert.match(said(updates, "user_message_chunk"), /^slowly, editor/)
    assert.match(said(updates), /At last\..*Done\./s)
    assert.ok(updates.some((update) => update.sessionUpdate === "tool_call" && update.title === "gated"), JSON.stringify(updates))
  })
  rmSync(project, { recursive: true, force: true })
  console.log("editors: updates, permission, cancellation, one turn through kills, a session loaded")
  console.log(`clients of MCP and of the Agent Client Protocol: ${counted()} checks hold`)
}

const folder = mkdtempSync(join(tmpdir(), "ken-script-"))
const file = join(folder, "script.jsonl")
writeFileSync(file, script.map((line) => JSON.stringify(line)).join("\n"))
try {
  const files = { "ken.toml": "[doors]\nmcp_transcripts = true\n" }
  await within("clients", { env: { KEN_MODEL: "script", KEN_SCRIPT: file }, files }, run)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
