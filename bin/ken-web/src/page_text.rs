//! Extracts the text of a page: the lines that a reader would see, without hidden text.

use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use html2text::render::{RichAnnotation, TaggedLine};
use html2text::{Handle, RcDom, config};
use ken_types::Error;
use nix::sys::resource::{Resource, setrlimit};

/// The width, in columns, in which text is laid out. No line is longer, so that only the page itself breaks lines: those that
/// the layout breaks could not be told from those of a `<pre>`.
const WIDTH: usize = u32::MAX as usize;
/// The command that renders a page.
pub(crate) const RENDER: &str = "render";
/// The maximum size of a page's text, in bytes.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// The stack of the rendering thread, in bytes. Rendering recurses into nested elements.
const STACK: usize = 256 * 1024 * 1024;
/// The maximum nesting of elements. A page that nests them deeper is refused.
const MAX_DEPTH: usize = 2_000;
/// The same for a snippet, which is rendered in the thread of its caller.
const SNIPPET_DEPTH: usize = 100;
/// The maximum time to render one page, even if the caller has more time left.
const RENDER_TIMEOUT: Duration = Duration::from_secs(5);
const TITLE_CHARACTERS: usize = 300;
/// A CSS rule that hides elements that belong to the site rather than to the page, or that are not shown anyway.
const LEFT_OUT: &str =
    "nav, footer, aside, form, noscript, template, svg, [hidden], [aria-hidden=true] { display: none; }";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PageText {
    pub(crate) title: Option<String>,
    pub(crate) text: String,
    /// Whether the end of the text is missing because it is too long.
    pub(crate) cut: bool,
}

/// Renders HTML in a process of its own. A page can be written so that this takes hours, and a thread could not be ended.
pub(crate) fn of_html(html: String, until: Instant) -> Result<PageText, Error> {
    let title = title(&html);
    if depth(&html) > MAX_DEPTH {
        return Err(too_deep(MAX_DEPTH));
    }
    let left = until.saturating_duration_since(Instant::now()).min(RENDER_TIMEOUT);
    let (text, cut) = head(rendered_apart(html, left)?);
    Ok(PageText { title, text, cut })
}

fn too_deep(max: usize) -> Error {
    Error::unavailable(format!("the page nests its elements deeper than {max}"))
}

fn rendered_apart(html: String, left: Duration) -> Result<String, Error> {
    let failed = |error: std::io::Error| Error::internal(format!("the page cannot be rendered: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg(RENDER).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    // Both threads end with the process.
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(html.as_bytes())));
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.map(|stdout| stdout.take(4 * MAX_TEXT_BYTES as u64).read_to_string(&mut text));
        sender.send(read.transpose().map(|_| text))
    });
    let read = receiver.recv_timeout(left);
    // Its output is not used any more. An error here means that it has already ended.
    _ = child.kill();
    let status = child.wait().map_err(failed)?;
    let text = read.map_err(|_| Error::deadline("the page took too long to read"))?.map_err(failed)?;
    match text.strip_prefix(RENDERED) {
        Some(text) => Ok(text.to_owned()),
        None if text.is_empty() => Err(Error::unavailable(format!("the page cannot be read: {status}"))),
        None => Err(Error::unavailable(text)),
    }
}

/// What stands before a text. Without it, the output is an error.
const RENDERED: &str = "\0";

