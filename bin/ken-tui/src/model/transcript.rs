//! The conversation, and which part of it is on the screen.
//!
//! A place consists of an exchange, a block and a line. All movement starts from a place, so its cost depends on the
//! size of the screen and not on the length of the conversation. Exchanges are numbered, and older ones that are loaded
//! later get lower numbers, so existing numbers stay valid.

use std::collections::VecDeque;
use std::time::Instant;

use ratatui::text::Line;

use super::block::{Block, Kind};

/// When this many blocks have been rendered, the lines of those far from the screen are dropped.
const MAX_CACHED: usize = 256;
/// Older exchanges are loaded when there are fewer than this many above the screen.
const LOAD_DISTANCE: i64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Waiting,
    Running,
    Completed,
    Failed,
    Cancelled,
}

/// A prompt with its answer and activities, or a message of the client itself.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) submission: Option<String>,
    pub(crate) status: Status,
    pub(crate) blocks: Vec<Block>,
    pub(crate) since: Option<Instant>,
}

impl Exchange {
    pub(crate) fn new(submission: Option<&str>, status: Status) -> Exchange {
        Exchange { submission: submission.map(str::to_owned), status, blocks: Vec::new(), since: None }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.status, Status::Waiting | Status::Running)
    }
}

/// A position in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    exchange: i64,
    block: usize,
    line: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Transcript {
    exchanges: VecDeque<Exchange>,
    /// The number of the first loaded exchange.
    first: i64,
    /// The place of the first line on the screen; `None` while the end is shown.
    top: Option<Place>,
    pub(crate) columns: u16,
    pub(crate) rows: u16,
    pub(crate) unfolded: bool,
    /// The number of blocks rendered since lines were last dropped.
    made: usize,
    /// Exchanges with lower numbers have been printed on the terminal's normal screen.
    pub(crate) printed: i64,
}

impl Transcript {
    /// Returns an empty conversation for the same screen size.
    pub(crate) fn fresh(&self) -> Transcript {
        Transcript { columns: self.columns, rows: self.rows, unfolded: self.unfolded, ..Transcript::default() }
    }

    pub(crate) fn push(&mut self, exchange: Exchange) {
        self.exchanges.push_back(exchange);
    }

