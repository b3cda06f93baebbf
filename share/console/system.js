// The parts of the system: how they are, what they log, and the models that are called.
import { html, Component, Failed, announce, bytes, duration, oneLine, visible, when } from "./ui.js";
import { Follow, get, post, query } from "./api.js";
import { Findings } from "./inbox.js";

/** So many lines of a log are in the page. */
const MAX_LINES = 300;
const MESSENGER = "/api/connectors/messenger";
const LEVELS = ["error", "warn", "info", "debug"];

export class System extends Component {
  async restart(name) {
    this.setState({ restarting: name, error: null });
    try {
      await post(`/api/system/parts/${encodeURIComponent(name)}/restart`, {});
      announce(`${name} is ready again.`);
    } catch (error) {
      this.setState({ error });
    }
    this.setState({ restarting: null });
    this.props.app.refresh();
  }

  render({ app }, { restarting, error }) {
    const { system } = app.state;
    return html`<main class="page" id="main" tabindex="-1">
      <h1>System</h1>
      <${Failed} error=${error ?? app.state.error} />
      ${system && html`
        <p class="note">ken ${oneLine(system.version)}${system.home && ` · ${oneLine(system.home)}`}
          ${system.listeners.map(one => ` · ${oneLine(one.name)} ${oneLine(one.url)}`)}</p>
        ${system.config.errors.map(text => html`<p class="failed">The last good configuration is in force: ${oneLine(text)}</p>`)}
        <h2>Parts</h2>
        <div class="wide" tabindex="0" role="region" aria-label="Parts"><table><thead><tr><th>part</th><th>state</th><th>for</th><th>restarts</th><th>memory</th><th>CPU</th><th>last end</th><th><span class="unseen">action</span></th></tr></thead>
        <tbody>${system.parts.map(part => html`<tr><th scope="row">${oneLine(part.name)}</th>
          <td class=${part.state === "ready" || !(part.enabled || part.wanted) ? "" : "bad"}>${part.state}${part.statusText && html` <span class="note">${oneLine(part.statusText)}</span>`}</td>
          <td>${duration(part.uptimeMs)}</td><td>${part.restarts}</td><td>${part.memoryBytes != null && bytes(part.memoryBytes)}</td><td>${duration(part.cpuMs)}</td><td>${oneLine(part.cause ?? part.lastExit ?? "")}</td>
          <td>${part.name !== "gateway" && part.enabled && html`<button type="button" class="small" disabled=${Boolean(restarting)} aria-label=${`Restart ${part.name}`}
            onClick=${() => this.restart(part.name)}>${restarting === part.name ? "…" : "Restart"}</button>`}</td></tr>`)}</tbody></table></div>
        <h2>Models</h2>
        <${Models} system=${system} />
        <${Messenger} app=${app} />
        <h2>Findings</h2>
        <${Doctor} />
        <h2>Configuration</h2>
        <${Config} />
        <h2>Audit log</h2>
        <${Audit} />
        <h2>Logs</h2>
        <${Logs} names=${[...system.parts.filter(part => part.enabled).map(part => part.name), "kend"]} />`}
    </main>`;
  }
}

function Models({ system: { models, providers } }) {
  if (!models) return html`<p class="bad">The part that calls models does not answer.</p>`;
  const health = provider => provider.downSince ? html`<span class="bad">down since ${when(provider.downSince)}: ${oneLine(provider.cause)}</span>`
    : provider.lastSuccess ? html`answered ${when(provider.lastSuccess)}` : "";
  return html`<ol>${models.use.map(name => html`<li>${oneLine(name)}</li>`)}</ol>
    ${models.others.length > 0 && html`<p class="note">Chosen by name: ${models.others.map(oneLine).join(", ")}</p>`}
    ${models.unusable.map(one => html`<p class="failed">${oneLine(one.model)}: ${oneLine(one.why)}</p>`)}
    <ul class="rows">${providers.known.map(one => html`<li><strong>${oneLine(one.name)}</strong> ${health(one)}</li>`)}</ul>`;
}

