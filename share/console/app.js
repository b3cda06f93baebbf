// The frame of the console: how a person comes in, what stands at the top of every page, and which page is shown.
import { html, render, Component, Failed, announce, focused, oneLine, plural, when } from "./ui.js";
import { Follow, access, comeIn, forget, get, keep, load, reader } from "./api.js";
import { Inbox } from "./inbox.js";

/** The version whose files these are: the first part of their path. */
const VERSION = new URL(import.meta.url).pathname.split("/")[1];
const REFRESH_MS = 30_000;
/** Events after which something may have failed. */
const SETTLED = /^(submission\.settled|run\.ended|schedule\.run)$/;

/** The pages, in the order of the row. The start page comes with the frame, the others when they are opened. */
const PAGES = [
  { name: "inbox", title: "Inbox", page: Inbox },
  { name: "chat", title: "Chat", load: async () => (await import("./chat.js")).Chat },
  { name: "runs", title: "Runs", load: async () => (await import("./runs.js")).Runs },
  { name: "schedules", title: "Schedules", load: async () => (await import("./schedules.js")).Schedules },
  { name: "knowledge", title: "Knowledge", load: async () => (await import("./knowledge.js")).Knowledge },
  { name: "usage", title: "Usage", load: async () => (await import("./usage.js")).Usage },
  { name: "system", title: "System", key: "y", load: async () => (await import("./system.js")).System },
];

/** An address that a person has typed can contain a `%` that begins no escape. */
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const known = PAGES.find(page => page.name === name) ?? PAGES[0];
  return { page: known, id: known.name === name && rest.length ? decoded(rest.join("/")) : undefined };
}

/** What is not as it should be, from the state of the system. */
function problemsOf(system) {
  if (!system) return [];
  const down = part => (part.enabled || part.wanted) && part.state !== "ready";
  const parts = system.parts.filter(down).map(part => ({
    what: `${part.name} is ${part.state}`, since: part.downSince, why: part.cause ?? part.lastExit ?? (part.waitsFor.length ? `waits for ${part.waitsFor.join(", ")}` : ""),
  }));
  const providers = system.providers.known.filter(one => one.downSince)
    .map(one => ({ what: `${one.name} is down`, why: one.cause ?? "", since: one.downSince }));
  const models = (system.models?.unusable ?? []).map(one => ({ what: `${one.model} cannot be called`, why: one.why }));
  const config = system.config.errors.map(error => ({ what: "The configuration has an error; the last good one is in force", why: error }));
  return [...parts, ...providers, ...models, ...config];
}

class App extends Component {
  constructor() {
    super();
    this.listeners = new Set();
    this.readInbox = reader("/api/inbox");
    this.state = { route: route(), problems: [], pending: null, failures: [], connection: "connecting" };
    access.onRefused = error => { this.stop(); this.setState({ refused: error }); };
  }

  componentDidMount() {
    addEventListener("hashchange", () => this.go());
    addEventListener("keydown", event => this.onKey(event));
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
    this.go();
  }

  /** Follows the address of the page. The code of a link leaves it, and the history, before anything else happens. */
  async go() {
    const code = /^#link=(.+)$/.exec(location.hash)?.[1];
    if (code) {
      history.replaceState(null, "", "/#/inbox");
      try {
        await comeIn(code);
      } catch (error) {
        // A browser that needs no link goes on without it.
        const mayRead = await get("/api/inbox").then(() => true, () => false);
        if (!mayRead) return this.setState({ refused: error });
      }
    }
    const to = route();
    this.setState({ route: to, broken: null });
    if (!this.events) this.start();
    if (!to.page.page) {
      try {
        to.page.page = await load(to.page.load);
      } catch (error) {
        // It may be that another version is installed, which has no files under this path.
        this.refresh();
        if (route().page === to.page) this.setState({ broken: error });
        return;
      }
      if (route().page !== to.page) return;
    }
    // A page can name the field in which a person goes on.
    this.setState({}, () => (document.querySelector("main [data-start]") ?? document.getElementById("main"))?.focus({ preventScroll: true }));
  }

