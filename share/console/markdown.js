// Markdown as elements. marked only splits the text into tokens; each becomes an element of a fixed kind, and what the text
// has of HTML stays text. Images are links: to load one would tell its server what was said here.
import { lexer } from "./vendor/marked.js";
import { html } from "./ui.js";

/** A longer text is shown as it is: to split it takes too long for a page that follows a stream. */
const MAX_CHARACTERS = 100_000;

export function markdown(text) {
  if (text.length > MAX_CHARACTERS) return html`<div class="plain" dir="auto">${text}</div>`;
  try {
    return html`<div class="prose" dir="auto">${blocks(lexer(text))}</div>`;
  } catch {
    // Nested more deeply than the lexer takes.
    return html`<div class="plain" dir="auto">${text}</div>`;
  }
}

// The names of the characters from U+00A0 on, and of the others that are often written by name. All others stay as they are.
const LATIN = ("nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro para middot cedil " +
  "sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml " +
  "ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig " +
  "ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute " +
  "thorn yuml").split(" ");
const CHARACTERS = new Map([
  ...LATIN.map((name, at) => [name, String.fromCharCode(0xa0 + at)]),
  ...Object.entries({
    amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", hellip: "…", mdash: "—", ndash: "–", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", bull: "•",
    euro: "€", trade: "™", larr: "←", uarr: "↑", rarr: "→", darr: "↓", harr: "↔", rArr: "⇒", minus: "−", le: "≤", ge: "≥", ne: "≠", asymp: "≈", infin: "∞",
  }),
]);

/** A text with the characters in place of their references: `&lt;`, `&#60;`, `&#x3c;`. It stays text. */
function characters(text) {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(\w+));/g, (whole, decimal, hex, name) => {
    if (name) return CHARACTERS.get(name) ?? whole;
    const code = decimal ? parseInt(decimal, 10) : parseInt(hex, 16);
    return code === 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? "\ufffd" : String.fromCodePoint(code);
  });
}

const blocks = tokens => tokens.map(block);
const inlines = tokens => tokens?.map(inline);

function block(token) {
  switch (token.type) {
    case "space": case "def": return null;
    case "heading": return heading(token);
    case "code": return html`<pre tabindex="0" aria-label=${token.lang ? `Code: ${token.lang}` : "Code"}><code>${token.text}</code></pre>`;
    case "blockquote": return html`<blockquote>${blocks(token.tokens)}</blockquote>`;
    case "hr": return html`<hr />`;
    case "list": return list(token);
    case "table": return table(token);
    case "paragraph": return html`<p dir="auto">${inlines(token.tokens)}</p>`;
    case "text": return token.tokens ? inlines(token.tokens) : characters(token.raw);
    default: return token.raw ?? "";
  }
}

// The page has headings of its own down to the third level.
function heading({ depth, tokens }) {
  const level = Math.min(6, depth + 3);
  return html`<${`h${level}`} dir="auto">${inlines(tokens)}<//>`;
}

function list({ ordered, start, items }) {
  const rows = items.map(item => html`<li dir="auto">${blocks(item.tokens)}</li>`);
  return ordered ? html`<ol start=${start || 1}>${rows}</ol>` : html`<ul>${rows}</ul>`;
}

function table({ header, rows }) {
  const row = (cells, tag) => html`<tr>${cells.map(({ tokens, align }) =>
    html`<${tag} class=${align ? `align-${align}` : ""} dir="auto">${inlines(tokens)}<//>`)}</tr>`;
  return html`<div class="wide" tabindex="0" role="region" aria-label="Table"><table>
    <thead>${row(header, "th")}</thead><tbody>${rows.map(cells => row(cells, "td"))}</tbody></table></div>`;
}

function inline(token) {
  switch (token.type) {
    case "strong": return html`<strong>${inlines(token.tokens)}</strong>`;
    case "em": return html`<em>${inlines(token.tokens)}</em>`;
    case "del": return html`<del>${inlines(token.tokens)}</del>`;
    case "codespan": return html`<code>${token.text}</code>`;
    case "br": return html`<br />`;
    case "checkbox": return token.checked ? "☑ " : "☐ ";
    case "link": return link(token.href, inlines(token.tokens));
    case "image": return link(token.href, `[image: ${token.text || token.href}]`);
    case "escape": return token.text;
    case "text": return token.tokens ? inlines(token.tokens) : characters(token.raw);
    default: return token.raw ?? "";
  }
}

/** A link to another server, or the bare text if it leads anywhere else: `javascript:` and the like. */
function link(href, content) {
  return /^(https?:|mailto:)/i.test(href)
    ? html`<a href=${href} target="_blank" rel="noopener noreferrer" title=${href}>${content}</a>`
    : content;
}
