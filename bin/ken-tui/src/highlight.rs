//! Highlights code in the colours of the terminal's palette. The grammars are loaded when the first code block is
//! shown.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use syntect::easy::HighlightLines;
use syntect::highlighting::{FontStyle, Theme};
use syntect::parsing::SyntaxSet;
use two_face::theme::{EmbeddedThemeName, extra};

/// The maximum size of a code block that is highlighted, in bytes. The parser is slow.
const MAX_BYTES: usize = 64 * 1024;

/// How long the highlighting process keeps running without work.
const IDLE: Duration = Duration::from_secs(2);
/// The hidden option that starts the highlighting process.
const OPTION: &str = "--colour-code";

/// The syntaxes and the theme.
struct Languages {
    syntaxes: SyntaxSet,
    theme: Theme,
}

/// Returns the syntaxes and the theme, which are loaded at the first call.
fn languages() -> &'static Languages {
    static LOADED: OnceLock<Languages> = OnceLock::new();
    LOADED.get_or_init(|| Languages {
        syntaxes: two_face::syntax::extra_newlines(),
        theme: extra().get(EmbeddedThemeName::Ansi).clone(),
    })
}

/// The lines of a code block, each as styled spans.
pub(crate) type Lines = Vec<Vec<Span<'static>>>;

/// The colours of a code block.
pub(crate) enum Colours {
    Known(Lines),
    Unknown,
    /// They are still being computed; see [`in_background`].
    Later,
}

/// The colours computed so far for the code blocks of a text, by [`key`]; `None` for an unknown language.
pub(crate) type KnownColours = HashMap<u64, Option<Lines>>;

/// The maximum number of code blocks that wait for their colours. Results that nobody takes are dropped at twice this
/// number.
const MAX_PIECES: usize = 64;

/// A code block in the form in which [`filter`] reads it: its language and its lines.
type Piece = (String, Vec<String>);

/// Code blocks that wait for their colours, and finished ones that have not been taken yet.
struct Background {
    wanted: SyncSender<(u64, Piece)>,
    pieces: Mutex<HashMap<u64, Progress>>,
}

enum Progress {
    Waiting,
    Done(Option<Lines>),
}

static BACKGROUND: OnceLock<Background> = OnceLock::new();

/// From now on, colours are computed in a separate process, and `tell` is called when some are ready. There are three
/// reasons: the first block of a language takes longer than a frame, the compiled syntaxes take tens of megabytes that
/// are only freed when a process ends, and a fault in the parser must not end the client. Without this call, colours
/// are computed synchronously.
pub(crate) fn in_background(on_finished: impl Fn() + Send + 'static) -> io::Result<()> {
    let (wanted, pieces) = sync_channel(MAX_PIECES);
    let background = BACKGROUND.get_or_init(|| Background { wanted, pieces: Mutex::default() });
    std::thread::Builder::new().spawn(move || {
        while let Ok((key, piece)) = pieces.recv() {
            let mut next = Ok((key, piece));
            let mut process = Process::start();
            while let Ok((key, piece)) = next {
                let coloured = process.as_mut().ok().and_then(|process| process.ask(&piece));
                let is_broken = coloured.is_none();
                background.keep(key, coloured.flatten());
                on_finished();
                if is_broken {
                    break;
                }
                next = pieces.recv_timeout(IDLE);
            }
        }
    })?;
    Ok(())
}

/// This program running as a [`filter`]. It ends when its input is closed.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start() -> io::Result<Process> {
        let mut child = Command::new("/proc/self/exe")
            .arg(OPTION)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Process { child, input, output: BufReader::new(output) })
    }

    /// Returns the colours, `Some(None)` for an unknown language, or `None` if the process has failed.
    fn ask(&mut self, piece: &Piece) -> Option<Option<Lines>> {
        let line = serde_json::to_string(piece).ok()? + "\n";
        self.input.as_mut()?.write_all(line.as_bytes()).ok()?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).ok()?;
        let lines: Option<Vec<Vec<Coloured>>> = serde_json::from_str(&answer).ok()?;
        Some(lines.map(spans))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        _ = self.child.wait();
    }
}

/// A text with an optional colour number of the terminal's palette, and whether it is bold and italic.
type Coloured = (Option<u8>, bool, bool, String);

fn spans(lines: Vec<Vec<Coloured>>) -> Lines {
    let of_line = |line: Vec<Coloured>| line.into_iter().map(span).collect();
    lines.into_iter().map(of_line).collect()
}

fn span((colour, is_bold, is_italic, text): Coloured) -> Span<'static> {
    let mut style = colour.map_or(Style::new(), |number| Style::new().fg(Color::Indexed(number)));
    if is_bold {
        style = style.add_modifier(Modifier::BOLD);
    }
    if is_italic {
        style = style.add_modifier(Modifier::ITALIC);
    }
    Span::styled(text, style)
}