  start() {
    this.stop();
    this.setState({ refused: null });
    this.timer = setInterval(() => document.hidden || this.refresh(), REFRESH_MS);
    this.events = new Follow("/api/events", "now", {
      onEvents: events => events.forEach(event => this.changed(event)),
      onState: connection => this.connected(connection),
      onGone: () => this.start(),
    });
  }

  stop() {
    clearInterval(this.timer);
    this.events?.close();
    this.events = null;
  }

  connected(connection) {
    const before = this.state.connection;
    if (before === connection) return;
    this.setState({ connection });
    if (connection === "broken") announce("The connection is lost. It is tried again.");
    if (connection === "live" && before === "broken") announce("Connected again.");
    if (connection === "live" && this.state.broken) this.go();
    // Read when the stream has begun: nothing changes unseen in between.
    this.refresh();
  }

  onChange(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed(event) {
    if (event.type.startsWith("approval.")) this.refreshInbox();
    // What failed is less urgent, and comes in swarms. A provider may be the cause.
    else if (SETTLED.test(event.type)) this.later ??= setTimeout(() => { this.later = null; this.refresh(); }, 500);
    if (event.type === "approval.requested") this.tell();
    this.listeners.forEach(listener => listener(event));
  }

  /** Tells a person who looks elsewhere. */
  tell() {
    announce("An approval waits for a decision.");
    if (!document.hasFocus() && "Notification" in window && Notification.permission === "granted") {
      try {
        new Notification("ken: an approval waits", { tag: "approval" });
      } catch {
        // On Android a page cannot show one; the title says it, too.
      }
    }
  }

  async refresh() {
    this.refreshInbox();
    try {
      const system = await get("/api/system");
      this.setState({ system, problems: problemsOf(system), error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  async refreshInbox() {
    try {
      const { approvals: pending, failures } = await this.readInbox();
      this.setState({ pending, failures });
    } catch (error) {
      this.setState({ error });
    }
  }

  onKey(event) {
    const isTyping = /^(input|textarea|select)$/i.test(event.target.tagName);
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = this.afterG && PAGES.find(page => (page.key ?? page.name[0]) === event.key);
    this.afterG = event.key === "g" && !this.afterG;
    if (page) location.hash = `#/${page.name}`;
    else if (event.key === "/") document.querySelector("[data-search]")?.focus();
    else if (event.key === "?") this.setState(({ help }) => ({ help: !help }));
    else if (event.key === "j" || event.key === "k") this.move(event.key === "j" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  /** Moves the focus in the list of the page. */
  move(by) {
    const rows = [...document.querySelectorAll("[data-row], .approval[tabindex]")];
    const at = rows.indexOf(document.activeElement);
    rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
  }

  componentDidUpdate(_, { route: before }) {
    // On a telephone the row of pages is wider than the screen.
    if (before !== this.state.route) document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "nearest", block: "nearest" });
    const waiting = this.state.pending?.length ?? 0;
    document.title = `${waiting ? `(${waiting}) ` : ""}${this.state.route.page.title} · ken`;
  }

  render(_, { route: { page, id }, refused, broken, system, help }) {
    if (refused) return html`<${ComeIn} error=${refused} onIn=${() => this.start()} />`;
    const isOther = system && system.version !== VERSION;
    return html`<a class="unseen" href="#main" onClick=${event => { event.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
      <header>
        <a class="brand" href="#/inbox">ken</a>
        <nav aria-label="Pages">${PAGES.map(one => html`<a href=${`#/${one.name}`} aria-current=${one === page ? "page" : undefined}>${one.title}
          ${one.name === "inbox" && this.state.pending?.length > 0 && html` <span class="count">${this.state.pending.length}<span class="unseen"> waiting</span></span>`}</a>`)}</nav>
        <${Now} ...${this.state} />
      </header>
      ${isOther && html`<div class="banner" role="status">Another version of ken is installed.
        <button type="button" onClick=${() => location.reload()}>Reload</button></div>`}
      ${page.page ? html`<${page.page} app=${this} id=${id} />` : html`<main class="page" id="main" tabindex="-1">${isOther ? "" : broken ? html`<${Failed} error=${broken} retry=${() => this.go()} />` : html`<p class="note">Loading …</p>`}</main>`}
      ${help && html`<${Help} onClose=${() => this.setState({ help: false })} />`}`;
  }
}

/** The row at the top: which model answers, what is wrong, what waits. */
function Now({ system, problems, pending, connection, error }) {
  const model = system?.providers.called[0] ?? system?.models?.use[0];
  const isBare = system?.models && (!model || model.startsWith("rules"));
  return html`<div class="now" role="status" aria-label="Now">
    ${connection === "broken" && html`<span class="bad">Reconnecting …</span>`}
    ${isBare && html`<span>no model: <code>ken setup</code></span>`}
    ${system && !isBare && (model ? html`<span title="The model that answers">${oneLine(model)}</span>` : html`<span class="bad">the model is not known: the part model does not answer</span>`)}
    ${problems.length > 0 && html`<a class="bad" href="#/inbox" title=${oneLine(problems[0].why)}>${oneLine(problems[0].what)}
      ${problems[0].since && html` since ${when(problems[0].since)}`}${problems.length > 1 && ` and ${problems.length - 1} more`}</a>`}
    ${system?.budget && html`<a href="#/usage">${budgetUsed(system.budget)}</a>`}
    ${pending?.length > 0 && html`<a class="waits" href="#/inbox">${plural(pending.length, "approval")}</a>`}
    ${!system && error && html`<span class="bad">${oneLine(error.message)}</span>`}
  </div>`;
}

/** How much of the day's budget is used: of the limit that is nearer. */
function budgetUsed({ tokens, tokensPerDay, cost, costPerDay }) {
  const parts = [tokensPerDay && tokens / tokensPerDay, costPerDay && cost / costPerDay].filter(Number.isFinite);
  return `budget ${Math.round(Math.max(0, ...parts) * 100)} % used`;
}

const KEYS = [
  ["g i, g c …", "go to a page by its first letter; g y to System"], ["/", "search"], ["j, k", "next and previous in a list"],
  ["a", "approve the focused request once"], ["d", "deny the focused request"], ["Enter", "send; Shift+Enter begins a line"], ["?", "this list"],
];

function Help({ onClose }) {
  return html`<dialog open aria-label="Keys" onKeyDown=${event => event.key === "Escape" && onClose()}>
    <h2>Keys</h2><dl>${KEYS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
    <button type="button" ref=${focused} onClick=${onClose}>Close</button></dialog>`;
}

/** Asks for access: a link, or the secret. */
class ComeIn extends Component {
  async submit(event) {
    event.preventDefault();
    const { secret } = this.state;
    try {
      new Headers({ "x-api-secret": secret });
    } catch {
      return this.setState({ error: new Error("This has a character that a secret cannot have, such as a curly quotation mark.") });
    }
    keep({ secret });
    try {
      await get("/api/inbox");
      this.props.onIn();
    } catch (error) {
      forget();
      this.setState({ error, secret: "" });
    }
  }

  render({ error }, state) {
    return html`<main class="page come-in" id="main" tabindex="-1">
      <h1>ken</h1>
      <p>This browser needs a way in. On the machine where ken runs, type</p>
      <pre>ken open</pre>
      <p>or, for the system service, <code>sudo ken open --print</code>, and follow the link. It works for one tab.</p>
      <form onSubmit=${event => this.submit(event)}>
        <label>Or give the secret (<code>API_SECRET</code>):
          <input type="password" autocomplete="off" required value=${state.secret ?? ""} onInput=${event => this.setState({ secret: event.target.value })} /></label>
        <button class="main">Come in</button>
      </form>
      <${Failed} error=${state.error ?? error} />
    </main>`;
  }
}

render(html`<${App} />`, document.getElementById("app"));
