// Schedules: what runs when, the next ten times of a new one, and how the last runs went.
import { html, Component, Failed, Reloaded, announce, duration, isDouble, oneLine, when } from "./ui.js";
import { call, get, keys, post, query } from "./api.js";

const path = slug => `/api/schedules/${encodeURIComponent(slug)}`;
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const PLACEHOLDER = { cron: "0 9 * * MON-FRI", every: "90m" };
const GOOD = new Set(["ok", "queued", "admitted", "running"]);

export class Schedules extends Reloaded {
  delay = 100;

  concerns(type) { return type.startsWith("schedule."); }

  load() {
    return this.latest(async signal => {
      const { schedules } = await get("/api/schedules", { signal });
      return () => ({ schedules });
    });
  }

  render({ app }, { schedules, error, adding }) {
    return html`<main class="page" id="main" tabindex="-1">
      <h1>Schedules</h1>
      <${Failed} error=${error} retry=${() => this.load()} />
      ${adding ? html`<${NewSchedule} onDone=${() => { this.setState({ adding: false }); this.load(); }} />`
        : html`<button type="button" class="main" onClick=${() => this.setState({ adding: true })}>New schedule</button>`}
      ${schedules && !schedules.length && html`<p class="empty">Nothing is scheduled.</p>`}
      ${schedules?.map(one => html`<${Schedule} key=${one.slug} app=${app} item=${one} onChange=${() => this.load()} />`)}
    </main>`;
  }
}

/** One schedule with its last runs. */
class Schedule extends Component {
  keyOf = keys();
  acts = 0;

  componentDidMount() {
    this.load();
    // A run can end as the one before did, and the list stays as it is.
    this.stop = this.props.app.onChange(({ type, slug }) => { if (slug === this.props.item.slug && type !== "schedule.deleted") this.load(); });
  }

  componentWillUnmount() {
    this.stop();
  }

