//! Markdown as the platform's HTML: a handful of tags without attributes but `href` and the language of code. Everything
//! else is text.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd};

/// Links that are shown as links. Others are shown as text with their address behind it.
const SCHEMES: [&str; 4] = ["http://", "https://", "tg://", "mailto:"];
/// The deepest level of lists that is indented.
const DEPTH: usize = 8;

/// Converts a piece of Markdown to HTML.
pub(crate) fn html(markdown: &str) -> String {
    let options = Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES;
    let mut page = Page::default();
    for (event, range) in Parser::new_ext(markdown, options).into_offset_iter() {
        // A table is shown as it was written, in a fixed-width font.
        match &event {
            Event::Start(Tag::Table(_)) => {
                page.block();
                let source = markdown.get(range).unwrap_or_default();
                page.out.push_str("<pre>");
                page.text(source.trim_end());
                page.out.push_str("</pre>");
                page.table = true;
            }
            Event::End(TagEnd::Table) => page.table = false,
            _ if page.table => {}
            _ => page.take(event),
        }
    }
    page.out.trim().to_owned()
}

/// The page so far.
#[derive(Default)]
struct Page {
    out: String,
    /// The open lists: the number of the next item, or none for bullets.
    lists: Vec<Option<u64>>,
    /// Open quotes: only the outermost one has a tag.
    quotes: usize,
    /// The text that closes each open link.
    links: Vec<String>,
    /// Whether an item has just begun, so that its text goes on the same line.
    at_item: bool,
    table: bool,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(text) => {
                self.out.push_str("<code>");
                self.text(&text);
                self.out.push_str("</code>");
            }
            Event::SoftBreak | Event::HardBreak => self.out.push('\n'),
            Event::Rule => {
                self.block();
                self.out.push_str("———");
            }
            Event::FootnoteReference(text) | Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
            Event::TaskListMarker(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.block(),
            Tag::Heading { .. } => {
                self.block();
                self.out.push_str("<b>");
            }
            Tag::BlockQuote(_) => {
                self.block();
                if self.quotes == 0 {
                    self.out.push_str("<blockquote>");
                }
                self.quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.block();
                match language(&kind) {
                    Some(language) => {
                        self.out.push_str("<pre><code class=\"language-");
                        self.attribute(&language);
                        self.out.push_str("\">");
                    }
                    None => self.out.push_str("<pre><code>"),
                }
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.block();
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Emphasis => self.out.push_str("<i>"),
            Tag::Strong => self.out.push_str("<b>"),
            Tag::Strikethrough => self.out.push_str("<s>"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => self.link(&dest_url),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) | TagEnd::Strong => self.out.push_str("</b>"),
            TagEnd::BlockQuote(_) => {
                self.quotes = self.quotes.saturating_sub(1);
                if self.quotes == 0 {
                    self.out.push_str("</blockquote>");
                }
            }
            TagEnd::CodeBlock => {
                let length = self.out.trim_end_matches('\n').len();
                self.out.truncate(length);
                self.out.push_str("</code></pre>");
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.at_item = false;
            }
            TagEnd::Item => self.at_item = false,
            TagEnd::Emphasis => self.out.push_str("</i>"),
            TagEnd::Strikethrough => self.out.push_str("</s>"),
            TagEnd::Link | TagEnd::Image => {
                let closing = self.links.pop().unwrap_or_default();
                self.out.push_str(&closing);
            }
            _ => {}
        }
    }

    /// Begins a block: an empty line before it, but none at the beginning of the page, a quote or an item.
    fn block(&mut self) {
        if std::mem::take(&mut self.at_item) || self.out.is_empty() || self.out.ends_with("<blockquote>") {
            return;
        }
        let wanted = if self.lists.is_empty() { "\n\n" } else { "\n" };
        let length = self.out.trim_end_matches('\n').len();
        self.out.truncate(length);
        self.out.push_str(wanted);
    }

    fn item(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with('\n') && !self.out.ends_with("<blockquote>") {
            self.out.push('\n');
        }
        let depth = self.lists.len().saturating_sub(1).min(DEPTH);
        self.out.push_str(&"  ".repeat(depth));
        match self.lists.last_mut() {
            Some(Some(number)) => {
                self.out.push_str(&format!("{number}. "));
                *number = number.saturating_add(1);
            }
            _ => self.out.push_str("• "),
        }
        self.at_item = true;
    }

