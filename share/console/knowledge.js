// What ken knows: entries that people, agents and imports have stored; search, add, delete.
import { html, Component, Failed, Long, Reloaded, announce, oneLine, plural, when } from "./ui.js";
import { call, get, keys, post, query } from "./api.js";

const SOURCES = { api: "added by a person", agent: "written by the agent", import: "imported", share: "part of ken", workspace: "from the workspace" };

export class Knowledge extends Reloaded {
  delay = 300;

  concerns(type) { return type.startsWith("knowledge."); }

  load() {
    const { q, source } = this.state;
    return this.latest(async signal => {
      const list = (limit, after) => get(`/api/knowledge${query({ q: q?.trim(), source, limit, after })}`, { signal });
      const { rows, next } = await this.rows((...place) => list(...place).then(({ records, page }) => ({ rows: records, next: page.after })));
      return () => ({ records: rows, more: next });
    });
  }

  async remove(record) {
    try {
      await call("DELETE", `/api/knowledge/${encodeURIComponent(record.id)}`);
      announce(`Deleted: ${oneLine(record.title)}`);
      this.setState(({ records }) => ({ records: records.filter(one => one.id !== record.id), error: null }));
    } catch (error) {
      this.setState({ error });
    }
  }

  render(_, { records, more, q = "", source = "", error, adding }) {
    return html`<main class="page" id="main" tabindex="-1">
      <h1>Knowledge</h1>
      <div class="choices"><label>Search <input type="search" data-search value=${q} onInput=${event => this.choose({ q: event.target.value }, 250)} /></label>
        <label>Origin <select value=${source} onChange=${event => this.choose({ source: event.target.value }, 0)}>
          <option value="">any</option>${Object.entries(SOURCES).map(([name, what]) => html`<option value=${name}>${what}</option>`)}</select></label></div>
      ${adding ? html`<${NewEntry} onDone=${() => { this.setState({ adding: false }); this.load(); }} />`
        : html`<div class="buttons"><button type="button" class="main" onClick=${() => this.setState({ adding: true })}>Add an entry</button>${" "}
          <${Import} onDone=${() => this.load()} /></div>`}
      <${Failed} error=${error} retry=${() => this.load()} />
      ${records && !records.length && html`<p class="empty">${q || source ? "Nothing is found." : "Nothing is known yet."}</p>`}
      ${records?.map(record => html`<${Entry} key=${record.id} record=${record} onDelete=${() => this.remove(record)} />`)}
      ${more && html`<button type="button" onClick=${() => this.more(records.length)}>More</button>`}
    </main>`;
  }
}

const MAX_FILE_BYTES = 512 * 1024;

/** Takes in Markdown and text files, each section as an entry. */
class Import extends Component {
  async take(files) {
    const refused = [];
    let added = 0, removed = 0, done = 0;
    for (const file of files) {
      this.setState({ said: `${done + refused.length + 1} of ${plural(files.length, "file")} …` });
      try {
        const content = await textOf(file);
        const report = await post("/api/knowledge/import", { path: file.name, content });
        added += report.added;
        removed += report.removed;
        done++;
      } catch (error) {
        refused.push(`${file.name}: ${error.message}`);
      }
    }
    this.setState({ refused, said: `${plural(done, "file")}: ${added} added, ${removed} removed` });
    this.props.onDone();
  }

  render(_, { said, refused = [] }) {
    return html`<label class="button">Import files <input class="unseen" type="file" multiple accept=".md,.markdown,.txt,text/*"
        onChange=${event => { const files = [...event.target.files]; event.target.value = ""; this.take(files); }} /></label>
      <div role="status">${said && html`<p class="note">${said}</p>`}${refused.map(text => html`<p class="failed">${oneLine(text)}</p>`)}</div>`;
  }
}

async function textOf(file) {
  if (file.size > MAX_FILE_BYTES) throw new Error("It has more than 512 KiB.");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("It is no text in UTF-8.");
  }
}

const HOW = { given: "given to the model", found: "found by a tool", cited: "named in the answer" };

/** The turns that have used an entry. */
class Uses extends Component {
  async componentDidMount() {
    try { this.setState(await get(`/api/knowledge/${encodeURIComponent(this.props.id)}/uses`)); } catch (error) { this.setState({ error }); }
  }

  render(_, { uses, error }) {
    if (!uses) return html`<${Failed} error=${error} />`;
    return uses.length ? html`<h3>Where it was used</h3><ul class="rows">${uses.map(({ submissionId, sessionId, at, how, prompt }) => html`<li key=${submissionId}>
        <a href=${`#/chat/${encodeURIComponent(sessionId)}`} dir="auto">${oneLine(prompt)}</a> <span class="note">${HOW[how] ?? oneLine(how)} · ${when(at)}</span></li>`)}</ul>`
      : html`<p class="note">No turn has used it yet.</p>`;
  }
}

class Entry extends Component {
  render({ record, onDelete }, { confirming, open }) {
    const scope = record.scope === "global" ? "" : ` · for ${oneLine(record.scope)} ${oneLine(record.scope === "actor" ? record.actorId : record.conversationId)}`;
    return html`<article class="card"><details onToggle=${event => this.setState({ open: event.target.open })}><summary data-row><strong dir="auto">${oneLine(record.title)}</strong>
        <span class="note"> ${SOURCES[record.source] ?? oneLine(record.source)} · ${when(record.updatedAt)}${scope}${record.score !== undefined && ` · ${record.score.toFixed(2)}`}</span></summary>
      <pre dir="auto"><${Long} text=${record.content} /></pre>
      ${record.sessionId && html`<p class="note">Written in <a href=${`#/chat/${encodeURIComponent(record.sessionId)}`}>this conversation</a>${record.outside?.length > 0 && `, after it had read what came from outside: ${record.outside.map(oneLine).join(", ")}`}</p>`}
      <p class="note">${oneLine(record.id)}${record.tags.length > 0 && ` · ${record.tags.map(oneLine).join(", ")}`}</p>
      ${open && html`<${Uses} id=${record.id} />`}
      <div class="choices">${confirming ? html`<button type="button" class="danger" onClick=${onDelete}>Delete it</button>
          <button type="button" onClick=${() => this.setState({ confirming: false })}>Keep it</button>`
        : html`<button type="button" class="danger" onClick=${() => this.setState({ confirming: true })}>Delete …</button>`}</div></details></article>`;
  }
}

class NewEntry extends Component {
  keyOf = keys();

  async submit(event) {
    event.preventDefault();
    const { title, content, tags = "" } = this.state;
    try {
      const entry = { title, content, tags: tags.split(",").map(tag => tag.trim()).filter(Boolean) };
      await post("/api/knowledge", entry, { key: this.keyOf(JSON.stringify(entry)) });
      this.props.onDone();
    } catch (error) {
      this.setState({ error });
    }
  }

  render({ onDone }, { title = "", content = "", tags = "", error }) {
    const set = name => event => this.setState({ [name]: event.target.value });
    return html`<form class="card" onSubmit=${event => this.submit(event)}>
      <h2>A new entry</h2><p class="note">Every conversation may use it.</p>
      <label>Title <input required maxlength="200" dir="auto" value=${title} onInput=${set("title")} /></label>
      <label>Content <textarea required rows="6" dir="auto" value=${content} onInput=${set("content")}></textarea></label>
      <label>Tags, with commas <input value=${tags} onInput=${set("tags")} /></label>
      <${Failed} error=${error} />
      <div class="choices"><button class="main">Add</button><button type="button" onClick=${onDone}>Back</button></div>
    </form>`;
  }
}
