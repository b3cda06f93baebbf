//! The terminal: enters and leaves its alternate screen, and paints the cells that changed.

use std::fmt::Write as _;
use std::io::{self, Write};

use parking_lot::Mutex;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::wrap::width;

/// The sequences for the alternate screen, arrow keys for the wheel there (1007), bracketed paste (2004), focus reports
/// (1004), and keys that distinguish Shift+Enter from Enter (the first level of the kitty keyboard protocol).
const ENTER: &str = "\x1b[?1049h\x1b[?1007h\x1b[?2004h\x1b[?1004h\x1b[>1u";
const LEAVE: &str = "\x1b[<1u\x1b[?1004l\x1b[?2004l\x1b[?1007l\x1b[0m\x1b[?25h\x1b[?1049l";
/// Terminals with synchronized output show the whole frame at once; others ignore this.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
/// A symbol that no cell of a frame contains, for cells whose content is unknown.
const UNKNOWN: &str = "\u{f8fe}";

/// The alternate screen. It is left when this is dropped.
pub(crate) struct Screen {
    /// The cells that the terminal shows now.
    front: Buffer,
    cursor: Option<Position>,
    has_colour: bool,
}

impl Screen {
    /// Enters the alternate screen, which is also left before a panic is reported.
    pub(crate) fn enter(has_colour: bool) -> io::Result<Screen> {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            default(panic);
        }));
        let mut screen = Screen { front: Buffer::empty(Rect::ZERO), cursor: None, has_colour };
        screen.resume()?;
        Ok(screen)
    }

    /// Enters the alternate screen again after [`Screen::suspend`].
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        let modes = tcgetattr(io::stdin())?;
        let mut raw = modes.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        *MODES.lock() = Some(modes);
        self.forget();
        put(ENTER)
    }

    pub(crate) fn suspend(&mut self) {
        leave();
    }

    pub(crate) fn area() -> Rect {
        match tcgetwinsize(io::stdout()) {
            // If the terminal does not report its size, the area is empty.
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Rect::new(0, 0, size.ws_col, size.ws_row),
            _ => Rect::new(0, 0, 80, 24),
        }
    }

    /// Makes the next frame paint every cell. The screen is not cleared, because that would flicker.
    pub(crate) fn forget(&mut self) {
        self.front = Buffer::empty(Rect::ZERO);
        self.cursor = None;
    }

    /// Shows a frame. Only changed cells are written, and nothing if the frame has not changed.
    pub(crate) fn paint(&mut self, frame: &Buffer, cursor: Option<Position>) -> io::Result<()> {
        let bytes = self.difference(frame, cursor);
        if bytes.is_empty() { Ok(()) } else { put(&bytes) }
    }

    fn difference(&mut self, frame: &Buffer, cursor: Option<Position>) -> String {
        if self.front.area != frame.area {
            let mut unknown = Cell::default();
            unknown.set_symbol(UNKNOWN);
            self.front = Buffer::filled(frame.area, unknown);
        }
        let mut out = String::new();
        let mut style = None;
        let mut next = None;
        let mut covered = None;
        for (x, y, cell) in self.front.diff_iter(frame) {
            // This is the second half of the wide character that was just written.
            if covered == Some((x, y)) {
                continue;
            }
            // After a character whose width differs between terminals, the cursor is moved explicitly.
            if next != Some((x, y)) {
                _ = write!(out, "\x1b[{};{}H", y + 1, x + 1);
            }
            let wanted = sgr(cell.style(), self.has_colour);
            if style.as_ref() != Some(&wanted) {
                out.push_str(&wanted);
                style = Some(wanted);
            }
            let symbol = cell.symbol();
            let is_doubtful = symbol.chars().any(|c| matches!(c, '\u{fe0f}' | '\u{200d}'));
            if is_doubtful && width(symbol) == 2 {
                // Clear both cells first: a terminal that draws the character in one cell would still show the old
                // content of the second.
                _ = write!(out, "  \x1b[{};{}H", y + 1, x + 1);
                covered = Some((x + 1, y));
            }
            out.push_str(symbol);
            next = is_one_cell(symbol).then_some((x + 1, y));
        }
        let is_same = out.is_empty();
        if is_same && cursor == self.cursor {
            return out;
        }
        self.front = frame.clone();
        self.cursor = cursor;
        let place = match cursor {
            Some(at) => format!("\x1b[{};{}H\x1b[?25h", at.y + 1, at.x + 1),
            None => String::new(),
        };
        if is_same && cursor.is_some() { place } else { format!("{BEGIN}\x1b[?25l{out}\x1b[0m{place}{END}") }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// The terminal modes from before the alternate screen, while it is shown. They are static because the panic hook has
/// no `Screen`.
static MODES: Mutex<Option<Termios>> = Mutex::new(None);

/// Leaves the alternate screen, unless that has been done: leaving it a second time would move the cursor back.
fn leave() {
    let modes = MODES.lock().take();
    if let Some(modes) = modes {
        _ = put(LEAVE);
        _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
    }
}

pub(crate) fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Whether all terminals draw the character in one cell.
fn is_one_cell(symbol: &str) -> bool {
    symbol.len() == 1 || (symbol.chars().count() == 1 && width(symbol) == 1 && !symbol.starts_with(is_emoji))
}

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{25a0}'..='\u{27bf}' | '\u{2900}'..='\u{2bff}' | '\u{1f000}'..)
}