  async load() {
    const { slug } = this.props.item, asked = (this.asked = {});
    try {
      const [{ schedule }, { runs }] = await Promise.all([get(path(slug)), get(`${path(slug)}/runs?limit=30`)]);
      if (asked === this.asked) this.setState({ schedule, runs, error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  async act(method, what = "", said) {
    const { slug } = this.props.item;
    if (this.state.busy) return;
    this.setState({ busy: true, refused: null });
    try {
      // After a lost answer the same is done once. After an answer it is another act.
      await (method === "DELETE" ? call(method, path(slug)) : post(`${path(slug)}/${what}`, {}, { key: this.keyOf(`${what} ${this.acts}`) }));
      this.acts++;
      announce(`${slug}: ${said}.`);
      this.setState({ confirming: false });
    } catch (refused) {
      // Apart from the error of a load, which the next load takes away.
      this.setState({ refused });
    }
    this.setState({ busy: false });
    this.props.onChange();
    this.load();
  }

  render({ item }, { schedule, runs = [], error, refused, confirming, busy }) {
    const { slug, enabled, nextFireAt } = item;
    return html`<article class="card" tabindex="0" data-row aria-label=${slug}>
      <h2>${oneLine(slug)} ${!enabled && html`<span class="note">paused</span>`}</h2>
      ${schedule && html`<p><code>${oneLine(schedule.schedule)}</code> <span class="note">${schedule.kind} · ${oneLine(schedule.timezone)}</span></p>
        <p class="plain" dir="auto">${schedule.prompt}</p>`}
      <p>${enabled && nextFireAt ? html`next ${when(nextFireAt)}` : "no next time"}</p>
      <${Strip} runs=${runs} />
      <${Failed} error=${refused ?? error} />
      <div class="choices"><button type="button" aria-disabled=${Boolean(busy)} onClick=${event => isDouble(event) || this.act("POST", "run", "started")}>Run now</button>
        ${enabled ? html`<button type="button" onClick=${() => this.act("POST", "pause", "paused")}>Pause</button>`
          : html`<button type="button" onClick=${() => this.act("POST", "resume", "active again")}>Resume</button>`}
        ${confirming ? html`<button type="button" class="danger" onClick=${() => this.act("DELETE", "", "deleted")}>Delete it</button>
            <button type="button" onClick=${() => this.setState({ confirming: false })}>Keep it</button>`
          : html`<button type="button" class="danger" onClick=${() => this.setState({ confirming: true })}>Delete …</button>`}</div>
    </article>`;
  }
}

/** The last runs, oldest first: a coloured field for the eye, and the same as text for everybody. */
function Strip({ runs }) {
  const isGood = run => GOOD.has(run.status) && run.delivery !== "failed";
  const label = run => [run.status, run.reason, run.error && oneLine(run.error), run.finishedAt && run.startedAt
    && duration(new Date(run.finishedAt) - new Date(run.startedAt))].filter(Boolean).join(", ");
  return runs.length > 0 && html`<ol class="strip" aria-label="Last runs">${[...runs].reverse().map(run =>
    html`<li class=${isGood(run) ? run.status : "bad"} title=${label(run)}>
      <a href=${`#/chat/${encodeURIComponent(run.sessionId)}`} aria-label=${`${new Date(run.slotAt).toLocaleString()}: ${label(run)}`}>${!isGood(run) ? "✗" : run.status === "ok" ? "✓" : "…"}</a></li>`)}</ol>`;
}

class NewSchedule extends Component {
  constructor() {
    super();
    this.state = { kind: "cron", schedule: "", tz: ZONE, slug: "", prompt: "" };
  }

  set(fields) {
    this.setState(fields, () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.preview(), 250);
    });
  }

  async preview() {
    const { kind, schedule, tz } = this.state;
    this.asked?.abort();
    const { signal } = (this.asked = new AbortController());
    if (!schedule.trim()) return this.setState({ slots: null, wrong: null });
    try {
      const { slots } = await get(`/api/schedule-preview${query({ kind, schedule: schedule.trim(), tz })}`, { signal });
      this.setState({ slots, wrong: null });
    } catch (wrong) {
      if (!signal.aborted) this.setState({ slots: null, wrong });
    }
  }

  async submit(event) {
    event.preventDefault();
    const { kind, schedule, tz, slug, prompt } = this.state;
    try {
      await post("/api/schedules", { kind, schedule: schedule.trim(), tz, slug: slug.trim(), prompt });
      this.props.onDone();
    } catch (error) {
      this.setState({ error });
    }
  }

  render({ onDone }, { kind, schedule, tz, slug, prompt, slots, wrong, error }) {
    return html`<form class="card" onSubmit=${event => this.submit(event)}>
      <h2>A new schedule</h2>
      <label>Name <input required pattern="[a-z0-9][a-z0-9\\-]{0,63}" title="Small letters, digits and hyphens" placeholder="morning-report" value=${slug} onInput=${event => this.setState({ slug: event.target.value })} /></label>
      <label>Kind <select value=${kind} onChange=${event => this.set({ kind: event.target.value, schedule: "" })}>
        <option value="cron">by the calendar (cron)</option><option value="every">at an interval</option><option value="at">once</option></select></label>
      <label>When <input required type=${kind === "at" ? "datetime-local" : "text"} placeholder=${PLACEHOLDER[kind]} value=${schedule} onInput=${event => this.set({ schedule: event.target.value })} /></label>
      ${kind === "cron" && html`<p class="note">Minute, hour, day of the month, month, day of the week: <code>0 9 * * MON-FRI</code> is nine o'clock on working days.</p>`}
      <label>Time zone <input required value=${tz} onInput=${event => this.set({ tz: event.target.value })} /></label>
      <label>What to do <textarea required rows="3" dir="auto" value=${prompt} onInput=${event => this.setState({ prompt: event.target.value })}></textarea></label>
      <div role="status"><${Failed} error=${wrong} />
        ${slots && html`<p class="note">It fires at:</p><ol class="note">${slots.map(slot => html`<li>${oneLine(slot.local)}</li>`)}</ol>`}</div>
      <${Failed} error=${error} />
      <div class="choices"><button class="main" disabled=${!slots}>Create</button><button type="button" onClick=${onDone}>Back</button></div>
    </form>`;
  }
}
