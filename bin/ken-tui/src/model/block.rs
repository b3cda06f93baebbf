//! One block of a conversation: its content, and its lines rendered for the width at which it was last drawn.

use std::time::{Duration, Instant};

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::growing::Growing;
use crate::highlight::KnownColours;
use crate::markdown::{self, FAINT, Rendered};
use crate::wrap::{Cut, wrap};

/// The number of lines of a folded output that are shown.
const FOLDED_LINES: usize = 4;
/// The number of lines of an activity that waits for a person.
const WAITING_LINES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Prompt,
    /// A prompt that was sent but is not shown.
    Hidden,
    Thinking,
    Answer,
    Activity,
    /// A message of the client itself.
    Note,
    Problem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Running,
    Done,
    Failed,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    /// The source text: Markdown of an answer, or the output of an activity.
    text: String,
    pub(crate) name: String,
    /// The id of a call, task or approval. The event for its end finds the block by this id.
    pub(crate) id: String,
    pub(crate) state: State,
    /// What an activity is doing at the moment.
    pub(crate) detail: String,
    pub(crate) since: Option<Instant>,
    pub(crate) duration: Option<Duration>,
    /// True if the text is complete.
    settled: bool,
    /// The rendered lines. Only blocks near the screen have them.
    cache: Option<Box<Cache>>,
}

#[derive(Debug)]
struct Cache {
    columns: u16,
    unfolded: bool,
    /// Whether new colours may be available since it was rendered.
    is_stale: bool,
    rendered: Rendered,
    growing: Growing,
}

impl Block {
    pub(crate) fn new(kind: Kind, text: &str) -> Block {
        Block {
            kind,
            text: ken_text::for_terminal(text).into_owned(),
            name: String::new(),
            id: String::new(),
            state: State::Done,
            detail: String::new(),
            since: None,
            duration: None,
            settled: true,
            cache: None,
        }
    }

    /// Returns a block whose text is still growing.
    pub(crate) fn growing(kind: Kind) -> Block {
        Block { settled: false, state: State::Running, ..Block::new(kind, "") }
    }

    pub(crate) fn activity(name: &str, id: &str, state: State) -> Block {
        Block { name: one_line(name), id: id.to_owned(), state, ..Block::new(Kind::Activity, "") }
    }

    /// Returns a block for an activity that starts now.
    pub(crate) fn running(name: &str, id: &str, now: Instant) -> Block {
        Block { since: Some(now), ..Block::activity(name, id, State::Running) }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it contains a text, ignoring case. `wanted` must be in lower case.
    pub(crate) fn contains(&self, wanted: &str) -> bool {
        [&self.text, &self.name, &self.detail].into_iter().any(|text| text.to_lowercase().contains(wanted))
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(&ken_text::for_terminal(text));
    }

    pub(crate) fn set_text(&mut self, text: &str) {
        self.text = ken_text::for_terminal(text).into_owned();
        self.cache = None;
    }

    pub(crate) fn settle(&mut self, state: State) {
        self.settled = true;
        self.state = state;
        if self.duration.is_none() {
            self.duration = self.since.map(|since| since.elapsed());
        }
        self.cache = None;
    }

    /// Drops the rendered lines. The source text stays.
    pub(crate) fn forget_lines(&mut self) {
        self.cache = None;
    }

    pub(crate) fn has_lines(&self) -> bool {
        self.cache.is_some()
    }

    /// Marks the block to be rendered again if some of its code has no colours yet.
    pub(crate) fn draw_colours(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.is_stale |= cache.rendered.lacks_colours;
        }
    }

    /// Returns the code blocks of an answer that has been drawn.
    pub(crate) fn code(&self) -> &[String] {
        let cache = self.cache.as_ref();
        cache.map(|cache| cache.rendered.code.as_slice()).unwrap_or_default()
    }

    /// Returns its lines for a width. With `unfolded`, folded text is shown as a whole.
    pub(crate) fn lines(&mut self, columns: u16, unfolded: bool) -> &[Line<'static>] {
        let fits = |cache: &Cache| cache.columns == columns && cache.unfolded == unfolded && !cache.is_stale;
        let drawn = self.cache.take();
        let stale = !drawn.as_deref().is_some_and(fits);
        let mut cache = match drawn {
            Some(cache) if !stale => cache,
            drawn => {
                let known = drawn.map(|drawn| drawn.rendered.known).unwrap_or_default();
                let rendered = Rendered { known, ..Rendered::default() };
                Box::new(Cache { columns, unfolded, is_stale: false, rendered, growing: Growing::default() })
            }
        };
        match (self.settled, self.kind) {
            (false, Kind::Answer) => cache.growing.draw(&self.text, columns, &mut cache.rendered),
            // A settled block is rendered only once.
            _ if stale || !self.settled => {
                let known = std::mem::take(&mut cache.rendered.known);
                cache.rendered = self.render(columns, unfolded, known);
            }
            _ => {}
        }
        &self.cache.insert(cache).rendered.lines
    }

    fn render(&self, columns: u16, unfolded: bool, known: KnownColours) -> Rendered {
        match self.kind {
            Kind::Answer => markdown::render(&self.text, columns, known),
            Kind::Prompt => {
                let style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
                gutter(&self.text, "› ", style, columns)
            }
            Kind::Note => gutter(&self.text, "", FAINT, columns),
            Kind::Problem => gutter(&self.text, "! ", Style::new().fg(Color::Red), columns),
            Kind::Hidden => Rendered::default(),
            Kind::Thinking => self.render_thinking(columns, unfolded),
            Kind::Activity => self.render_activity(columns, unfolded),
        }
    }

