//! Extracts the text of a page: the paragraphs that a reader would see, without hidden text.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use html2text::config;
use ken_types::Error;

/// The width, in columns, in which text is laid out before its lines are joined again.
const WIDTH: usize = 120;
/// The maximum size of a page's text, in bytes.
const MAX_TEXT: usize = 1024 * 1024;
/// The stack of the rendering thread, in bytes. Rendering recurses into nested elements.
const STACK: usize = 256 * 1024 * 1024;
/// The maximum nesting of elements. A page that nests them deeper is refused.
const MAX_DEPTH: usize = 2_000;
/// The maximum time to render one page, even if the caller has more time left.
const RENDER: Duration = Duration::from_secs(5);
const TITLE_CHARACTERS: usize = 300;
/// A CSS rule that hides elements that belong to the site rather than to the page, or that are not shown anyway.
const LEFT_OUT: &str =
    "nav, footer, aside, form, noscript, template, svg, [hidden], [aria-hidden=true] { display: none; }";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PageText {
    pub(crate) title: Option<String>,
    pub(crate) text: String,
}

/// Renders HTML in a separate thread. A thread that takes too long is abandoned, because the program ends soon.
pub(crate) fn of_html(html: String, until: Instant) -> Result<PageText, Error> {
    let title = title(&html);
    if depth(&html) > MAX_DEPTH {
        let message = format!("the page nests its elements deeper than {MAX_DEPTH}");
        return Err(Error::unavailable(message));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || sender.send(rendered(&html)))
        .map_err(|error| Error::internal(format!("no thread: {error}")))?;
    let left = until.saturating_duration_since(Instant::now()).min(RENDER);
    let text = receiver.recv_timeout(left).map_err(|_| Error::deadline("the page took too long to read"))??;
    Ok(PageText { title, text: of_plain(&text) })
}

fn rendered(html: &str) -> Result<String, Error> {
    let unreadable = |error: html2text::Error| Error::unavailable(format!("the page cannot be read: {error}"));
    let config = config::plain_no_decorate()
        .use_doc_css()
        .add_agent_css(LEFT_OUT)
        .map_err(unreadable)?
        .raw_mode(true)
        .link_footnotes(false)
        .allow_width_overflow();
    config.string_from_read(html.as_bytes(), WIDTH).map_err(unreadable)
}

/// Returns the paragraphs of a text: lines are joined, and invisible characters are removed.
pub(crate) fn of_plain(text: &str) -> String {
    let text = ken_text::head(text, 4 * MAX_TEXT);
    let mut joined = String::new();
    let mut after_blank = true;
    for line in text.lines() {
        let line: String = line.chars().filter(|&c| is_shown(c)).collect();
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if !line.chars().any(char::is_alphanumeric) {
            after_blank = true;
            continue;
        }
        if !joined.is_empty() {
            joined.push_str(match after_blank {
                true => "\n\n",
                false if is_item(&line) => "\n",
                false => " ",
            });
        }
        joined.push_str(&line);
        after_blank = false;
        if joined.len() > MAX_TEXT {
            break;
        }
    }
    ken_text::head(&joined, MAX_TEXT).to_owned()
}

fn is_item(line: &str) -> bool {
    line.starts_with(['*', '#', '-', '•']) || line.starts_with(|c: char| c.is_ascii_digit())
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
    if !html.contains(['<', '&']) || depth(html) > 100 {
        return line(html, characters);
    }
    line(&rendered(html).unwrap_or_else(|_| html.to_owned()), characters)
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

/// Returns an upper bound for the nesting of elements: the maximum of opening tags minus closing tags.
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
        of_html(html.to_owned(), Instant::now() + RENDER).unwrap()
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
    fn characters_that_nobody_sees_are_left_out() {
        let tags: String = "ignore".chars().map(|c| char::from_u32(0xe0000 + u32::from(c)).unwrap()).collect();
        assert_eq!(of_plain(&format!("a\u{200b}b\u{202e}c{tags} d\n\n\n═══\n\ne")), "abc d\n\ne");
    }

    #[test]
    fn hostile_pages_end_in_text_or_an_error_soon() {
        let begun = Instant::now();
        let deep = "<div>".repeat(200_000);
        assert!(of_html(deep, begun + RENDER).is_err());
        for html in [
            "<div>".repeat(1_900) + "bottom",
            "<hr>".repeat(100_000),
            "<b><i>".repeat(900),
            "<p>".repeat(200_000) + "bottom",
            "<table><tr><td>".repeat(300) + "bottom",
            "<".repeat(500_000),
            "&".repeat(500_000),
        ] {
            let _ = of_html(html, Instant::now() + RENDER);
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