    fn link(&mut self, address: &str) {
        let is_shown = SCHEMES.iter().any(|scheme| address.starts_with(scheme)) && self.links.is_empty();
        if is_shown {
            self.out.push_str("<a href=\"");
            self.attribute(address);
            self.out.push_str("\">");
            self.links.push("</a>".to_owned());
        } else if address.is_empty() {
            self.links.push(String::new());
        } else {
            self.links.push(escaped(&format!(" ({address})")));
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push_str(&escaped(text));
        if !text.is_empty() {
            self.at_item = false;
        }
    }

    fn attribute(&mut self, text: &str) {
        self.out.push_str(&escaped(text).replace('"', "&quot;"));
    }
}

/// A text outside of tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn language(kind: &CodeBlockKind<'_>) -> Option<String> {
    let CodeBlockKind::Fenced(info) = kind else {
        return None;
    };
    let word = |info: &CowStr<'_>| info.split_whitespace().next().map(str::to_owned);
    word(info).filter(|word| word.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-#_.".contains(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_markdown_has() {
        for (markdown, shown) in [
            ("Hello", "Hello"),
            ("a < b & c", "a &lt; b &amp; c"),
            ("**bold** *it* ~~no~~ `x<y`", "<b>bold</b> <i>it</i> <s>no</s> <code>x&lt;y</code>"),
            ("***both*** **a *b* ~~c~~ `d*e*`**", "<i><b>both</b></i> <b>a <i>b</i> <s>c</s> <code>d*e*</code></b>"),
            ("**open *and", "**open *and"),
            ("> **q**\n> - *x*", "<blockquote><b>q</b>\n\n• <i>x</i></blockquote>"),
            ("# Title\n\nText\nmore", "<b>Title</b>\n\nText\nmore"),
            ("```rust\nlet x = 1;\n```", "<pre><code class=\"language-rust\">let x = 1;</code></pre>"),
            ("    indented", "<pre><code>indented</code></pre>"),
            ("- a\n- b\n  - c\n- d", "• a\n• b\n  • c\n• d"),
            ("3. a\n4. b", "3. a\n4. b"),
            ("> quoted\n> > twice", "<blockquote>quoted\n\ntwice</blockquote>"),
            (
                "[ken](https://ken.example/?a=1&b=\"2\")",
                "<a href=\"https://ken.example/?a=1&amp;b=&quot;2&quot;\">ken</a>",
            ),
            ("[x](javascript:alert(1))", "x (javascript:alert(1))"),
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("| a | b |\n|---|---|\n| 1 | <2 |", "<pre>| a | b |\n|---|---|\n| 1 | &lt;2 |</pre>"),
            ("one\n\ntwo\n\n---\n\nthree", "one\n\ntwo\n\n———\n\nthree"),
            ("text\n- a\n\nafter", "text\n\n• a\n\nafter"),
        ] {
            assert_eq!(html(markdown), shown, "{markdown}");
        }
    }

    /// Whether tags are closed in order, and only known ones are there.
    fn is_well_formed(html: &str) -> bool {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = html;
        while let Some(start) = rest.find('<') {
            let Some(end) = rest[start..].find('>') else {
                return false;
            };
            let tag = &rest[start + 1..start + end];
            rest = &rest[start + end + 1..];
            let name = tag.trim_start_matches('/').split(' ').next().unwrap_or_default();
            if !["b", "i", "s", "code", "pre", "a", "blockquote"].contains(&name) {
                return false;
            }
            if tag.starts_with('/') {
                if open.pop() != Some(name) {
                    return false;
                }
            } else {
                open.push(name);
            }
        }
        open.is_empty()
    }

    proptest::proptest! {
        #[test]
        fn anything_becomes_well_formed(text in "([a-z<>&\"]{0,6}|[*_~`#>|\\-\\[\\]()! \n]{1,4}|https://x |\\PC|```|1\\. ){0,80}") {
            let html = html(&text);
            proptest::prop_assert!(is_well_formed(&html), "{}\n{}", text, html);
        }
    }
}