    fn render_thinking(&self, columns: u16, unfolded: bool) -> Rendered {
        let style = FAINT.add_modifier(Modifier::ITALIC);
        let mut rendered = gutter(self.text.trim_end(), "· ", style, columns);
        let hidden = rendered.lines.len().saturating_sub(FOLDED_LINES);
        if hidden > 0 && !unfolded {
            if self.settled {
                rendered.lines.truncate(FOLDED_LINES);
                rendered.lines.push(folded(hidden));
            } else {
                // While the text grows, its last lines are shown.
                rendered.lines.drain(..hidden);
            }
        }
        rendered
    }

    fn render_activity(&self, columns: u16, unfolded: bool) -> Rendered {
        let (mark, colour) = match self.state {
            State::Waiting => ("?", Color::Yellow),
            State::Running => ("•", Color::Yellow),
            State::Done => ("✓", Color::Green),
            State::Failed => ("✗", Color::Red),
        };
        let mut spans = vec![Span::styled(format!("{mark} "), Style::new().fg(colour)), Span::raw(self.name.clone())];
        if !self.detail.is_empty() {
            spans.push(Span::styled(format!("  {}", self.detail), FAINT));
        }
        if let Some(duration) = self.duration {
            spans.push(Span::styled(format!("  {}", short(duration)), FAINT));
        }
        let mut lines = wrap(&Line::from(spans), usize::from(columns), 2, Cut::Words);
        let text = self.text.trim_end();
        if !text.is_empty() {
            let output = beside(text, "  ", columns, diff_style()).lines;
            let folded_lines = if self.state == State::Waiting { WAITING_LINES } else { FOLDED_LINES };
            let shown = if unfolded { output.len() } else { output.len().min(folded_lines) };
            let hidden = output.len() - shown;
            lines.extend(output.into_iter().take(shown));
            if hidden > 0 {
                lines.push(folded(hidden));
            }
        }
        Rendered { lines, ..Rendered::default() }
    }
}

fn folded(hidden: usize) -> Line<'static> {
    let lines = if hidden == 1 { "line" } else { "lines" };
    Line::styled(format!("  … {hidden} more {lines}, Ctrl+O unfolds"), FAINT)
}

/// Returns the style of each line of an output. What a diff adds and removes has its colour.
fn diff_style() -> impl FnMut(&str) -> Style {
    let mut is_diff = false;
    move |line| {
        is_diff |= line.starts_with("--- ");
        match line.as_bytes().first().filter(|_| is_diff) {
            Some(b'+') => Style::new().fg(Color::Green),
            Some(b'-') => Style::new().fg(Color::Red),
            _ => FAINT,
        }
    }
}

fn gutter(text: &str, mark: &str, style: Style, columns: u16) -> Rendered {
    beside(text, mark, columns, |_| style)
}

/// Renders a text with a marker before its first line. The other lines are indented by the width of the marker.
fn beside(text: &str, mark: &str, columns: u16, mut style: impl FnMut(&str) -> Style) -> Rendered {
    let indent = mark.chars().count();
    let room = usize::from(columns).saturating_sub(indent).max(2);
    let blanks = " ".repeat(indent);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let style = style(line);
        for piece in wrap(&Line::styled(line.to_owned(), style), room, 0, Cut::Words) {
            let mark = if lines.is_empty() { mark } else { &blanks };
            lines.push(Line::from_iter([Span::styled(mark.to_owned(), style)].into_iter().chain(piece.spans)));
        }
    }
    Rendered { lines, ..Rendered::default() }
}

/// Returns a text on one line, without control characters.
pub(crate) fn one_line(text: &str) -> String {
    ken_text::for_terminal(text).replace(['\n', '\t'], " ")
}

/// Formats a duration: "0.4 s", "12 s", "2:05 min".
pub(crate) fn short(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f32()),
        seconds @ 10..60 => format!("{seconds} s"),
        seconds => format!("{}:{:02} min", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(block: &mut Block, columns: u16) -> Vec<String> {
        block.lines(columns, false).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_answer_that_grows_is_rendered_as_far_as_it_goes() {
        let mut growing = Block::growing(Kind::Answer);
        growing.push("# One\n\ntwo **three** four");
        assert_eq!(text(&mut growing, 9), ["One", "", "two three", "four"]);
        growing.push("\n\n- fi");
        assert_eq!(text(&mut growing, 9), ["One", "", "two three", "four", "", "- fi"]);
        // After a change of width, the text is rendered from its source.
        assert_eq!(text(&mut growing, 5), ["One", "", "two", "three", "four", "", "- fi"]);
    }

    #[test]
    fn a_long_output_is_folded() {
        let mut block = Block::activity("ls", "c1", State::Done);
        block.set_text("1\n2\n3\n4\n5\n6");
        assert_eq!(text(&mut block, 40), ["✓ ls", "  1", "  2", "  3", "  4", "  … 2 more lines, Ctrl+O unfolds"]);
        assert_eq!(block.lines(40, true).len(), 7);
    }

    #[test]
    fn a_diff_has_colours() {
        let mut block = Block::activity("approval", "a1", State::Waiting);
        block.set_text("- no diff yet\n--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new");
        let colour = |line: &Line<'_>| line.spans.last().and_then(|span| span.style.fg);
        let colours: Vec<_> = block.lines(40, false).iter().skip(1).map(colour).collect();
        let (red, green) = (Some(Color::Red), Some(Color::Green));
        assert_eq!(colours, [None, red, green, None, red, green]);
    }

    #[test]
    fn what_a_terminal_acts_on_is_shown_instead() {
        let mut block = Block::new(Kind::Answer, "a\u{1b}[2Jb");
        assert_eq!(text(&mut block, 40), ["a␛[2Jb"]);
    }
}