/// Reads code blocks from standard input, one line of JSON each, and writes their colours to standard output. An
/// unknown language gives `null`.
pub(crate) fn filter() -> io::Result<()> {
    for line in io::stdin().lines() {
        let (language, lines): Piece = serde_json::from_str(&line?)?;
        let answer = serde_json::to_string(&languages().colour(&language, &lines))?;
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}

impl Background {
    fn keep(&self, key: u64, coloured: Option<Lines>) {
        let mut pieces = self.pieces.lock();
        // Drop results that nobody has taken, because their code is no longer on the screen.
        if pieces.len() > 2 * MAX_PIECES {
            pieces.retain(|_, progress| matches!(progress, Progress::Waiting));
        }
        pieces.insert(key, Progress::Done(coloured));
    }

    /// Removes and returns the colours of a code block if they are ready. A new block is put into the queue.
    fn take(&self, key: u64, piece: impl FnOnce() -> Piece) -> Option<Option<Lines>> {
        let mut pieces = self.pieces.lock();
        let is_waiting = match pieces.remove(&key) {
            Some(Progress::Done(coloured)) => return Some(coloured),
            Some(Progress::Waiting) => true,
            // When the queue is full, this piece is requested again once other colours are ready.
            None => self.wanted.try_send((key, piece())).is_ok(),
        };
        if is_waiting {
            pieces.insert(key, Progress::Waiting);
        }
        None
    }
}

fn key(language: &str, lines: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (language, lines).hash(&mut hasher);
    hasher.finish()
}

/// Returns the colours of a code block. Colours already received for the same text are in `known`, and new ones are
/// added to it. A text is therefore complete after at most as many calls as it has blocks, even if they are more than
/// the queue holds.
pub(crate) fn highlight(language: &str, lines: &[String], known: &mut KnownColours) -> Colours {
    if language.is_empty() || lines.iter().map(String::len).sum::<usize>() > MAX_BYTES {
        return Colours::Unknown;
    }
    let Some(background) = BACKGROUND.get() else {
        let coloured = languages().colour(language, lines);
        return coloured.map_or(Colours::Unknown, |lines| Colours::Known(spans(lines)));
    };
    let key = key(language, lines);
    if !known.contains_key(&key)
        && let Some(coloured) = background.take(key, || (language.to_owned(), lines.to_vec()))
    {
        known.insert(key, coloured);
    }
    match known.get(&key) {
        Some(Some(lines)) => Colours::Known(lines.clone()),
        Some(None) => Colours::Unknown,
        None => Colours::Later,
    }
}

impl Languages {
    /// Colours the lines. Returns `None` if the language is unknown.
    fn colour(&self, language: &str, lines: &[String]) -> Option<Vec<Vec<Coloured>>> {
        let syntax = self.syntaxes.find_syntax_by_token(language)?;
        let mut state = HighlightLines::new(syntax, &self.theme);
        let mut coloured = Vec::with_capacity(lines.len());
        for line in lines {
            let with_end = format!("{line}\n");
            let pieces = state.highlight_line(&with_end, &self.syntaxes).ok()?;
            let of_line = pieces.into_iter().map(|(style, text)| {
                // The theme `ansi` encodes palette colours: with alpha 0, `r` is the colour number; alpha 1 means the
                // default colour.
                let number = (style.foreground.a == 0).then_some(style.foreground.r);
                let has = |font| style.font_style.contains(font);
                let text = text.trim_end_matches('\n').to_owned();
                (number, has(FontStyle::BOLD), has(FontStyle::ITALIC), text)
            });
            coloured.push(of_line.filter(|(.., text)| !text.is_empty()).collect());
        }
        Some(coloured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_keeps_its_text_and_gets_colours_of_the_palette() {
        let code = ["fn main() {".to_owned(), "    let x = \"a\"; // b".to_owned(), "}".to_owned()];
        let Colours::Known(lines) = highlight("rust", &code, &mut KnownColours::new()) else {
            panic!("rust is known");
        };
        let text: Vec<String> =
            lines.iter().map(|spans| spans.iter().map(|span| span.content.as_ref()).collect()).collect();
        assert_eq!(text, code);
        let colours: Vec<Color> = lines.iter().flatten().filter_map(|span| span.style.fg).collect();
        assert!(!colours.is_empty() && !colours.iter().any(|colour| matches!(colour, Color::Rgb(..))), "{colours:?}");
        assert!(matches!(highlight("no such language", &code, &mut KnownColours::new()), Colours::Unknown));
    }

    #[test]
    fn a_piece_is_queued_once_and_a_text_of_many_pieces_gets_all_its_colours() {
        let (wanted, queue) = sync_channel(MAX_PIECES);
        let background = Background { wanted, pieces: Mutex::default() };
        let count = 5 * MAX_PIECES as u64;
        let (mut known, mut coloured) = (KnownColours::new(), 0);
        for _ in 0..count {
            // Drawing takes the finished colours and requests the others. Then the queue is processed.
            for key in 0..count {
                if !known.contains_key(&key)
                    && let Some(lines) = background.take(key, || (String::new(), Vec::new()))
                {
                    known.insert(key, lines);
                }
            }
            while let Ok((key, _)) = queue.try_recv() {
                background.keep(key, None);
                coloured += 1;
            }
        }
        assert_eq!((known.len() as u64, coloured), (count, count));
        assert!(background.pieces.lock().is_empty());
    }

    #[test]
    fn colours_that_nobody_takes_do_not_pile_up() {
        let (wanted, _queue) = sync_channel(MAX_PIECES);
        let background = Background { wanted, pieces: Mutex::default() };
        (0..10_000).for_each(|key| background.keep(key, None));
        assert!(background.pieces.lock().len() <= 2 * MAX_PIECES + 1);
    }
}