    /// Adds older exchanges before the first one.
    pub(crate) fn prepend(&mut self, older: Vec<Exchange>) {
        for exchange in older.into_iter().rev() {
            self.exchanges.push_front(exchange);
            self.first -= 1;
        }
        self.printed = self.printed.min(self.first);
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Exchange> {
        self.exchanges.iter()
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut Exchange> {
        self.exchanges.back_mut()
    }

    /// Returns where the exchange of a submission is. The search starts at the newest one.
    fn index(&self, submission: &str) -> Option<usize> {
        self.exchanges.iter().rposition(|exchange| exchange.submission.as_deref() == Some(submission))
    }

    pub(crate) fn find(&mut self, submission: &str) -> Option<&mut Exchange> {
        self.index(submission).and_then(|index| self.exchanges.get_mut(index))
    }

    /// Returns the exchange of a submission. Adds one at the end if there is none, which has begun `now`.
    pub(crate) fn entry(&mut self, submission: &str, now: Instant) -> &mut Exchange {
        let index = self.index(submission).unwrap_or_else(|| {
            self.push(Exchange { since: Some(now), ..Exchange::new(Some(submission), Status::Running) });
            self.exchanges.len() - 1
        });
        &mut self.exchanges[index]
    }

    pub(crate) fn block_mut(&mut self, id: &str) -> Option<&mut Block> {
        let blocks = self.exchanges.iter_mut().rev().flat_map(|exchange| exchange.blocks.iter_mut());
        blocks.into_iter().find(|block| block.id == id)
    }

    /// Sets the submission of an exchange that this client has sent, as soon as the reply to its request names it.
    /// Events that arrived before that reply are in a separate exchange, which is merged into this one.
    pub(crate) fn adopt(&mut self, prompt: &str, submission: &str) {
        let early = self.index(submission).and_then(|index| self.exchanges.remove(index));
        let is_meant = |exchange: &&mut Exchange| exchange.blocks.first().is_some_and(|block| block.id == prompt);
        let Some(own) = self.exchanges.iter_mut().rev().find(is_meant) else {
            return;
        };
        own.submission = Some(submission.to_owned());
        if let Some(early) = early {
            own.status = early.status;
            own.since = early.since;
            own.blocks.extend(early.blocks);
        }
    }

    /// Removes the exchange whose first block has this id.
    pub(crate) fn remove(&mut self, prompt: &str) {
        self.exchanges.retain(|exchange| exchange.blocks.first().is_none_or(|block| block.id != prompt));
    }

    pub(crate) fn follows(&self) -> bool {
        self.top.is_none()
    }

    /// Whether so few exchanges are above the screen that older ones should be loaded.
    pub(crate) fn is_near_beginning(&self) -> bool {
        self.top.is_none_or(|top| top.exchange - self.first < LOAD_DISTANCE)
    }

    fn exchange(&self, number: i64) -> Option<&Exchange> {
        self.exchanges.get(usize::try_from(number - self.first).ok()?)
    }

    /// Returns the number of blank lines before a block.
    fn gap(&self, place: Place) -> usize {
        let Some(exchange) = self.exchange(place.exchange) else {
            return 0;
        };
        let kind = |index: usize| exchange.blocks.get(index).map(|block| block.kind);
        match place.block.checked_sub(1).and_then(kind) {
            Some(Kind::Hidden) => 0,
            Some(before) if Some(before) == kind(place.block) && before == Kind::Activity => 0,
            Some(_) => 1,
            None => usize::from(place.exchange != self.first),
        }
    }

    fn block(&mut self, place: Place) -> Option<&mut Block> {
        let index = usize::try_from(place.exchange - self.first).ok()?;
        self.exchanges.get_mut(index)?.blocks.get_mut(place.block)
    }

    /// Returns the number of lines of a block, including the blank lines before it.
    fn height(&mut self, place: Place) -> usize {
        let (columns, unfolded) = (self.columns, self.unfolded);
        let gap = self.gap(place);
        let mut made = 0;
        let height = self.block(place).map_or(0, |block| {
            made = usize::from(!block.has_lines());
            gap + block.lines(columns, unfolded).len()
        });
        self.made += made;
        height
    }

    fn after(&self, place: Place) -> Option<Place> {
        let mut next = Place { block: place.block + 1, line: 0, ..place };
        while next.block >= self.exchange(next.exchange)?.blocks.len() {
            next = Place { exchange: next.exchange + 1, block: 0, line: 0 };
        }
        Some(next)
    }

    fn before(&self, place: Place) -> Option<Place> {
        let mut previous = place;
        while previous.block == 0 {
            previous.exchange -= 1;
            previous.block = self.exchange(previous.exchange)?.blocks.len();
        }
        Some(Place { block: previous.block - 1, line: 0, ..previous })
    }

    fn last(&self) -> Option<Place> {
        self.before(Place {
            exchange: self.first + i64::try_from(self.exchanges.len()).unwrap_or(0),
            block: 0,
            line: 0,
        })
    }

    /// Returns the place of the first line on the screen.
    fn shown_from(&mut self) -> Option<Place> {
        let last = self.last()?;
        let end = Place { line: self.height(last), ..last };
        let at_end = self.up(end, usize::from(self.rows));
        let Some(mut top) = self.top else {
            return Some(at_end);
        };
        let height = self.height(top);
        top.line = top.line.min(height.saturating_sub(1));
        let is_beyond = top >= at_end;
        self.top = Some(top).filter(|_| !is_beyond);
        Some(if is_beyond { at_end } else { top })
    }

    /// Returns the place this many lines further up, or the beginning of the conversation if that is nearer.
    fn up(&mut self, from: Place, lines: usize) -> Place {
        let (mut place, mut left) = (from, lines);
        while left > place.line {
            left -= place.line;
            let Some(previous) = self.before(place) else {
                return Place { line: 0, ..place };
            };
            place = Place { line: self.height(previous), ..previous };
        }
        Place { line: place.line - left, ..place }
    }

    /// Returns the place this many lines further down, or `None` if the conversation ends before it.
    fn down(&mut self, from: Place, lines: usize) -> Option<Place> {
        let (mut place, mut left) = (from, lines);
        loop {
            let below = self.height(place).saturating_sub(place.line);
            if left < below {
                return Some(Place { line: place.line + left, ..place });
            }
            left -= below;
            place = self.after(place)?;
        }
    }

    /// Scrolls; positive is down.
    pub(crate) fn scroll(&mut self, lines: i64) {
        if let Some(from) = self.shown_from() {
            let distance = usize::try_from(lines.unsigned_abs()).unwrap_or(usize::MAX);
            self.top = if lines < 0 { Some(self.up(from, distance)) } else { self.down(from, distance) };
        }
    }

    pub(crate) fn show_end(&mut self) {
        self.top = None;
    }

    pub(crate) fn show_beginning(&mut self) {
        if !self.exchanges.is_empty() {
            self.top = Some(Place { exchange: self.first, block: 0, line: 0 });
        }
    }

    /// Returns the lines on the screen from top to bottom. They are fewer than its rows while the conversation is
    /// short.
    pub(crate) fn visible(&mut self) -> Vec<Line<'static>> {
        let rows = usize::from(self.rows);
        let mut shown = Vec::with_capacity(rows);
        let mut next = self.shown_from();
        let first = next;
        while let Some(place) = next {
            let (columns, unfolded) = (self.columns, self.unfolded);
            let gap = self.gap(place);
            let blanks = gap.saturating_sub(place.line);
            shown.extend(std::iter::repeat_n(Line::default(), blanks));
            if let Some(block) = self.block(place) {
                let lines = block.lines(columns, unfolded);
                let from = place.line.saturating_sub(gap);
                let room = rows.saturating_sub(shown.len());
                shown.extend(lines.iter().skip(from).take(room).cloned());
            }
            shown.truncate(rows);
            next = (shown.len() < rows).then(|| self.after(place)).flatten();
        }
        self.forget_far_lines(first);
        shown
    }

    /// Marks blocks to be rendered again if some of their code has no colours yet.
    pub(crate) fn draw_colours(&mut self) {
        let exchanges = self.exchanges.iter_mut();
        exchanges.flat_map(|exchange| &mut exchange.blocks).for_each(Block::draw_colours);
    }

    /// Drops the rendered lines of blocks far from the screen, so that a long conversation takes little more memory
    /// than its text.
    fn forget_far_lines(&mut self, around: Option<Place>) {
        let Some(place) = around.filter(|_| self.made > MAX_CACHED) else {
            return;
        };
        self.made = 0;
        let near = place.exchange - 64..place.exchange + 128;
        for (index, exchange) in self.exchanges.iter_mut().enumerate() {
            let number = self.first + i64::try_from(index).unwrap_or(0);
            if !near.contains(&number) {
                exchange.blocks.iter_mut().for_each(Block::forget_lines);
            }
        }
    }

    /// Scrolls to the next line that contains a text, up or down from the first line of the screen. Case is ignored.
    /// Returns whether one was found.
    pub(crate) fn search(&mut self, wanted: &str, up: bool) -> bool {
        let wanted = wanted.to_lowercase();
        let Some(from) = self.shown_from() else {
            return false;
        };
        let mut next = Some(from);
        while let Some(place) = next {
            let mut found = self.lines_with(&wanted, place).into_iter().filter(|line| {
                let at = Place { line: *line, ..place };
                if up { at < from } else { at > from }
            });
            if let Some(line) = if up { found.next_back() } else { found.next() } {
                self.top = Some(Place { line, ..place });
                return true;
            }
            next = if up { self.before(place) } else { self.after(place) };
        }
        false
    }

    /// Returns the lines of a block that contain a text. `wanted` must be in lower case.
    fn lines_with(&mut self, wanted: &str, place: Place) -> Vec<usize> {
        let (columns, unfolded) = (self.columns, self.unfolded);
        let gap = self.gap(place);
        let Some(block) = self.block(place).filter(|block| block.contains(wanted)) else {
            return Vec::new();
        };
        let lines = block.lines(columns, unfolded).iter().zip(gap..);
        let found: Vec<usize> = lines
            .filter(|(line, _)| line.to_string().to_lowercase().contains(wanted))
            .map(|(_, number)| number)
            .collect();
        // If the text is in a folded part or is split by a line break, the first line of the block is used.
        if found.is_empty() { vec![gap] } else { found }
    }

    /// Returns the last matching block on or above the screen.
    pub(crate) fn last_of(&mut self, is_meant: impl Fn(&Block) -> bool) -> Option<&mut Block> {
        let mut place = match self.top {
            None => self.last(),
            Some(_) => {
                let rows = usize::from(self.rows);
                let from = self.shown_from()?;
                self.down(from, rows.saturating_sub(1)).or_else(|| self.last())
            }
        };
        while let Some(at) = place {
            if self.block(at).is_some_and(|block| is_meant(block)) {
                return self.block(at);
            }
            place = self.before(at);
        }
        None
    }

    /// Returns the lines that have not been printed on the terminal's normal screen yet, and marks them as printed.
    pub(crate) fn take_unprinted(&mut self) -> Vec<Line<'static>> {
        let (columns, unfolded) = (self.columns.max(20), self.unfolded);
        let skip = usize::try_from(self.printed - self.first).unwrap_or(0);
        let mut lines = Vec::new();
        let mut open = 0;
        for exchange in self.exchanges.iter_mut().skip(skip) {
            for block in &mut exchange.blocks {
                lines.extend(block.lines(columns, unfolded).iter().cloned());
                lines.push(Line::default());
                block.forget_lines();
            }
            open = if exchange.is_open() { open + 1 } else { 0 };
        }
        // A running turn is printed again as a whole next time.
        self.printed = self.first + i64::try_from(self.exchanges.len() - open).unwrap_or(0);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize, rows: u16) -> Transcript {
        let mut transcript = Transcript { columns: 40, rows, ..Transcript::default() };
        for number in 0..count {
            transcript.push(exchange(number));
        }
        transcript
    }

