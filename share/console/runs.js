// Runs of workflows: what went in, what came out, and each step with its time. Below them, the work that turns have delegated.
import { html, Component, Failed, Long, Reloaded, announce, duration, isDouble, oneLine, visible, when } from "./ui.js";
import { Follow, get, keys, post, query, save } from "./api.js";

const path = id => `/runs/${encodeURIComponent(id)}`;

export class Runs extends Reloaded {
  delay = 300;

  concerns(type) { return type.startsWith("run."); }

  load() {
    return this.latest(async signal => {
      const list = (limit, cursor) => get(`/runs${query({ limit, cursor })}`, { signal });
      const { rows, next } = await this.rows((...place) => list(...place).then(({ runs, nextCursor }) => ({ rows: runs, next: nextCursor })));
      return () => ({ runs: rows, more: next });
    });
  }

  render({ app, id }, { runs, more, error }) {
    if (id) return html`<${Run} key=${id} id=${id} />`;
    return html`<main class="page" id="main" tabindex="-1">
      <h1>Runs</h1>
      <${Failed} error=${error} retry=${() => this.load()} />
      ${runs && !runs.length && html`<p class="empty">No workflow has run.</p>`}
      <ul class="rows">${runs?.map(run => html`<li key=${run.runId}><a data-row href=${`#/runs/${encodeURIComponent(run.runId)}`}>${oneLine(run.workflowName)}</a>
        <span class=${run.status === "errored" ? "bad" : "note"}> ${run.status}</span> <span class="note">${when(run.startedAt)} · ${duration(run.durationMs)}</span></li>`)}</ul>
      ${more && html`<button type="button" onClick=${() => this.more(runs.length)}>More</button>`}
      <${Delegated} app=${app} />
    </main>`;
  }
}

/** The turns, among the newest, that have given tasks to workers. */
class Delegated extends Reloaded {
  delay = 500;

  concerns(type) { return type === "submission.settled"; }

  load() {
    return this.latest(async signal => {
      const { runs } = await get("/api/telemetry/runs?limit=30", { signal });
      return () => ({ turns: runs.filter(run => run.counts.tasks > 0) });
    });
  }

  render(_, { turns, error }) {
    if (!turns?.length) return html`<${Failed} error=${error} />`;
    return html`<h2>Work given to workers, among the newest turns</h2>
      <ul class="rows">${turns.map(turn => html`<li key=${turn.runId}><details><summary>${[...new Set(turn.taskStarts.map(task => task.agent))].map(oneLine).join(", ")}
          <span class=${turn.status === "failed" ? "bad" : "note"}> ${turn.status}</span> <span class="note">${when(turn.startedAt)} · ${duration(turn.durationMs)}</span></summary>
        <${Timeline} steps=${tasksOf(turn)} /><p><a href=${`#/chat/${encodeURIComponent(turn.sessionId)}`}>The conversation</a></p></details></li>`)}</ul>`;
  }
}

function tasksOf({ taskStarts, events }) {
  const time = event => event && new Date(event.timestamp).getTime();
  return taskStarts.map(task => {
    const end = events.find(event => event.type === "task" && event.taskId === task.taskId);
    return { name: task.agent, from: time(task), to: time(end), failed: end?.isError };
  });
}

class Run extends Component {
  keyOf = keys();

  constructor() {
    super();
    this.state = { steps: [] };
  }

  componentDidMount() {
    this.load();
    this.stream = new Follow(path(this.props.id), "-1", { onEvents: events => this.take(events) });
  }

  componentWillUnmount() {
    this.stream.close();
  }

  async load() {
    try {
      this.setState({ record: await get(`${path(this.props.id)}?meta`), error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  take(events) {
    const { steps } = this.state;
    for (const event of events) {
      const { step: name, state } = event.attributes ?? {}, at = new Date(event.timestamp).getTime();
      if (event.type === "log" && state === "started") steps.push({ name, from: at });
      else if (event.type === "log" && name) Object.assign(steps.findLast(step => step.name === name) ?? {}, { to: at, failed: state !== "done" });
      if (event.type === "run_end") this.load();
    }
    this.setState({});
  }

  async act(work) {
    if (this.state.busy) return;
    this.setState({ busy: true, error: null });
    try { await work(); } catch (error) { this.setState({ error }); }
    this.setState({ busy: false });
  }

  cancel() {
    return this.act(async () => { await post(`${path(this.props.id)}/abort`, {}); announce("The run is cancelled."); await this.load(); });
  }

  again() {
    return this.act(async () => {
      const { runId } = await post(`${path(this.props.id)}/again`, {}, { key: this.keyOf("again") });
      location.hash = `#/runs/${encodeURIComponent(runId)}`;
    });
  }

  render({ id }, { record, steps, error, busy }) {
    const part = (name, value) => value !== undefined && value !== null && html`<h2>${name}</h2><pre tabindex="0" aria-label=${name}><${Long} text=${visible(JSON.stringify(value, null, 2))} /></pre>`;
    return html`<main class="page" id="main" tabindex="-1">
      <p><a href="#/runs">‹ Runs</a></p>
      <h1>${record ? oneLine(record.workflowName) : "…"}</h1>
      <p class="note">${oneLine(id)}</p>
      <${Failed} error=${error} />
      ${record && html`<p><span class=${record.status === "errored" ? "bad" : ""}>${record.status}</span> · ${when(record.startedAt)} · ${duration(record.durationMs)}</p>
        ${record.error && html`<p class="failed">${oneLine(record.error.message)}</p>`}
        <div class="choices">${record.status === "active" ? html`<button type="button" class="danger" onClick=${() => this.cancel()}>Cancel</button>`
          : html`<button type="button" aria-disabled=${Boolean(busy)} onClick=${event => isDouble(event) || this.again()}>Run again</button>`}
          <button type="button" onClick=${() => this.act(() => save(`${path(id)}?meta`, `${id}.json`))}>The record as JSON</button></div>
        <${Timeline} steps=${steps} />${part("Input", record.payload)}${part("Result", record.result)}`}
    </main>`;
  }
}

/** The steps as bars over the time of the run, each with its duration as text. */
function Timeline({ steps }) {
  if (!steps.length) return null;
  const now = Date.now(), begin = Math.min(...steps.map(step => step.from)), end = Math.max(begin + 1, ...steps.map(step => step.to ?? now));
  const x = time => ((time - begin) / (end - begin)) * 100;
  return html`<h2>Steps</h2><ol class="timeline">${steps.map(step => html`<li><span>${oneLine(step.name)}</span>
    <svg width="100%" height="14" aria-hidden="true"><rect class=${step.failed ? "failed" : ""} x=${`${x(step.from)}%`} width=${`${Math.max(0.5, x(step.to ?? now) - x(step.from))}%`} height="14" rx="3" /></svg>
    <span class="note">${step.failed ? "failed, " : ""}${step.to ? duration(step.to - step.from) : "running"}</span></li>`)}</ol>`;
}
