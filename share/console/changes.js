// What a turn did: its calls and what they cost, and the files that it has changed. Those can be put back: first what would be, then the
// button that does it.
import { html, Component, Failed, Long, announce, duration, oneLine, plural } from "./ui.js";
import { get, keys, post } from "./api.js";
import { diffLines } from "./approval.js";

const path = run => `/api/undo/${encodeURIComponent(run)}`;

export class Changes extends Component {
  keyOf = keys();

  componentDidMount() {
    this.load();
  }

  async load() {
    try {
      this.setState({ found: await get(path(this.props.run)), error: null });
    } catch (error) {
      // The journal knows the turns that have changed something, and no other.
      this.setState(error.status === 404 ? { none: true } : { error });
    }
  }

  async undo(run) {
    this.setState({ busy: true, error: null });
    try {
      const done = await post(path(run), {}, { key: this.keyOf(run) });
      announce(`${plural(done.restored.length, "file")} put back.`);
      this.setState({ done, isUndone: !this.state.isUndone });
      await this.load();
    } catch (error) {
      this.setState({ error });
    }
    this.setState({ busy: false });
  }

  render({ run }, { found, none, done, isUndone, error, busy }) {
    if (none) return html`<p class="note">It has changed no files.</p>`;
    return html`<${Failed} error=${error} />${found && html`<p class="note">in <code>${oneLine(found.root)}</code></p>
      <ul class="rows">${found.files.map(file => html`<li><code>${oneLine(file.path)}</code> ${file.action} <span class="note">${file.added !== null && `+${file.added} −${file.removed}`}${!file.current && !isUndone && " · changed since"}</span></li>`)}
        ${(found.notSaved ?? []).map(({ path, why }) => html`<li><code>${oneLine(path)}</code> <span class="note">cannot be put back: ${oneLine(why)}</span></li>`)}
        ${(found.refs ?? []).map(({ repo, name, after }) => html`<li><code>${oneLine(name)}</code> of ${oneLine(repo || found.root)} <span class="note">${after ? "moved" : "removed"}</span></li>`)}</ul>
      ${found.diff && !isUndone && html`<pre class="diff" tabindex="0" aria-label="What it has changed"><${Long} text=${found.diff} view=${diffLines} /></pre>`}`}
      ${done && html`<div role="status"><p>${isUndone ? "Put back" : "Changed again"}: ${done.restored.length ? done.restored.map(oneLine).join(", ") : "nothing"}.</p>
        ${done.refused.map(({ path, why }) => html`<p class="failed">${oneLine(path)}: ${oneLine(why)}</p>`)}</div>`}
      ${found && (isUndone ? done?.undo && html`<button type="button" disabled=${busy} onClick=${() => this.undo(done.undo)}>Have it again</button>`
        : html`<button type="button" class="danger" disabled=${busy || !found.files.some(file => file.current)} onClick=${() => this.undo(run)}>${busy ? "…" : "Undo these changes"}</button>`)}`;
  }
}

const NUMBER = new Intl.NumberFormat();

/** Calls, tokens, cost and time of a turn. */
export class Details extends Component {
  async componentDidMount() {
    try {
      this.setState({ run: await get(`/api/telemetry/runs/${encodeURIComponent(this.props.run)}`) });
    } catch (error) {
      // Summaries are kept for 30 days.
      this.setState(error.status === 404 ? { run: { eventCount: 0 } } : { error });
    }
  }

  render(_, { run, error }) {
    if (!run) return html`<${Failed} error=${error} />`;
    if (!run.eventCount) return html`<p class="note">Nothing more is recorded of it: it is older than 30 days, or was copied when a message was edited.</p>`;
    const { usage, counts, cost } = run, read = usage.input + (usage.cacheRead ?? 0) + (usage.cacheWrite ?? 0);
    const facts = [["model", oneLine(run.model ?? "none")], ["model calls", counts.turns], ["time", duration(run.durationMs)],
      ["input", `${NUMBER.format(read)} tokens${usage.cacheRead ? `, ${NUMBER.format(usage.cacheRead)} of them cached` : ""}`],
      ["output", `${NUMBER.format(usage.output)} tokens`], ["cost", cost == null ? "no price is known" : `$${cost.toFixed(4)}`]];
    return html`<dl>${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
      ${run.toolCalls.length > 0 && html`<ol class="rows">${run.toolCalls.map(call => html`<li><code>${oneLine(call.toolName)}</code>
        <span class="note"> ${duration(call.durationMs)}${call.parentSession && " · by a worker"}</span>${call.isError && html` <span class="bad">failed</span>`}</li>`)}</ol>`}`;
  }
}
