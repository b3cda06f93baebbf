// What waits for a person: approvals first, then what is down and what has failed.
import { html, Component, Failed, oneLine, plural, when } from "./ui.js";
import { get } from "./api.js";

/** How long a failed turn is shown here. */
const RECENT_MS = 24 * 60 * 60 * 1000;
/** Each of them is asked for its reason. */
const MAX_FAILED = 10;

export class Inbox extends Component {
  componentDidMount() {
    // What failed is less urgent than what the frame of the page asks for.
    this.later = setTimeout(() => { this.later = null; this.load(); }, 1_000);
    // What was decided while the page is open stays, with who decided, until the page is opened again.
    this.stop = this.props.app.onChange(event => {
      if (event.type.startsWith("submission.")) this.later ??= setTimeout(() => { this.later = null; this.load(); }, 500);
      if (event.requestId) this.setState(({ stamps }) => ({ stamps: { ...stamps, [event.requestId]: event.timestamp } }));
    });
  }

  componentWillUnmount() {
    this.stop();
    clearTimeout(this.later);
  }

  async load() {
    try {
      const [{ runs }, { approvals }] = await Promise.all([get("/api/telemetry/runs?limit=50"), get("/api/approvals?limit=20")]);
      const since = Date.now() - RECENT_MS;
      const failed = runs.filter(run => run.status === "failed" && new Date(run.endedAt ?? run.startedAt) > since).slice(0, MAX_FAILED);
      const reasons = await Promise.all(failed.map(run => get(`/api/why/${encodeURIComponent(run.runId)}`).catch(() => null)));
      failed.forEach((run, at) => { run.cause = reasons[at]?.cause; });
      const decided = approvals.filter(one => one.status !== "pending");
      if (decided.length) await this.loadCard();
      this.setState({ failed, decided, error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  /** Most of the time nothing waits, so the card comes when the first request does. */
  async loadCard() {
    this.loading = true;
    const { Approval, outcome } = await import("./approval.js");
    this.setState({ Approval, outcome });
  }

  render({ app }, { failed = [], decided = [], error, stamps = {}, Approval, outcome }) {
    const { pending, problems } = app.state;
    const waiting = (pending ?? []).map(record => record.requestId);
    if (waiting.length && !this.loading) this.loadCard();
    this.seen = [...new Set([...(this.seen ?? []), ...waiting])];
    const isEmpty = pending && !this.seen.length && !problems.length && !failed.length;
    return html`<main class="page inbox" id="main" tabindex="-1">
      <h1>Inbox</h1>
      <${Failed} error=${error ?? app.state.error} />
      ${isEmpty && html`<p class="empty">Nothing waits for you.</p>`}
      ${this.seen.length > 0 && html`<section aria-label="Approvals">
        <h2>${waiting.length ? `${plural(waiting.length, "approval")} to decide` : "Approvals"}</h2>
        ${Approval && this.seen.map(id => html`<${Approval} key=${id} id=${id} stamp=${stamps[id]} link />`)}</section>`}
      ${problems.length > 0 && html`<section aria-label="Problems"><h2>Not as it should be</h2>
        <ul class="rows">${problems.map(problem => html`<li><strong>${oneLine(problem.what)}</strong> ${oneLine(problem.why)}
          ${problem.since && html` · since ${when(problem.since)}`}</li>`)}</ul></section>`}
      ${failed.length > 0 && html`<section aria-label="Failed turns"><h2>Failed in the last day</h2>
        <ul class="rows">${failed.map(run => html`<li>${when(run.endedAt ?? run.startedAt)} · ${run.kind}${run.cause && ` · ${oneLine(run.cause)}`}
          ${run.sessionId && html` · <a href=${`#/chat/${encodeURIComponent(run.sessionId)}`}>the conversation</a>`}</li>`)}</ul></section>`}
      ${decided.length > 0 && outcome && html`<section aria-label="Decided"><h2>Decided lately</h2>
        <ul class="rows">${decided.map(record => html`<li>${oneLine(record.request.summary)} · ${outcome(record)} · ${when(record.updatedAt)}
          ${record.request.metadata?.sessionId && html` · <a href=${`#/chat/${encodeURIComponent(record.request.metadata.sessionId)}`}>the conversation</a>`}</li>`)}</ul></section>`}
      ${"Notification" in window && Notification.permission === "default" && html`<p><button type="button"
        onClick=${() => Notification.requestPermission().then(() => this.setState({}))}>Notify me when an approval waits</button></p>`}
    </main>`;
  }
}
