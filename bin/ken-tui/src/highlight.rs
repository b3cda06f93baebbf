//! Highlights code in the colours of the terminal's palette. The grammars are loaded with the first piece of code.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use syntect::easy::HighlightLines;
use syntect::highlighting::{FontStyle, Theme};
use syntect::parsing::SyntaxSet;
use two_face::theme::{EmbeddedThemeName, extra};

/// The longest code that is highlighted, since the parser is slow.
const LARGEST: usize = 64 * 1024;

struct Loaded {
    syntaxes: SyntaxSet,
    theme: Theme,
}

fn loaded() -> &'static Loaded {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    LOADED.get_or_init(|| Loaded {
        syntaxes: two_face::syntax::extra_newlines(),
        theme: extra().get(EmbeddedThemeName::Ansi).clone(),
    })
}

/// The lines of a piece of code, in spans.
pub(crate) type Lines = Vec<Vec<Span<'static>>>;

/// The state of the colours of a piece of code.
pub(crate) enum Colours {
    Known(Lines),
    /// The language is unknown.
    Unknown,
    /// They are being computed; see [`in_background`].
    Later,
}

/// How many pieces of code may wait for their colours, and how many are cached with them.
const PIECES: usize = 64;

/// The thread that computes colours.
struct Background {
    wanted: SyncSender<(u64, String, Vec<String>)>,
    made: Mutex<HashMap<u64, Option<Lines>>>,
}

static BACKGROUND: OnceLock<Background> = OnceLock::new();

/// From now on, colours are computed on a thread of their own, because the first piece of a language takes longer than a
/// frame; `tell` is called when some are ready. Without this call they are computed at once.
pub(crate) fn in_background(tell: impl Fn() + Send + 'static) -> std::io::Result<()> {
    let (wanted, pieces) = sync_channel::<(u64, String, Vec<String>)>(PIECES);
    let background = BACKGROUND.get_or_init(|| Background {
        wanted,
        made: Mutex::default(),
    });
    std::thread::Builder::new().spawn(move || {
        for (key, language, lines) in pieces {
            let coloured = colour(&language, &lines);
            let mut made = background.made.lock().unwrap_or_else(PoisonError::into_inner);
            if made.len() >= PIECES {
                made.clear();
            }
            made.insert(key, coloured);
            drop(made);
            tell();
        }
    })?;
    Ok(())
}

/// The colours of a piece of code.
pub(crate) fn highlight(language: &str, lines: &[String]) -> Colours {
    if language.is_empty() || lines.iter().map(String::len).sum::<usize>() > LARGEST {
        return Colours::Unknown;
    }
    let Some(background) = BACKGROUND.get() else {
        return colour(language, lines).map_or(Colours::Unknown, Colours::Known);
    };
    let mut hasher = DefaultHasher::new();
    (language, lines).hash(&mut hasher);
    let key = hasher.finish();
    let made = background.made.lock().unwrap_or_else(PoisonError::into_inner);
    match made.get(&key) {
        Some(Some(lines)) => Colours::Known(lines.clone()),
        Some(None) => Colours::Unknown,
        None => {
            // When the queue is full, this piece is requested again once other colours are ready.
            _ = background
                .wanted
                .try_send((key, language.to_owned(), lines.to_vec()));
            Colours::Later
        }
    }
}

/// Colours the lines; `None` when nothing is known of the language.
fn colour(language: &str, lines: &[String]) -> Option<Lines> {
    let Loaded { syntaxes, theme } = loaded();
    let syntax = syntaxes.find_syntax_by_token(language)?;
    let mut state = HighlightLines::new(syntax, theme);
    let mut coloured = Vec::with_capacity(lines.len());
    for line in lines {
        let with_end = format!("{line}\n");
        let pieces = state.highlight_line(&with_end, syntaxes).ok()?;
        let span = |(style, text): &(syntect::highlighting::Style, &str)| {
            Span::styled(text.trim_end_matches('\n').to_owned(), to_style(*style))
        };
        let spans = pieces.iter().map(span);
        coloured.push(spans.filter(|span| !span.content.is_empty()).collect());
    }
    Some(coloured)
}

/// The theme `ansi` names places in the palette: alpha 0 is the colour of number `r`, alpha 1 the default.
fn to_style(style: syntect::highlighting::Style) -> Style {
    let colour = style.foreground;
    let shown = match (colour.a, colour.r) {
        (1, _) => Style::new(),
        (0, number) => Style::new().fg(named(number)),
        _ => Style::new().fg(Color::Rgb(colour.r, colour.g, colour.b)),
    };
    let mut modifier = Modifier::empty();
    modifier.set(Modifier::BOLD, style.font_style.contains(FontStyle::BOLD));
    modifier.set(Modifier::ITALIC, style.font_style.contains(FontStyle::ITALIC));
    shown.add_modifier(modifier)
}

fn named(number: u8) -> Color {
    match number {
        0 => Color::Black,
        1 => Color::Red,
        2 => Color::Green,
        3 => Color::Yellow,
        4 => Color::Blue,
        5 => Color::Magenta,
        6 => Color::Cyan,
        7 => Color::Gray,
        _ => Color::Indexed(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_keeps_its_text_and_gets_colours_of_the_palette() {
        let code = [
            "fn main() {".to_owned(),
            "    let x = \"a\"; // b".to_owned(),
            "}".to_owned(),
        ];
        let lines = colour("rust", &code).unwrap();
        let text: Vec<String> = lines
            .iter()
            .map(|spans| spans.iter().map(|span| span.content.as_ref()).collect())
            .collect();
        assert_eq!(text, code);
        let colours: Vec<Color> = lines.iter().flatten().filter_map(|span| span.style.fg).collect();
        assert!(
            !colours.is_empty() && !colours.iter().any(|colour| matches!(colour, Color::Rgb(..))),
            "{colours:?}"
        );
        assert!(matches!(highlight("no such language", &code), Colours::Unknown));
    }
}
