// Tokens and cost, by day, model and session, and what is left of the budget.
import { html, Component, Failed, duration, oneLine } from "./ui.js";
import { get } from "./api.js";

const NUMBER = new Intl.NumberFormat();
const money = cost => (cost == null ? "–" : `$${cost.toFixed(4)}`);
const all = group => group.input + (group.cacheRead ?? 0) + (group.cacheWrite ?? 0) + group.output;

export class Usage extends Component {
  componentDidMount() {
    this.load();
  }

  async load() {
    try {
      const [day, model, session, { sessions }] = await Promise.all([
        ...["day", "model", "session"].map(by => get(`/api/usage?by=${by}&limit=50`)), get("/api/chat/sessions?limit=100")]);
      const names = new Map(sessions.map(one => [one.sessionId, one.displayName ?? one.title]));
      this.setState({ day, model, session, names, error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  render(_, { day, model, session, names, error }) {
    return html`<main class="page" id="main" tabindex="-1">
      <h1>Usage</h1>
      <${Failed} error=${error} retry=${() => this.load()} />
      ${day && html`<${Budget} budget=${day.budget} unknown=${day.budgetUnknown} />
        <p class="note">Of the turns and runs of the last 30 days that have ended.</p>
        <${Bars} days=${day.groups} of=${all} text=${tokens => `${NUMBER.format(tokens)} tokens`} />
        <${Bars} days=${day.groups} of=${group => group.meanMs ?? 0} text=${ms => `${duration(ms)} for a turn`} />
        <${Table} name="day" used=${day} /><${Table} name="model" used=${model} />
        <${Table} name="session" used=${session} names=${names} />`}
    </main>`;
  }
}

function Budget({ budget, unknown }) {
  if (unknown) return html`<p class="bad">The budget is not known: ${oneLine(unknown)}</p>`;
  if (!budget) return html`<p>No budget is set: <code>[model.budget]</code> in ken.toml.</p>`;
  const bar = (what, used, limit, text) => limit > 0 && html`<p><label>${what}: ${text(used)} of ${text(limit)}
    <meter min="0" max=${limit} high=${limit * 0.8} value=${Math.min(used, limit)}></meter></label></p>`;
  return html`${bar("Tokens today", budget.tokens, budget.tokensPerDay, NUMBER.format)}${bar("Cost today", budget.cost, budget.costPerDay, money)}`;
}

/** A number of each day, oldest first; the table below has the same as text. */
function Bars({ days, of, text }) {
  const most = Math.max(1, ...days.map(of)), width = 14;
  const oldest = [...days].reverse();
  return days.length > 1 && html`<figure><svg class="bars" viewBox=${`0 0 ${days.length * width} 100`} height="100" width=${days.length * width} aria-hidden="true">
    ${oldest.map((group, at) => {
      const height = (of(group) / most) * 100;
      return html`<rect x=${at * width} y=${100 - height} width=${width - 3} height=${height}><title>${group.key}: ${text(of(group))}</title></rect>`;
    })}</svg><figcaption class="note">By day, at most ${text(most)}</figcaption></figure>`;
}

/** With `names`, the keys are those of sessions. Of older ones the id stands there. */
function Table({ name, used: { groups, others }, names }) {
  const key = group => names && group.key !== "-"
    ? html`<a href=${`#/chat/${encodeURIComponent(group.key)}`} title=${group.key} dir="auto">${oneLine(names.get(group.key) ?? group.key)}</a>` : oneLine(group.key);
  const row = (group, key) => html`<tr><th scope="row">${key}</th><td>${NUMBER.format(group.runs)}</td>
      <td>${NUMBER.format(all(group) - group.output)}</td><td>${NUMBER.format(group.cacheRead ?? 0)}</td><td>${NUMBER.format(group.output)}</td>
      <td>${money(group.cost)}</td><td>${duration(group.meanMs)}</td></tr>`;
  return html`<h2>By ${name}</h2>${groups.length ? html`<div class="wide" tabindex="0" role="region" aria-label=${`Usage by ${name}`}><table>
    <thead><tr><th>${name}</th><th>turns</th><th>input</th><th>cached</th><th>output</th><th>cost</th><th>mean time</th></tr></thead>
    <tbody>${groups.map(group => row(group, key(group)))}${others && row(others, others.groups === 1 ? "1 other" : `${NUMBER.format(others.groups)} others`)}</tbody></table></div>` : html`<p class="note">Nothing yet.</p>`}`;
}
