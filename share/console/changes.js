// The files that a turn has changed, and the undo of it: first what would be put back, then the button that does it.
import { html, Component, Failed, Long, announce, oneLine, plural } from "./ui.js";
import { get, post } from "./api.js";
import { diffLines } from "./approval.js";

const path = run => `/api/undo/${encodeURIComponent(run)}`;

export class Changes extends Component {
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
      const done = await post(path(run), {});
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
    return html`<${Failed} error=${error} />${found && html`
      <ul class="rows">${found.files.map(file => html`<li><code>${oneLine(file.path)}</code> ${file.action} <span class="note">+${file.added} −${file.removed}${!file.current && !isUndone && " · changed since"}</span></li>`)}
        ${(found.refs ?? []).map(({ repo, name, after }) => html`<li><code>${oneLine(name)}</code> of ${oneLine(repo)} <span class="note">${after ? "moved" : "removed"}</span></li>`)}</ul>
      ${found.diff && !isUndone && html`<pre class="diff" tabindex="0" aria-label="What it has changed"><${Long} text=${found.diff} view=${diffLines} /></pre>`}`}
      ${done && html`<div role="status"><p>${isUndone ? "Put back" : "Changed again"}: ${done.restored.length ? done.restored.map(oneLine).join(", ") : "nothing"}.</p>
        ${done.refused.map(({ path, why }) => html`<p class="failed">${oneLine(path)}: ${oneLine(why)}</p>`)}</div>`}
      ${found && (isUndone ? done?.undo && html`<button type="button" disabled=${busy} onClick=${() => this.undo(done.undo)}>Have it again</button>`
        : html`<button type="button" class="danger" disabled=${busy || !found.files.some(file => file.current)} onClick=${() => this.undo(run)}>${busy ? "…" : "Undo these changes"}</button>`)}`;
  }
}
