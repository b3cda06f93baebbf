// node mcp_readmes.js DIRECTORY-OF-PROGRAMS: adds four reference servers of the Model Context Protocol from npm and two from PyPI
// to a system with the JSON that their own READMEs print, as a person does, and calls their tools. The packages of node_modules and
// of the Python environment give the READMEs; ken installs its own from the registries. The exit status is 0 if all of it holds.
import { execFileSync, spawnSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, counted, here, ken, until, within } from "./system.js"

// The versions whose READMEs are used; uvx is a program of the package uv.
const environment = join(here, "../../target/mcp")
execFileSync("sh", [join(here, "environment.sh"), environment, "uv==0.13.9", "mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"], {
  stdio: "inherit",
})
const packages = join(environment, "lib", readdirSync(join(environment, "lib")).find((name) => name.startsWith("python3")), "site-packages")
const ofNpm = (name) => readFileSync(join(here, "node_modules/@modelcontextprotocol", name, "README.md"), "utf8")
const ofPypi = (name) =>
  readFileSync(join(packages, readdirSync(packages).find((file) => file.startsWith(`${name}-`) && file.endsWith(".dist-info")), "METADATA"), "utf8")

/** The first JSON of a README that starts its server with this launcher. */
function json(readme, launcher) {
  const blocks = [...readme.matchAll(/```json\r?\n([\s\S]*?)```/g)].map((match) => match[1])
  const found = blocks.find((block) => block.includes(`"command": "${launcher}"`) && block.includes("mcpServers"))
  assert.ok(found, `no JSON with ${launcher}`)
  return found
}

const files = mkdtempSync(join(tmpdir(), "ken-readmes-"))
const [notes, repository] = [join(files, "notes"), join(files, "repository")]
mkdirSync(notes)
execFileSync("git", ["init", "-q", repository])
/** The servers, each with what a person does to its JSON, and with the options that its README or its purpose asks for. */
const servers = {
  everything: { json: json(ofNpm("server-everything"), "npx") },
  filesystem: {
    json: json(ofNpm("server-filesystem"), "npx").replace("/Users/username/Desktop", notes).replace(/,\s*"\/path\/to\/other[^"]*"/, ""),
    options: ["--write", notes],
  },
  memory: { json: json(ofNpm("server-memory"), "npx") },
  "sequential-thinking": { json: json(ofNpm("server-sequential-thinking"), "npx") },
  time: { json: json(ofPypi("mcp_server_time"), "uvx") },
  git: { json: json(ofPypi("mcp_server_git"), "uvx").replace("path/to/git/repo", repository) },
}

// Where the registries have no public addresses, an operator says so by naming them.
const env = {
  ...process.env,
  PATH: `${join(environment, "bin")}:/usr/local/bin:/usr/bin:/bin`,
  npm_config_registry: process.env.npm_config_registry ?? "https://registry.npmjs.org/",
  UV_DEFAULT_INDEX: process.env.UV_DEFAULT_INDEX ?? "https://pypi.org/simple",
  KEN_PACKAGE_HOSTS: process.env.KEN_PACKAGE_HOSTS ?? "files.pythonhosted.org:443",
  KEN_ERRORS: "json",
}

async function walk({ home }) {
  const ran = (words, input = "") => spawnSync(ken, ["--home", home, ...words], { input, encoding: "utf8", env })
  const run = (words, input) => {
    const { stdout, stderr } = ran(words, input)
    return JSON.parse(stdout.trim() || stderr.trim())
  }
  // The operator who types this approves the call by that.
  const call = (tool, given) => run(["tools", "call", `mcp__${tool}`, "--json", JSON.stringify(given)])
  const said = (tool, given = {}) => {
    const called = call(tool, given)
    assert.equal(called.is_error, false, JSON.stringify(called).slice(0, 2000))
    return called.result.content[0].text
  }
  for (const [name, { json, options = [] }] of Object.entries(servers)) {
    const begun = Date.now()
    const added = run(["tools", "add", "--yes", ...options], json)
    const [seen] = added.servers ?? []
    assert.equal(seen?.state, "new", `${name}: ${JSON.stringify(added).slice(0, 2000)}`)
    assert.equal(ran(["accept", name, "--digest", seen.sha256]).status, 0)
    await until(`${name} is offered`, () =>
      run(["call", "tools", "tools.list"]).tools.some((tool) => tool.name.startsWith(`mcp__${name}__`)),
    )
    console.log(`${name}: ${seen.tools.length} tools, added in ${((Date.now() - begun) / 1000).toFixed(1)} s`)
  }
  for (const folder of ["everything", "filesystem", "memory", "sequential-thinking"]) {
    assert.ok(existsSync(join(home, "state/mcp", folder, "package-lock.json")), folder)
  }
  assert.match(said("everything__echo", { message: "Grüße" }), /Grüße/)
  assert.match(said("everything__trigger-long-running-operation", { duration: 3, steps: 6 }), /completed/i)
  assert.match(said("everything__list_resources"), /which others have written[\s\S]*:\/\//)
  const resource = said("everything__list_resources").match(/^\S+:\/\/\S+/m)[0]
  assert.match(said("everything__read_resource", { uri: resource }), new RegExp(resource.replace(/[^a-z]/gi, ".")))
  assert.match(ran(["mcp", "list", "--verbose"]).stdout, /^  prompt \S+/m)
  console.log("everything: echo, progress, resources, prompts")
  const path = join(notes, "note.txt")
  said("filesystem__write_file", { path, content: "written\n" })
  assert.equal(readFileSync(path, "utf8"), "written\n")
  console.log("filesystem: writes in the folder of its README")
  said("memory__create_entities", { entities: [{ name: "Ana", entityType: "person", observations: ["likes tea"] }] })
  assert.match(said("memory__read_graph"), /likes tea/)
  console.log("memory: keeps what it is told")
  const thought = { thought: "One step.", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 }
  assert.match(said("sequential-thinking__sequentialthinking", thought), /thoughtNumber/)
  console.log("sequential-thinking: a thought")
  assert.match(said("time__convert_time", { source_timezone: "Europe/Berlin", time: "12:00", target_timezone: "UTC" }), /"?timezone"?/)
  console.log("time: converts")
  // The question lets it read the repository, which is enough for this.
  assert.match(said("git__git_status", { repo_path: repository }), /[Oo]n branch|No commits/)
  console.log("git: status of the repository of its README")
  console.log(`six servers by their READMEs: ${counted()} checks hold`)
}

try {
  await within("mcp-readmes", { env }, walk)
} finally {
  rmSync(files, { recursive: true, force: true })
}
