// What waits for a person: approvals first, then what is down, what has failed, and what `ken doctor` has found.
import { html, Component, Failed, oneLine, plural, when } from "./ui.js";
import { get, load } from "./api.js";

/** What the doctor finds only by asking the same as this page does. */
const SEEN_ALREADY = new Set(["part-not-ready", "model-down", "configuration", "configuration-refused", "kend", "gateway"]);
const SEVERE = new Set(["error", "warning"]);

export class Inbox extends Component {
  componentDidMount() {
    // Less urgent than what the frame of the page asks for.
    this.later = setTimeout(() => { this.load(); this.examine(); }, 1_000);
    // What was decided while the page is open stays, with who decided, until the page is opened again.
    this.stop = this.props.app.onChange(event => {
      if (event.requestId) this.setState(({ stamps }) => ({ stamps: { ...stamps, [event.requestId]: event.timestamp } }));
    });
  }

  componentWillUnmount() {
    this.stop();
    clearTimeout(this.later);
  }

  async load() {
    try {
      const { approvals } = await get("/api/approvals?limit=20");
      const decided = approvals.filter(one => one.status !== "pending");
      if (decided.length) await this.loadCard();
      this.setState({ decided, error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  async examine() {
    try {
      const { findings } = await get("/api/doctor");
      this.setState({ findings: findings.filter(one => SEVERE.has(one.severity) && !SEEN_ALREADY.has(one.id)) });
    } catch {
      // The page is as useful without it, and the state of the system says why kend does not answer.
    }
  }

  /** Most of the time nothing waits, so the card comes when the first request does. */
  async loadCard() {
    if (this.loading || this.state.Approval) return;
    this.loading = true;
    try {
      const { Approval, outcome } = await load(() => import("./approval.js"));
      this.setState({ Approval, outcome, error: null });
    } catch (error) {
      // The page is drawn with the error, and that tries again.
      this.setState({ error });
    }
    this.loading = false;
  }

  render({ app }, { decided = [], findings = [], error, stamps = {}, Approval, outcome }) {
    const { pending, failures, problems } = app.state;
    const waiting = (pending ?? []).map(record => record.requestId);
    if (waiting.length) this.loadCard();
    this.seen = [...new Set([...(this.seen ?? []), ...waiting])];
    // A warning can wait; it stands below, and the page is empty all the same.
    const isEmpty = pending && !this.seen.length && !problems.length && !failures.length && !findings.some(one => one.severity === "error");
    return html`<main class="page inbox" id="main" tabindex="-1">
      <h1>Inbox</h1>
      <${Failed} error=${error ?? app.state.error} />
      ${isEmpty && html`<div class="empty"><p>Nothing waits for you.</p><a class="button" href="#/chat/new">Start a conversation</a></div>`}
      ${this.seen.length > 0 && html`<section aria-label="Approvals">
        <h2>${waiting.length ? `${plural(waiting.length, "approval")} to decide` : "Approvals"}</h2>
        ${Approval && this.seen.map(id => html`<${Approval} key=${id} id=${id} stamp=${stamps[id]} link />`)}</section>`}
      ${problems.length > 0 && html`<section aria-label="Problems"><h2>Not as it should be</h2>
        <ul class="rows">${problems.map(problem => html`<li><strong>${oneLine(problem.what)}</strong> ${oneLine(problem.why)}
          ${problem.since && html` · since ${when(problem.since)}`}</li>`)}</ul></section>`}
      ${failures.length > 0 && html`<section aria-label="Failures"><h2>Failed in the last day</h2>
        <ul class="rows">${failures.map(one => html`<li key=${one.id}>${when(one.at)} · ${what(one)} · ${oneLine(one.cause)}
          ${address(one) && html` · <a data-row href=${address(one)}>${one.kind === "run" ? "the run" : "the conversation"}</a>`}</li>`)}</ul></section>`}
      ${findings.length > 0 && html`<section aria-label="Findings"><h2>Found by <code>ken doctor</code></h2><${Findings} findings=${findings} /></section>`}
      ${decided.length > 0 && outcome && html`<section aria-label="Decided"><h2>Decided lately</h2>
        <ul class="rows">${decided.map(record => html`<li>${oneLine(record.request.summary)} · ${outcome(record)} · ${when(record.updatedAt)}
          ${record.request.metadata?.sessionId && html` · <a href=${`#/chat/${encodeURIComponent(record.request.metadata.sessionId)}`}>the conversation</a>`}</li>`)}</ul></section>`}
      ${"Notification" in window && Notification.permission === "default" && html`<p><button type="button"
        onClick=${() => Notification.requestPermission().then(() => this.setState({}))}>Notify me when an approval waits</button></p>`}
    </main>`;
  }
}

const KINDS = { turn: "a turn", run: "the workflow", slot: "the schedule" };
const STATES = { missed: "was missed", undelivered: "did not deliver its result", unknown: "ended in a way that is not known", timeout: "took too long" };

const what = ({ kind, name, status }) => `${KINDS[kind]}${name ? ` ${oneLine(name)}` : ""} ${STATES[status] ?? "failed"}`;

const address = ({ kind, id, sessionId }) => kind === "run" ? `#/runs/${encodeURIComponent(id)}`
  : sessionId && `#/chat/${encodeURIComponent(sessionId)}`;

export const Findings = ({ findings }) => html`<ul class="rows">${findings.map(({ severity, where, why, fix }) => html`<li>
  <strong class=${severity === "error" ? "bad" : ""}>${severity}</strong> ${oneLine(where)}: ${oneLine(why)}<br /><span class="note">${oneLine(fix)}</span></li>`)}</ul>`;