    fn exchange(number: usize) -> Exchange {
        let mut exchange = Exchange::new(Some(&number.to_string()), Status::Completed);
        exchange.blocks.push(Block::new(Kind::Prompt, &format!("p{number}")));
        exchange.blocks.push(Block::new(Kind::Answer, &format!("a{number}\nb{number}")));
        exchange
    }

    fn shown(transcript: &mut Transcript) -> Vec<String> {
        transcript.visible().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_end_is_shown_and_one_line_is_one_line() {
        let mut transcript = of(100, 6);
        assert_eq!(shown(&mut transcript), ["b98", "", "› p99", "", "a99", "b99"]);
        transcript.scroll(-1);
        assert_eq!(shown(&mut transcript)[0], "a98");
        assert!(!transcript.follows());
        transcript.scroll(1);
        assert_eq!(shown(&mut transcript)[5], "b99");
        assert!(transcript.follows());
        // Scrolling a page down and a page up leads back to the same place.
        transcript.scroll(-250);
        let before = shown(&mut transcript);
        transcript.scroll(37);
        transcript.scroll(-37);
        assert_eq!(shown(&mut transcript), before);
        transcript.scroll(-10_000);
        assert_eq!(shown(&mut transcript)[0], "› p0");
    }

    #[test]
    fn a_short_conversation_stands_at_the_top() {
        let mut transcript = of(1, 20);
        assert_eq!(shown(&mut transcript), ["› p0", "", "a0", "b0"]);
        transcript.scroll(-5);
        assert_eq!(shown(&mut transcript).len(), 4);
        assert!(transcript.follows());
    }

    #[test]
    fn older_exchanges_do_not_move_what_is_shown() {
        let mut transcript = of(10, 5);
        transcript.scroll(-14);
        let before = shown(&mut transcript);
        transcript.prepend((100..150).map(exchange).collect());
        assert_eq!(shown(&mut transcript), before);
        transcript.push(exchange(10));
        assert_eq!(shown(&mut transcript), before);
        transcript.scroll(-1_000_000);
        assert_eq!(shown(&mut transcript)[0], "› p100");
    }

    #[test]
    fn search_finds_up_and_down() {
        let mut transcript = of(50, 5);
        assert!(transcript.search("B7", true));
        assert_eq!(shown(&mut transcript)[0], "b7");
        assert!(transcript.search("a30", false));
        assert_eq!(shown(&mut transcript)[0], "a30");
        assert!(!transcript.search("nowhere", true));
        assert_eq!(shown(&mut transcript)[0], "a30");
    }

    #[test]
    fn lines_far_from_the_screen_are_forgotten() {
        let mut transcript = of(2_000, 20);
        while transcript.top != Some(Place { exchange: 0, block: 0, line: 0 }) {
            transcript.scroll(-20);
            transcript.visible();
        }
        let cached = transcript.iter().flat_map(|exchange| &exchange.blocks).filter(|block| block.has_lines());
        assert!(cached.count() <= 2 * MAX_CACHED + 400);
    }

    #[test]
    fn what_was_printed_is_not_printed_again() {
        let mut transcript = of(2, 5);
        assert_eq!(transcript.take_unprinted().len(), 10);
        assert_eq!(transcript.take_unprinted().len(), 0);
        transcript.push(exchange(2));
        assert_eq!(transcript.take_unprinted().len(), 5);
    }

    #[test]
    fn the_search_goes_from_line_to_line_within_a_long_answer() {
        let mut transcript = of(1, 3);
        let text: Vec<String> = (0..40).map(|number| format!("word {number}")).collect();
        let mut long = Exchange::new(Some("long"), Status::Completed);
        long.blocks.push(Block::new(Kind::Answer, &text.join("\n\n")));
        long.blocks.push(Block::activity("run_tests", "c1", super::super::block::State::Done));
        transcript.push(long);
        let mut goes_to = |wanted: &str, up: bool| {
            let found = transcript.search(wanted, up);
            found.then(|| shown(&mut transcript).remove(0))
        };
        assert_eq!(goes_to("Word 3", true).as_deref(), Some("word 38"));
        assert_eq!(goes_to("word 3", true).as_deref(), Some("word 37"));
        assert_eq!(goes_to("word 1", true).as_deref(), Some("word 19"));
        assert_eq!(goes_to("word 2", false).as_deref(), Some("word 20"));
        assert_eq!(goes_to("word 39", true), None, "it is further down");
        assert_eq!(goes_to("p0", true).as_deref(), Some("› p0"));
        // The names of activities are found, too.
        assert!(goes_to("run_tests", false).is_some());
    }
}