/** What `ken doctor` finds, notes included. */
class Doctor extends Component {
  async componentDidMount() {
    try { this.setState({ report: await get("/api/doctor") }); } catch (error) { this.setState({ error }); }
  }

  render(_, { report, error }) {
    if (!report) return error ? html`<${Failed} error=${error} />` : html`<p class="note">ken doctor looks at files, programs and models …</p>`;
    return html`${report.findings.length ? html`<${Findings} findings=${report.findings} />` : html`<p>Nothing is wrong.</p>`}
      <p class="note">As of ${when(report.at)}.</p>`;
  }
}

/** The configuration in force, with the file and line of each setting. What nobody has set is left out until it is asked for. */
class Config extends Component {
  async open(event) {
    if (!event.target.open || this.state.settings) return;
    try {
      const { settings } = await get("/api/config");
      this.setState({ settings, error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  render(_, { settings, error, all = false, words = "" }) {
    const wanted = ({ key, from }) => (all || from !== "default") && key.includes(words.trim());
    const shown = settings?.filter(wanted) ?? [];
    return html`<details onToggle=${event => this.open(event)}><summary>Settings in force, and where they come from</summary>
      <${Failed} error=${error} />
      ${settings && html`<div class="choices"><label>Name has <input type="search" data-search spellcheck=${false} value=${words} onInput=${event => this.setState({ words: event.target.value })} /></label>
        <label><input type="checkbox" checked=${all} onChange=${event => this.setState({ all: event.target.checked })} /> defaults, too</label></div>
        ${shown.length ? html`<div class="wide" tabindex="0" role="region" aria-label="Configuration"><table class="settings"><thead><tr><th>setting</th><th>value</th><th>from</th></tr></thead>
          <tbody>${shown.map(({ key, value, from }) => html`<tr key=${key}><th scope="row">${oneLine(key)}</th><td><code>${visible(JSON.stringify(value))}</code></td><td>${oneLine(from)}</td></tr>`)}</tbody></table></div>`
          : html`<p class="note">${all || words ? "None has this name." : "Everything is as ken comes."}</p>`}`}</details>`;
  }
}

/** The chain of the audit log, checked when a person asks: all of it is read. */
class Audit extends Component {
  async check() {
    this.setState({ busy: true, error: null, found: null });
    try {
      this.setState({ found: await get("/api/audit") });
    } catch (error) {
      this.setState({ error });
    }
    this.setState({ busy: false });
  }

  render(_, { found, error, busy }) {
    return html`<button type="button" disabled=${busy} onClick=${() => this.check()}>${busy ? "Checking …" : "Check it"}</button>
      <${Failed} error=${error} />
      <div role="status">${found && (found.good
        ? html`<p>Unchanged: ${found.records} records${found.records > 0 && html`; the last is ${found.last}, <code>${oneLine(found.lastHash)}</code>`}</p>`
        : html`<p class="failed">${oneLine(found.fault)}</p>`)}</div>`;
  }
}

/** Who may write in the messenger, and who asks for it. */
class Messenger extends Component {
  componentDidMount() {
    this.load();
    this.stop = this.props.app.onChange(({ type }) => { if (type.startsWith("connector.")) this.load(); });
  }

  componentWillUnmount() {
    this.stop();
  }

  async load() {
    try {
      const [status, health] = await Promise.all(["status", "health"].map(what => get(`${MESSENGER}/${what}`)));
      this.setState({ status, health, error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  async act(what, body) {
    try { await post(`${MESSENGER}/${what}`, body); } catch (error) { return this.setState({ error }); }
    announce("Done.");
    return this.load();
  }

  render(_, { status, health, error }) {
    // Without the connector there is nothing to see, and a part that is down stands in the table above.
    if (!health?.enabled) return null;
    return html`<h2>Messenger</h2>
      <${Failed} error=${error} />
      <p class="note">New senders: ${oneLine(status.dmPolicy)} · ${health.outbox.pending} to be sent, ${health.outbox.failed} failed, ${health.outbox.unknown} unknown
        ${health.lastError && html` · <span class="bad">${oneLine(health.lastError)}</span>`}</p>
      <ul class="rows">${status.pendingPairings.map(({ code, senderId, createdAt }) => html`<li>${oneLine(senderId)} asks with the code <code>${oneLine(code)}</code> since ${when(createdAt)}${" "}
          <button type="button" onClick=${() => this.act("pair", { code })}>Admit</button> <button type="button" class="danger" onClick=${() => this.act("deny", { code })}>Deny</button></li>`)}
        ${status.allowedUsers.map(({ userId, addedAt }) => html`<li>${oneLine(userId)} may write${addedAt && html`, since ${when(addedAt)}`}${" "}
          <button type="button" class="danger" onClick=${() => this.act("remove", { userId })}>Remove</button></li>`)}</ul>`;
  }
}

class Logs extends Component {
  componentDidMount() {
    this.load();
  }

  componentWillUnmount() {
    this.stream?.close();
  }

  async load() {
    const { part = this.props.names[0], level = "info", follows } = this.state, params = { part, level, lines: MAX_LINES };
    // What was chosen before can be answered later.
    const asked = this.asked = {};
    this.stream?.close();
    if (follows) {
      // Several lines come at once, and each opening begins anew.
      let lines = [];
      this.stream = new Follow("/api/logs", undefined, {
        params: { ...params, follow: "sse" }, onOpen: () => { lines = []; },
        onEvents: line => { lines = [...lines, read(line)].slice(-MAX_LINES); this.show(lines); },
      });
      return;
    }
    try {
      const { lines } = await get(`/api/logs${query(params)}`);
      if (this.asked === asked) this.show(lines.map(read));
    } catch (error) {
      if (this.asked === asked) this.setState({ error });
    }
  }

  show(lines) {
    this.setState({ lines, error: null }, () => { if (this.state.follows && this.view) this.view.scrollTop = this.view.scrollHeight; });
  }

  render({ names }, { part = names[0], level = "info", follows = false, lines = [], error }) {
    const choose = change => this.setState({ ...change, lines: [] }, () => this.load());
    return html`<div class="choices">
      <label>Part <select value=${part} onChange=${event => choose({ part: event.target.value })}>
        ${names.map(name => html`<option value=${name}>${oneLine(name)}</option>`)}</select></label>
      <label>Level <select value=${level} onChange=${event => choose({ level: event.target.value })}>
        ${LEVELS.map(name => html`<option value=${name}>${name}</option>`)}</select></label>
      <label><input type="checkbox" checked=${follows} onChange=${event => choose({ follows: event.target.checked })} /> follow</label>
      ${!follows && html`<button type="button" onClick=${() => this.load()}>Read again</button>`}</div>
      <${Failed} error=${error} />
      <pre class="log" tabindex="0" aria-label=${`Log of ${part}`} ref=${view => { this.view = view; }}>${lines.length ? lines.map(line =>
        html`<span class=${line.level === "error" ? "bad" : ""}>${line.text}${"\n"}</span>`) : "Nothing of this level."}</pre>`;
  }
}

/** A line of a log: time, level and message of a part of ken, or the line as it is. */
function read(line) {
  try {
    const { timestamp, level, fields = {}, message = fields.message, ...others } = JSON.parse(line);
    const rest = Object.entries({ ...others, ...fields }).filter(([name]) => !["message", "target"].includes(name))
      .map(([name, value]) => ` ${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
    if (message !== undefined) return { level: String(level ?? "info").toLowerCase(), text: visible(`${timestamp ?? ""} ${String(level ?? "").toLowerCase()} ${message}${rest.join("")}`) };
  } catch { /* not a part of ken */ }
  return { level: "info", text: visible(line) };
}
