// node mcp.js DIRECTORY-OF-PROGRAMS: tests a system with two third-party reference servers of the Model Context Protocol as
// sources of tools, over pipes and over streamable HTTP. The exit status is 0 if all calls return the expected results.
import { spawn, spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, counted, freePort, here, ken, until, within } from "./system.js"

const modules = join(here, "node_modules")
const program = (name) => join(modules, "@modelcontextprotocol", name, "dist/index.js")
const files = mkdtempSync(join(tmpdir(), "ken-mcp-files-"))

const port = await freePort()
const startRemote = () =>
  spawn(process.execPath, [program("server-everything"), "streamableHttp"], {
    env: { ...process.env, PORT: String(port) },
    stdio: "ignore",
  })
let remote = startRemote()
const own = { approval: "none", timeout_ms: 20_000 }
const node = (name, ...words) => ({ command: process.execPath, args: [program(name), ...words] })
const servers = {
  everything: { ...node("server-everything", "stdio"), ken: { ...own, touch: { read: [modules, process.execPath] } } },
  remote: { type: "http", url: `http://127.0.0.1:${port}/mcp`, ken: own },
  files: { ...node("server-filesystem", files), ken: { ...own, touch: { read: [modules, process.execPath], write: [files] } } },
}

async function calls({ home }) {
  const ran = (words, input = "") =>
    spawnSync(ken, ["--home", home, ...words], { input, encoding: "utf8", env: { ...process.env, KEN_ERRORS: "json" } })
  const run = (words) => {
    const { status, stdout, stderr } = ran(words)
    return { status, ...JSON.parse(stdout.trim() || stderr.trim()) }
  }
  // A call prints how far it has come, one line each, and then its result.
  const lines = (server, tool, given) => {
    const input = JSON.stringify({ name: `mcp__${server}__${tool}`, arguments: given })
    const { stdout, stderr } = ran(["call", "tools", "tools.call", "-"], input)
    return (stdout.trim() || stderr.trim()).split("\n").map((line) => JSON.parse(line))
  }
  const call = (server, tool, given) => lines(server, tool, given).at(-1)
  const said = (called) => {
    assert.equal(called.is_error, false, JSON.stringify(called).slice(0, 2000))
    return called.result.content[0].text
  }
  await until("all servers name their tools", () => {
    const { servers } = run(["tools", "servers"])
    return servers.every((server) => server.state === "new" && server.tools.length > 5)
  })
  for (const server of ["everything", "remote", "files"]) {
    const { sha256, tools } = run(["tools", "accept", server])
    assert.equal(run(["tools", "accept", server, sha256]).state, "accepted")
    await until(`${server} is offered`, () => run(["call", "tools", "tools.list"]).tools.some((tool) => tool.name.startsWith(`mcp__${server}__`)))
    console.log(`${server}: ${tools.length} tools accepted`)
  }
  for (const server of ["everything", "remote"]) {
    await until(`${server} answers`, () => call(server, "echo", { message: "x" }).is_error === false)
    assert.match(said(call(server, "echo", { message: "Grüße" })), /Grüße/)
    assert.match(said(call(server, "get-sum", { a: 2, b: 40 })), /42/)
    assert.match(said(call(server, "get-tiny-image", {})), /an image, image\/png, \d+ bytes/)
    assert.equal(typeof call(server, "get-structured-content", { location: "New York" }).result.details.temperature, "number")
    // This tool sends progress notifications while it runs.
    const steps = lines(server, "trigger-long-running-operation", { duration: 4, steps: 8 })
    assert.match(said(steps.at(-1)), /completed/i)
    assert.ok(steps.length > 2 && steps.slice(0, -1).every(({ progress, total }) => progress > 0 && total === 8), JSON.stringify(steps))
    assert.match(JSON.stringify(call(server, "get-sum", { a: "two", b: 1 })), /\/arguments\/a/)
    console.log(`${server}: echo, sum, image, structured content, progress`)
  }
  assert.doesNotMatch(said(call("everything", "get-env", {})), /KEN_|NOTIFY_SOCKET|npm_/)
  const path = join(files, "note.txt")
  said(call("files", "write_file", { path, content: "written\n" }))
  assert.equal(readFileSync(path, "utf8"), "written\n")
  assert.match(said(call("files", "read_text_file", { path })), /written/)
  assert.match(said(call("files", "list_directory", { path: files })), /note\.txt/)
  assert.equal(call("files", "read_text_file", { path: "/etc/hostname" }).is_error, true)
  console.log("files: write, read, list; nothing else can be read")
  // If a server has ended, the call returns an error.
  remote.kill("SIGKILL")
  await until("the loss of the remote server is told", () => call("remote", "echo", { message: "x" }).is_error !== false)
  console.log("remote: its loss is an error of the call")
  // A server that was restarted answers 400 to the session of its predecessor, which then is begun again.
  remote = startRemote()
  await until("the remote server listens again", () => fetch(`http://127.0.0.1:${port}/mcp`).then(() => true, () => false))
  assert.match(said(call("remote", "echo", { message: "restarted" })), /restarted/)
  console.log("remote: a new session after its restart")
  console.log(`reference servers of MCP: ${counted()} checks hold`)
}

try {
  await within("mcp", { files: { "mcp.json": JSON.stringify({ mcpServers: servers }) } }, calls)
} finally {
  remote.kill()
  rmSync(files, { recursive: true, force: true })
}