/// The command [`RENDER`]: reads HTML on standard input and writes its text.
pub(crate) fn render_input() -> ExitCode {
    // The process ends by itself if nobody is left to end it. If the limit cannot be set, it ends with its parent's call.
    let seconds = RENDER_TIMEOUT.as_secs() + 1;
    _ = setrlimit(Resource::RLIMIT_CPU, seconds, seconds);
    let mut html = String::new();
    if std::io::stdin().read_to_string(&mut html).is_err() {
        return ExitCode::FAILURE;
    }
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || rendered(&html, MAX_DEPTH, true));
    let rendered = thread.map(std::thread::JoinHandle::join);
    let output = match rendered {
        Ok(Ok(Ok(lines))) => format!("{RENDERED}{}", text_of(lines)),
        Ok(Ok(Err(error))) => error.message,
        Ok(Err(_)) | Err(_) => return ExitCode::FAILURE,
    };
    match std::io::stdout().write_all(output.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A line of a page, without its invisible characters.
#[derive(Debug)]
struct Line {
    text: String,
    /// Whether it stands in a `<pre>`, where blanks have a meaning.
    is_pre: bool,
}

/// `has_css` is whether the rules of the HTML itself apply, too. One rule can take hours, so only a process that can be ended may ask for them.
fn rendered(html: &str, max_depth: usize, has_css: bool) -> Result<Vec<Line>, Error> {
    let unreadable = |error: html2text::Error| Error::unavailable(format!("the page cannot be read: {error}"));
    // A border of a table would be as long as the width.
    let config = if has_css { config::rich().use_doc_css() } else { config::rich() };
    let config = config
        .add_agent_css(LEFT_OUT)
        .map_err(unreadable)?
        .raw_mode(true)
        .no_table_borders()
        .link_footnotes(false)
        .allow_width_overflow();
    let page = config.parse_html(html.as_bytes()).map_err(unreadable)?;
    if !is_shallow(&page, max_depth) {
        return Err(too_deep(max_depth));
    }
    let tree = config.dom_to_render_tree(&page).map_err(unreadable)?;
    let lines = config.render_to_lines(tree, WIDTH).map_err(unreadable)?;
    Ok(lines.iter().map(Line::new).collect())
}

impl Line {
    fn new(line: &TaggedLine<Vec<RichAnnotation>>) -> Line {
        let has = |tags: &[RichAnnotation]| tags.iter().any(|tag| matches!(tag, RichAnnotation::Preformat(_)));
        let is_pre = line.tagged_strings().any(|part| has(&part.tag));
        let mut text = String::new();
        // A link and an image stand in brackets, which tell neighbours apart. Code has none that it does not contain.
        let mut open: Option<&RichAnnotation> = None;
        for part in line.tagged_strings() {
            let is_bracketed =
                |tag: &&RichAnnotation| matches!(tag, RichAnnotation::Link(_) | RichAnnotation::Image(_));
            let here = part.tag.iter().find(is_bracketed).filter(|_| !is_pre);
            if here != open {
                text.push_str(if open.is_some() { "]" } else { "" });
                text.push_str(if here.is_some() { "[" } else { "" });
                open = here;
            }
            text.extend(part.s.chars().filter(|&c| is_shown(c)));
        }
        text.push_str(if open.is_some() { "]" } else { "" });
        Line { text, is_pre }
    }

    /// The line as it is shown. It is empty if it holds nothing to read: outside of `<pre>`, signs alone only decorate.
    fn shown(&self) -> String {
        if self.is_pre {
            return self.text.trim_end().to_owned();
        }
        let words: Vec<&str> = self.text.split_whitespace().collect();
        if self.text.contains(char::is_alphanumeric) { words.join(" ") } else { String::new() }
    }
}

/// Whether no element lies deeper than `max`. Tags alone cannot tell, because the rules for missing end tags decide.
fn is_shallow(page: &RcDom, max: usize) -> bool {
    let mut level: Vec<Handle> = vec![page.document.clone()];
    for _ in 0..=max {
        level = level.iter().flat_map(|node| node.children.borrow().clone()).collect();
        if level.is_empty() {
            return true;
        }
    }
    false
}

/// Returns a text that is not HTML. Lines and blanks can mean something in it; only invisible characters are removed.
pub(crate) fn of_plain(text: &str) -> PageText {
    let shown: String = text.chars().filter(|&c| is_shown(c)).collect();
    let (text, cut) = head(shown);
    PageText { title: None, text, cut }
}

/// Returns as much of a text as a page may have, and whether that is not all.
fn head(text: String) -> (String, bool) {
    let head = ken_text::head(&text, MAX_TEXT_BYTES);
    let is_cut = head.len() < text.len();
    (head.to_owned(), is_cut)
}

/// Returns the text of a rendered page: its lines, and an empty line where there are some, in code as many as there are.
/// A caller uses MAX_TEXT_BYTES of it, and sees by what is more that the text is cut.
fn text_of(lines: Vec<Line>) -> String {
    let mut text = String::new();
    let (mut empty, mut after_pre) = (0, false);
    for line in lines {
        let shown = line.shown();
        if shown.is_empty() {
            empty += 1;
            continue;
        }
        if !text.is_empty() {
            let most = if line.is_pre && after_pre { empty } else { 1 };
            text.push_str(&"\n".repeat(1 + empty.min(most)));
        }
        text.push_str(&shown);
        (empty, after_pre) = (0, line.is_pre);
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
    }
    ken_text::head(&text, 2 * MAX_TEXT_BYTES).to_owned()
}

/// Whether a character is visible. Control and format characters, tags and variation selectors can hide text from
/// people although a model reads it.
fn is_shown(c: char) -> bool {
    !matches!(c,
        '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns a text as one line of at most `characters` characters, for titles and snippets.
pub(crate) fn line(text: &str, characters: usize) -> String {
    let shown: String = text.chars().map(|c| if is_shown(c) { c } else { ' ' }).collect();
    let line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(characters).collect()
}

/// Returns the text of a search provider's snippet, which may contain HTML elements and entities, as one line.
pub(crate) fn snippet(html: &str, characters: usize) -> String {
    let html = ken_text::head(html, 64 * 1024);
    if !html.contains(['<', '&']) || depth(html) > SNIPPET_DEPTH {
        return line(html, characters);
    }
    let Ok(lines) = rendered(html, SNIPPET_DEPTH, false) else {
        return line(html, characters);
    };
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    line(&texts.join(" "), characters)
}

fn title(html: &str) -> Option<String> {
    let head = ken_text::head(html, 128 * 1024);
    let lower = head.to_ascii_lowercase();
    let start = lower.find("<title")?;
    let start = start + lower.get(start..)?.find('>')? + 1;
    let end = start + lower.get(start..)?.find("</title")?;
    let title = snippet(head.get(start..end)?, TITLE_CHARACTERS);
    (!title.is_empty()).then_some(title)
}

/// Returns an estimate of the nesting of elements, the maximum of opening tags minus closing tags, to refuse a plain case
/// before it is parsed.
fn depth(html: &str) -> usize {
    let (mut now, mut max) = (0usize, 0);
    let bytes = html.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'<') {
        match bytes.get(at + 1) {
            Some(b'/') => now = now.saturating_sub(1),
            Some(byte) if byte.is_ascii_alphabetic() && !is_void(bytes.get(at + 1..).unwrap_or_default()) => {
                now += 1;
                max = max.max(now);
            }
            _ => {}
        }
    }
    max
}

/// Whether a tag opens an element that has no end tag or whose end tag can be omitted.
fn is_void(rest: &[u8]) -> bool {
    const VOID: [&str; 22] = [
        "area", "base", "br", "col", "dd", "dt", "embed", "hr", "img", "input", "li", "link", "meta", "option", "p",
        "param", "source", "td", "th", "tr", "track", "wbr",
    ];
    let name = rest.split(|byte| !byte.is_ascii_alphanumeric()).next().unwrap_or_default();
    VOID.iter().any(|void| void.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(html: &str) -> PageText {
        let (text, cut) = head(text_of(rendered(html, MAX_DEPTH, true).unwrap()));
        PageText { title: title(html), text, cut }
    }

    #[test]
    fn a_page_becomes_paragraphs_without_what_is_not_shown() {
        let page = read(
            "<html><head><title>Tides &amp; moons</title><style>.x{display:none}</style><script>alert('s')</script></head>\
             <body><nav>Home About</nav><h1>Tides</h1><p>High tide comes <b>twice</b> a day,\nby and large.</p>\
             <p class=x>Hidden by style.</p><p style='display:none'>Hidden inline.</p><p hidden>Hidden attribute.</p>\
             <ul><li>one<li>two</ul><table><tr><td>Port</td><td>4 m</td></tr></table><footer>Imprint</footer></body>",
        );
        assert_eq!(page.title.as_deref(), Some("Tides & moons"));
        assert!(page.text.contains("High tide comes twice a day, by and large."), "{page:?}");
        assert!(page.text.contains("one\n* two") && page.text.contains("4 m"), "{page:?}");
        for hidden in ["Hidden", "alert", "Home", "Imprint"] {
            assert!(!page.text.contains(hidden), "{hidden} in {page:?}");
        }
    }

    #[test]
    fn only_the_page_breaks_lines() {
        let word = "word ".repeat(100);
        let code = format!("if  (x)\n    {word}\n}}");
        for (html, text) in [
            (format!("<p>{word}<br>{word}"), format!("{0}\n{0}", word.trim())),
            (format!("<p>a</p><pre>{code}\n</pre>b"), format!("a\n\n{}\n\nb", code.replace("word \n", "word\n"))),
            // What highlights code, and what links from it, is not text.
            (
                "<pre><code><span>fn</span> <a href=x>f</a>() {\n<b>  g</b>\n}</code></pre>".into(),
                "fn f() {\n  g\n}".into(),
            ),
            ("<pre>a<br>  b<br><br>c</pre>".into(), "a\n  b\n\nc".into()),
            ("<pre><div>a</div><div>  b</div></pre>".into(), "a\n  b".into()),
            (
                "<pre>a\n\n\n  b</pre><pre>\n  c\n</pre>d<pre>\n\n\n  e</pre>".into(),
                "a\n\n\n  b\n\n  c\n\nd\n\n  e".into(),
            ),
            ("a<pre></pre>b<pre> \n </pre>c".into(), "a\n\nb\n\nc".into()),
            (
                "<ul><li>one<pre>a {\n  b\n}</pre><li><pre>c\n  d</pre></ul>".into(),
                "* one\n\n  a {\n    b\n  }\n* c\n    d".into(),
            ),
            ("<pre>  {\n\tx</pre>".into(), "  {\n        x".into()),
            ("<table><tr><td>1\n2<td><pre>a\n  b</pre></table>".into(), "1 2\na\n  b".into()),
            (
                "<p>in <a href=x>one</a><a href=y><b>t</b>wo</a> of <img src=x alt=three>".into(),
                "in [one][two] of [three]".into(),
            ),
        ] {
            assert_eq!(read(&html).text, text, "{html}");
        }
    }

    #[test]
    fn characters_that_nobody_sees_are_left_out() {
        let tags: String = "ignore".chars().map(|c| char::from_u32(0xe0000 + u32::from(c)).unwrap()).collect();
        let text = format!("a\u{200b}b\u{202e}c{tags} d\n\n\n═══\n\ne");
        assert_eq!(read(&text.replace('\n', "<br>")).text, "abc d\n\ne");
        assert_eq!(read(&format!("<pre>{text}</pre>")).text, "abc d\n\n\n═══\n\ne");
        assert_eq!(of_plain(&text).text, "abc d\n\n\n═══\n\ne");
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_and_says_so() {
        for (bytes, is_cut) in [(MAX_TEXT_BYTES, false), (MAX_TEXT_BYTES + 1, true)] {
            let text = "x".repeat(bytes);
            let cut = PageText { title: None, text: "x".repeat(MAX_TEXT_BYTES), cut: is_cut };
            assert_eq!((read(&text), of_plain(&text)), (cut.clone(), cut), "{bytes}");
        }
    }

    #[test]
    fn the_depth_is_that_of_the_parsed_page() {
        let deep = |html: &str, times: usize| rendered(&(html.repeat(times) + "bottom"), MAX_DEPTH, true).is_err();
        // End tags that close nothing, and elements that are empty in HTML but not in an SVG picture.
        for (html, per) in [("<div></b>", 1), ("<div>", 1), ("<b><i>", 2)] {
            assert!(deep(html, MAX_DEPTH / per) && !deep(html, MAX_DEPTH / per - 10), "{html}");
        }
        assert!(rendered(&format!("<svg>{}", "<link>".repeat(MAX_DEPTH)), MAX_DEPTH, true).is_err());
        assert!(!deep("<p>", 10_000) && !deep("<hr>", 10_000));
    }
}