/// Returns lines as text for the terminal's normal screen, with colours if `has_colour`.
pub(crate) fn printed(lines: &[Line<'_>], has_colour: bool) -> String {
    let mut out = String::new();
    for line in lines {
        let text = line.to_string();
        if !has_colour {
            out.push_str(text.trim_end());
            out.push_str("\r\n");
            continue;
        }
        for span in &line.spans {
            out.push_str(&sgr(line.style.patch(span.style), true));
            out.push_str(&span.content);
        }
        out.push_str("\x1b[0m\r\n");
    }
    out
}

/// Returns the SGR sequence for a style (Select Graphic Rendition, ECMA-48, 8.3.117), starting from the default style.
fn sgr(style: Style, has_colour: bool) -> String {
    let mut out = "\x1b[0".to_owned();
    let set = style.add_modifier;
    for (modifier, code) in [
        (Modifier::BOLD, 1),
        (Modifier::DIM, 2),
        (Modifier::ITALIC, 3),
        (Modifier::UNDERLINED, 4),
        (Modifier::REVERSED, 7),
        (Modifier::CROSSED_OUT, 9),
    ] {
        if set.contains(modifier) {
            _ = write!(out, ";{code}");
        }
    }
    if has_colour {
        colour(&mut out, style.fg, 30);
        colour(&mut out, style.bg, 40);
    }
    out.push('m');
    out
}

fn colour(out: &mut String, colour: Option<Color>, base: u8) {
    let number = match colour {
        None | Some(Color::Reset) => return,
        Some(Color::Rgb(r, g, b)) => {
            _ = write!(out, ";{};2;{r};{g};{b}", base + 8);
            return;
        }
        // The first eight colours of the palette have numbers of their own.
        Some(Color::Indexed(number @ 0..=7)) => number,
        Some(Color::Indexed(number)) => {
            _ = write!(out, ";{};5;{number}", base + 8);
            return;
        }
        Some(Color::Black) => 0,
        Some(Color::Red) => 1,
        Some(Color::Green) => 2,
        Some(Color::Yellow) => 3,
        Some(Color::Blue) => 4,
        Some(Color::Magenta) => 5,
        Some(Color::Cyan) => 6,
        Some(Color::Gray) => 7,
        Some(Color::DarkGray) => 60,
        Some(Color::LightRed) => 61,
        Some(Color::LightGreen) => 62,
        Some(Color::LightYellow) => 63,
        Some(Color::LightBlue) => 64,
        Some(Color::LightMagenta) => 65,
        Some(Color::LightCyan) => 66,
        Some(Color::White) => 67,
    };
    _ = write!(out, ";{}", base + number);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A screen that nobody has entered.
    fn screen() -> Screen {
        Screen { front: Buffer::empty(Rect::ZERO), cursor: None, has_colour: true }
    }

    fn frame(lines: &[&str]) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 2));
        for (line, y) in lines.iter().zip(0..) {
            buffer.set_string(0, y, line, Style::new());
        }
        buffer
    }

    #[test]
    fn only_what_differs_is_written_and_for_nothing_nothing() {
        let mut screen = screen();
        let all = screen.difference(&frame(&["one", "two"]), None);
        assert!(all.starts_with(BEGIN) && all.ends_with(END) && !all.contains("\x1b[2J"));
        assert_eq!(screen.difference(&frame(&["one", "two"]), None), "");
        let some = screen.difference(&frame(&["one", "twO"]), None);
        assert_eq!(some, "\x1b[?2026h\x1b[?25l\x1b[2;3H\x1b[0mO\x1b[0m\x1b[?2026l");
        let cursor = screen.difference(&frame(&["one", "twO"]), Some(Position::new(1, 1)));
        assert_eq!(cursor, "\x1b[2;2H\x1b[?25h");
    }

    #[test]
    fn the_cursor_is_placed_after_a_character_of_doubtful_width() {
        let mut screen = screen();
        let text = screen.difference(&frame(&["a☀️b✓c"]), None);
        assert!(text.contains("a  \x1b[1;2H☀️\x1b[1;4Hb"), "{text:?}");
        assert!(text.contains("✓\x1b[1;6Hc"), "{text:?}");
    }

    #[test]
    fn no_colour_leaves_emphasis() {
        let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        assert_eq!(sgr(style, true), "\x1b[0;1;31m");
        assert_eq!(sgr(style, false), "\x1b[0;1m");
    }

    #[test]
    #[ignore = "it panics, in a process of its own"]
    fn panics() {
        let _screen = Screen::enter(true).unwrap();
        panic!("on purpose");
    }

    #[test]
    fn a_panic_restores_the_terminal_before_it_is_printed() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "screen::tests::panics", "--nocapture"]);
        let mut terminal = ken_tests::Terminal::start(&command, 80, 24);
        // The terminal modes must be restored too.
        assert!(!terminal.wait_for_end().success());
        let written = terminal.written();
        let (left, told) = (written.find(LEAVE).unwrap(), written.find("on purpose").unwrap());
        assert!(written.contains(ENTER) && left < told, "{written:?}");
    }
}
