//! Draws the state: the cells of the screen and the position of the cursor.

use ken_approval::{Kind, Request};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block as Frame, Clear, Widget};
use unicode_segmentation::UnicodeSegmentation;

use crate::markdown::FAINT;
use crate::model::approval::{Dialog, Drawn};
use crate::model::block::one_line;
use crate::model::list::List;
use crate::model::{Connection, Model, Overlay, Usage};
use crate::wrap::{Cut, width, wrap};

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const PANE: u16 = 34;
/// The minimum width for showing the pane beside the conversation. On a narrower screen, it replaces the conversation.
const WIDE: u16 = 90;
const EDITOR_ROWS: u16 = 10;
const QUEUE_ROWS: usize = 3;

const DECIDE: &str = "a approve once · s for the session · d deny · Esc later";

const DECIDE_ONCE: &str = "a approve once · d deny · Esc later";
const NOT_WHOLE: &str = "a part cannot be shown, so it cannot be approved · d deny · Esc later";
const TOO_SMALL: &str = "too small a window to show the request, so it cannot be approved · d deny · Esc later";
const LOADING: &str = "the whole request is being loaded · d deny · Esc later";

const HELP: &str = "\
Enter             send, or put into the queue while a turn runs
Shift+Enter, Ctrl+J, Alt+Enter   a new line
Esc               cancel the turn; what was said and the queue stay
Ctrl+C            cancel, then leave
Up, Down          the queue, then the history
PageUp, PageDown, Shift+Up, Shift+Down, the wheel   scroll
Ctrl+Home, Ctrl+End   the beginning, the end
Ctrl+F            search the conversation
Ctrl+O            unfold outputs and thinking
Ctrl+S            plan, usage, approvals, parts
Ctrl+P            all commands
F2                decide the pending approval
Alt+C, Alt+K      copy the last answer, the last piece of code
Alt+A, /attach FILE   attach a file
Ctrl+G            write in $VISUAL or $EDITOR
Ctrl+_, Alt+_     undo, redo
Ctrl+Z            suspend
/                 at the beginning: all commands, such as /model
@                 at the beginning of a word: attach a file of this folder";

/// Draws the state. Returns the position of the cursor.
pub(crate) fn view(model: &mut Model, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let is_beside = model.pane && area.width >= WIDE;
    // A blank column separates the text from the pane's border.
    let width = if is_beside { area.width - PANE - 1 } else { area.width };
    let main = Rect { width, ..area };
    let cursor = conversation(model, main, buffer);
    let top = model.pane_top.take().unwrap_or(0);
    if is_beside {
        let x = area.right() - PANE;
        for y in area.top()..area.bottom() {
            buffer.set_string(x, y, "│", FAINT);
        }
        let (x, width) = (x + 2, PANE - 2);
        text(&pane_lines(model, width), Rect { x, width, ..area }, buffer);
    } else if model.pane {
        let height = main.height.saturating_sub(2);
        pane_over(model, top, Rect { height, ..main }, buffer);
    }
    overlay(model, area, buffer).unwrap_or(cursor)
}

/// Draws the pane in place of the conversation, starting with its line `top`.
fn pane_over(model: &mut Model, top: usize, area: Rect, buffer: &mut Buffer) {
    Clear.render(area, buffer);
    let lines = pane_lines(model, area.width);
    let rows = usize::from(area.height);
    let top = top.min(lines.len().saturating_sub(rows));
    model.pane_top = Some(top);
    text(lines.get(top..).unwrap_or_default(), area, buffer);
    if lines.len() - top > rows && rows > 0 {
        let more = format!("{:<1$}", "↓ more", usize::from(area.width));
        row(&more, FAINT, area.x, area.bottom() - 1, area, buffer);
    }
}

/// Draws a text from a cell on, cut off at the right edge of the area. Returns the column after it.
fn row(text: &str, style: Style, x: u16, y: u16, area: Rect, buffer: &mut Buffer) -> u16 {
    let room = usize::from(area.right().saturating_sub(x));
    buffer.set_stringn(x, y, text, room, style).0
}

/// Draws the conversation and everything below it. Returns the position of the editor's cursor.
fn conversation(model: &mut Model, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let mut below: Vec<Line<'static>> = Vec::new();
    let tiny = area.height < 8;
    if !tiny {
        below.extend(queue_lines(model, area.width));
        below.extend(approval_line(model));
        below.extend(attachment_line(model));
    }
    let editor_width = area.width.saturating_sub(2).max(1);
    let max = EDITOR_ROWS.min(area.height / 3).max(1);
    let editor_rows = editor_rows(model, editor_width).min(max);
    let rule = u16::from(!tiny);
    let below_rows = u16::try_from(below.len()).unwrap_or(0).min(area.height / 3);
    let bottom = editor_rows + 1 + rule + below_rows;
    let transcript_rows = area.height.saturating_sub(bottom);

    model.transcript.columns = area.width;
    model.transcript.rows = transcript_rows;
    let lines = model.transcript.visible();
    let top = Rect { height: transcript_rows, ..area };
    text(&lines, top, buffer);
    if let Overlay::Search(wanted) = &model.overlay {
        mark(wanted, top, buffer);
    }

    let mut y = area.y + transcript_rows;
    text(&below, Rect { y, height: below_rows, ..area }, buffer);
    y += below_rows;
    if rule > 0 {
        let more = if model.transcript.follows() { "" } else { " ↓ more below, Esc goes to the end " };
        let line = format!("──{more}{}", "─".repeat(usize::from(area.width)));
        row(&line, FAINT, area.x, y, area, buffer);
        y += 1;
    }
    if y < area.bottom() {
        row("›", Style::new().fg(Color::Cyan), area.x, y, area, buffer);
    }
    let editor = Rect { x: area.x + 2, y, width: editor_width, height: editor_rows };
    (&model.editor).render(editor.intersection(area), buffer);
    y += editor_rows;
    status(model, Rect { y, height: 1, ..area }, buffer);

    let at = model.editor.screen_cursor();
    let (top_row, _) = model.editor.scroll_offset();
    let row = u16::try_from(at.row).unwrap_or(0).saturating_sub(top_row);
    let column = u16::try_from(at.col).unwrap_or(0);
    let place = Position::new(editor.x + column.min(editor_width - 1), editor.y + row.min(editor_rows - 1));
    Some(place).filter(|place| area.contains(*place))
}

/// Returns the number of rows that the text in the editor takes.
fn editor_rows(model: &Model, columns: u16) -> u16 {
    let columns = usize::from(columns);
    let rows = model.editor.lines().iter().map(|line| {
        // One more cell is needed for the cursor after the last character.
        wrap(&Line::raw(line.as_str()), columns, 0, Cut::Words).len().max((width(line) + 1).div_ceil(columns))
    });
    u16::try_from(rows.take(usize::from(EDITOR_ROWS)).sum::<usize>()).unwrap_or(EDITOR_ROWS).max(1)
}

fn queue_lines(model: &Model, columns: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let count = model.queue.len();
    for (index, draft) in model.queue.iter().take(QUEUE_ROWS).enumerate() {
        let mark = if model.held { "held" } else { "next" };
        let before = if index == 0 { mark } else { "then" };
        let line = format!("  {before}: {}", one_line(&draft.text));
        lines.push(Line::styled(clip(line, columns), FAINT));
    }
    if count > QUEUE_ROWS {
        lines.push(Line::styled(format!("  and {} more", count - QUEUE_ROWS), FAINT));
    }
    if count > 0 {
        let send = if model.held { "Enter sends them, " } else { "" };
        lines.push(Line::styled(format!("  {send}Up edits the last"), FAINT));
    }
    lines
}

fn approval_line(model: &Model) -> Option<Line<'static>> {
    let request = model.approvals.first()?;
    let more = match model.approvals.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Line::from(vec![
        Span::styled("? ", Style::new().fg(Color::Yellow)),
        Span::styled(format!("{}{more}", request.summary), STRONG),
        Span::styled(format!("  {} risk · F2 decides", request.risk), FAINT),
    ]))
}

fn attachment_line(model: &Model) -> Option<Line<'static>> {
    if model.attachments.is_empty() {
        return None;
    }
    let names = model.attachments.iter().map(|attachment| format!(" [{}]", one_line(&attachment.name)));
    let line = format!(" {}", names.collect::<String>());
    Some(Line::styled(line, Style::new().fg(Color::Cyan)))
}

/// Shortens a line to the width, with `…` at its end if something is missing.
fn clip(line: String, columns: u16) -> String {
    if width(&line) <= usize::from(columns) {
        return line;
    }
    let columns = usize::from(columns).saturating_sub(1);
    let mut clipped = wrap(&Line::raw(line), columns, 0, Cut::Anywhere);
    format!("{}…", clipped.swap_remove(0))
}

/// Draws the status row. The most important part is on the left, so that it is cut off last.
fn status(model: &Model, area: Rect, buffer: &mut Buffer) {
    if !buffer.area.contains(Position::new(area.x, area.y)) {
        return;
    }
    if let Some(notice) = &model.notice {
        let notice = format!(" {notice}");
        row(&notice, Style::new().fg(Color::Yellow), area.x, area.y, area, buffer);
        return;
    }
    let pieces = status_pieces(model, area.width);
    let mut x = area.x + 1;
    for (index, (piece, style)) in pieces.iter().enumerate() {
        let piece = format!("{}{piece}", if index > 0 { " · " } else { "" });
        if index > 0 && width(&piece) > usize::from(area.right().saturating_sub(x)) {
            break;
        }
        x = row(&piece, *style, x, area.y, area, buffer);
    }
}

/// Returns the parts of the status row, the most important first.
fn status_pieces(model: &Model, columns: u16) -> Vec<(String, Style)> {
    let mut pieces: Vec<(String, Style)> = Vec::new();
    let trouble = match &model.connection {
        Connection::Starting => Some("starting".to_owned()),
        Connection::Lost(reason) => Some(format!("reconnecting: {reason}")),
        Connection::Connected => None,
    };
    pieces.extend(trouble.map(|trouble| (trouble, Style::new().fg(Color::Yellow))));
    if let Some(exchange) = model.open_exchange() {
        let since = exchange.since.unwrap_or(model.now);
        let elapsed = model.now.saturating_duration_since(since).as_secs();
        let time = format!("{}:{:02}", elapsed / 60, elapsed % 60);
        let waiting = model.parts.as_ref().filter(|parts| !parts.is_empty());
        let what = match waiting {
            Some(parts) => format!("waiting for {} {time}", parts.join(", ")),
            None if !model.approvals.is_empty() => format!("waiting for a decision {time}"),
            None => format!("working {time} · Esc cancels"),
        };
        pieces.push((what, Style::new().fg(Color::Green)));
    }
    if !model.queue.is_empty() {
        pieces.push((format!("{} queued", model.queue.len()), Style::new()));
    }
    if let Some(session) = &model.session {
        let short = session.id.rsplit('-').next().unwrap_or_default();
        pieces.push((session.name.as_deref().map_or_else(|| short.to_owned(), one_line), FAINT));
    }
    pieces.extend(
        model.degraded.first().map(|down| (format!("down: {}", one_line(down)), Style::new().fg(Color::Yellow))),
    );
    if model.connection == Connection::Connected {
        pieces.push(("connected".to_owned(), FAINT));
    }
    if !model.usage.model.is_empty() {
        pieces.push((model.usage.model.clone(), FAINT));
    }
    pieces.extend(context_left(&model.usage).map(|text| (text, FAINT)));
    if columns >= 60 {
        pieces.push(("F1 help".to_owned(), FAINT));
    }
    pieces
}

fn context_left(usage: &Usage) -> Option<String> {
    let (used, capacity) = (usage.context?, usage.capacity.filter(|capacity| *capacity > 0)?);
    let left = capacity.saturating_sub(used).saturating_mul(100) / capacity;
    Some(format!("{left}% context left"))
}

/// Returns the lines of the pane: plan, usage, approvals, parts.
fn pane_lines(model: &Model, columns: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut add = |text: &str, style: Style| {
        let line = Line::styled(text.to_owned(), style);
        lines.extend(wrap(&line, usize::from(columns), 2, Cut::Words));
    };
    let (normal, colour) = (Style::new(), |colour| Style::new().fg(colour));
    if !model.plan.is_empty() {
        add("Plan", STRONG);
        for (done, step) in &model.plan {
            let (mark, style) = if *done { ("✓", FAINT) } else { ("·", normal) };
            add(&format!("{mark} {step}"), style);
        }
        add("", normal);
    }
    let usage = &model.usage;
    let (turns, input, output) = (usage.turns, usage.input, usage.output);
    add("Usage since opening", STRONG);
    add(&format!("{turns} turns, {input} tokens in, {output} out"), normal);
    add(&usage.cost.map_or("cost unknown".to_owned(), |cost| format!("cost {cost:.4}")), normal);
    add(context_left(usage).as_deref().unwrap_or("context unknown"), normal);
    add("", normal);
    add("Approvals", STRONG);
    if model.approvals.is_empty() {
        add("none pending", FAINT);
    }
    for request in &model.approvals {
        add(&format!("? {}", request.summary), colour(Color::Yellow));
    }
    add("", normal);
    add("Parts", STRONG);
    match &model.parts {
        None => add("not known yet", FAINT),
        Some(missing) if missing.is_empty() => add("all ready", colour(Color::Green)),
        Some(missing) => {
            for part in missing {
                add(&format!("{part} is not ready"), colour(Color::Red));
            }
        }
    }
    for down in &model.degraded {
        add(&format!("down: {down}"), colour(Color::Yellow));
    }
    if let Some(session) = &model.session {
        add("", normal);
        add("Session", STRONG);
        add(&session.id, FAINT);
        if let Some(name) = &session.name {
            add(&one_line(name), FAINT);
        }
    }
    lines
}

/// Draws the overlay. Returns the position of its cursor, if it receives typed text.
#[allow(clippy::option_option, reason = "no overlay, an overlay without a cursor, one with a cursor")]
fn overlay(model: &mut Model, area: Rect, buffer: &mut Buffer) -> Option<Option<Position>> {
    match &mut model.overlay {
        Overlay::None => None,
        Overlay::Search(wanted) => {
            let hint = model.notice.as_deref().unwrap_or("Enter up · Down down · Esc closes");
            Some(input_row("search", wanted, hint, area, buffer))
        }
        Overlay::Attach(path) => Some(input_row("file", path, "Enter attaches · Esc closes", area, buffer)),
        Overlay::Help(scroll) => Some(help_window(scroll, area, buffer)),
        Overlay::Palette(list) | Overlay::Sessions(list) => Some(list_window(list, area, buffer)),
        Overlay::Completion(open) => Some(list_window(&open.list, area, buffer)),
        Overlay::Approval(dialog) => Some(approval_window(dialog, area, buffer)),
    }
}

/// Draws the help, or the part of it that fits.
fn help_window(scroll: &mut usize, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let columns = area.width.saturating_sub(4).min(76);
    let wrapped = |line| wrap(&Line::raw(line), usize::from(columns), 18, Cut::Words);
    let lines: Vec<Line<'static>> = HELP.lines().flat_map(wrapped).collect();
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let title = if rows.saturating_add(2) <= area.height {
        "Help · Esc closes it"
    } else {
        "Help · Up, Down · Esc closes it"
    };
    let inner = window(title, area, columns, rows, buffer);
    *scroll = (*scroll).min(lines.len().saturating_sub(usize::from(inner.height)));
    text(lines.get(*scroll..).unwrap_or_default(), inner, buffer);
    None
}

/// Draws a row for typing in place of the status row.
fn input_row(label: &str, typed: &str, hint: &str, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let y = area.bottom().checked_sub(1)?;
    let blanks = " ".repeat(usize::from(area.width));
    row(&blanks, Style::new(), area.x, y, area, buffer);
    let room = usize::from(area.width).saturating_sub(1);
    let shown = end_of(typed, room.saturating_sub(label.len() + 3));
    let (x, _) = buffer.set_stringn(area.x, y, format!(" {label}: {shown}"), room, STRONG);
    row(hint, FAINT, x + 2, y, area, buffer);
    Some(Position::new(x.min(area.right().saturating_sub(1)), y))
}

/// Returns as much of the end of a typed text as fits, because the cursor is there.
fn end_of(typed: &str, room: usize) -> String {
    let shown = ken_text::for_terminal(typed);
    let mut used = 0;
    let fits = shown.graphemes(true).rev().take_while(|glyph| {
        used += width(glyph);
        used <= room
    });
    let bytes: usize = fits.map(str::len).sum();
    shown.get(shown.len() - bytes..).unwrap_or_default().to_owned()
}

/// Draws a framed window in the centre. Returns the area inside it.
fn window(title: &str, area: Rect, columns: u16, rows: u16, buffer: &mut Buffer) -> Rect {
    let columns = (columns + 4).min(area.width);
    let rows = (rows + 2).min(area.height);
    let frame = Rect {
        x: area.x + (area.width - columns) / 2,
        y: area.y + (area.height - rows) / 2,
        width: columns,
        height: rows,
    };
    Clear.render(frame, buffer);
    let block = Frame::bordered().title(format!(" {title} ")).border_style(FAINT);
    let inner = block.inner(frame);
    block.render(frame, buffer);
    Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner }
}

fn list_window(list: &List, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let rows = list.matching();
    let inner = window(list.title, area, 72, 16, buffer);
    if inner.is_empty() {
        return None;
    }
    let room = usize::from(inner.width);
    let filter = end_of(&list.filter, room.saturating_sub(3));
    buffer.set_stringn(inner.x, inner.y, format!("› {filter}"), room, STRONG);
    let visible = usize::from(inner.height.saturating_sub(1));
    let first = (list.selected() + 1).saturating_sub(visible);
    for (offset, row) in rows.iter().skip(first).take(visible).enumerate() {
        let y = inner.y + 1 + u16::try_from(offset).unwrap_or(0);
        let is_selected = first + offset == list.selected();
        let style = if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let remark = width(&row.remark);
        let room_for_text = room.saturating_sub(remark + 1);
        buffer.set_stringn(inner.x, y, " ".repeat(room), room, style);
        buffer.set_stringn(inner.x, y, &row.text, room_for_text, style);
        let x = inner.right().saturating_sub(u16::try_from(remark).unwrap_or(0));
        if room > remark + 8 {
            buffer.set_stringn(x, y, &row.remark, remark, style.patch(FAINT));
        }
    }
    if rows.is_empty() {
        buffer.set_stringn(inner.x, inner.y + 1, "nothing here", room, FAINT);
    }
    let x = inner.x + 2 + u16::try_from(width(&filter)).unwrap_or(0);
    Some(Position::new(x.min(inner.right().saturating_sub(1)), inner.y))
}

fn approval_window(dialog: &mut Dialog, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    // The smallest window in which a request can be read by scrolling, in columns, and in rows with its frame.
    const MIN_COLUMNS: u16 = 10;
    const MIN_ROWS: u16 = 5;
    let columns = area.width.saturating_sub(6).min(110);
    let drawn = dialog.drawn.take().filter(|drawn| drawn.columns == columns);
    let drawn = drawn.unwrap_or_else(|| request_in(columns, &dialog.request));
    let lines = &drawn.lines;
    dialog.is_shown = drawn.fits && columns >= MIN_COLUMNS && area.height >= MIN_ROWS;
    let keys = match (&dialog.outcome, &dialog.reason) {
        (Some(outcome), _) => {
            let line = format!("the request was {outcome} · any key closes");
            wrap(&Line::raw(line), usize::from(columns), 0, Cut::Words)
        }
        (None, Some(reason)) => {
            let label = "deny, because: ";
            let room = usize::from(columns).saturating_sub(label.len() + 1);
            vec![Line::raw(format!("{label}{}", end_of(reason, room)))]
        }
        (None, None) => {
            let keys = match (dialog.may_approve(false), dialog.may_approve(true)) {
                (_, true) => DECIDE,
                (true, false) => DECIDE_ONCE,
                (false, false) if !dialog.is_shown => TOO_SMALL,
                (false, false) if dialog.is_loaded => NOT_WHOLE,
                (false, false) => LOADING,
            };
            wrap(&Line::raw(keys), usize::from(columns), 0, Cut::Words)
        }
    };
    // There is one more row above the keys. On a small screen the request has half of the rows, and the keys are cut.
    let all = area.height.saturating_sub(2);
    let for_keys = if dialog.is_shown { all - all.div_euclid(2) } else { all };
    let below = u16::try_from(keys.len()).unwrap_or(1).saturating_add(1).min(for_keys);
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(below).min(all);
    let inner = window("Approval", area, columns, rows, buffer);
    let height = inner.height.saturating_sub(below);
    let visible = usize::from(height);
    dialog.scroll = dialog.scroll.min(lines.len().saturating_sub(visible));
    let rest = lines.get(dialog.scroll..).unwrap_or_default();
    text(rest, Rect { height, ..inner }, buffer);
    if rest.len() > visible && inner.height > below {
        let more = format!("↓ more · {} of {} lines · Home, End", dialog.scroll + visible, lines.len());
        row(&more, FAINT, inner.x, inner.y + height, inner, buffer);
    }
    dialog.page = visible;
    dialog.drawn = Some(drawn);
    let y = inner.bottom().saturating_sub(below.saturating_sub(1)).max(inner.y);
    for (line, y) in keys.iter().zip(y..inner.bottom()) {
        buffer.set_string(inner.x, y, line.to_string(), STRONG);
    }
    let typed = dialog.reason.as_ref().filter(|_| dialog.outcome.is_none()).and(keys.first())?;
    let x = inner.x + u16::try_from(typed.width()).unwrap_or(0);
    Some(Position::new(x.min(inner.right().saturating_sub(1)), y))
}

fn request_in(columns: u16, request: &Request) -> Drawn {
    let mut lines = Vec::new();
    for line in request.lines() {
        let cut = if matches!(line.kind, Kind::What | Kind::Fact | Kind::Risk) { Cut::Words } else { Cut::Anywhere };
        let styled = Line::styled(line.text, style_of(line.kind, &request.risk));
        lines.extend(wrap(&styled, usize::from(columns), 2, cut));
    }
    let fits = lines.iter().all(|line| line.width() <= usize::from(columns));
    Drawn { columns, lines, fits }
}

fn style_of(kind: Kind, risk: &str) -> Style {
    match (kind, risk) {
        (Kind::What, _) => STRONG,
        (Kind::Risk, "high") | (Kind::Removed, _) => Style::new().fg(Color::Red),
        (Kind::Risk, "medium") => Style::new().fg(Color::Yellow),
        (Kind::Added, _) => Style::new().fg(Color::Green),
        (Kind::Hunk, _) => Style::new().fg(Color::Cyan),
        _ => Style::new(),
    }
}

fn text(lines: &[Line<'_>], area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// Reverses the colours of the search matches on one row.
fn mark(wanted: &str, area: Rect, buffer: &mut Buffer) {
    let wanted: Vec<String> = wanted.to_lowercase().chars().map(String::from).collect();
    if wanted.is_empty() {
        return;
    }
    let width = u16::try_from(wanted.len()).unwrap_or(u16::MAX);
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right().saturating_sub(width - 1) {
            let holds = |(x, c): (u16, &String)| {
                let cell = buffer.cell((x, y));
                cell.is_some_and(|cell| cell.symbol().to_lowercase() == *c)
            };
            if (x..).zip(&wanted).all(holds) {
                let found = Rect::new(x, y, width, 1);
                buffer.set_style(found, Style::new().add_modifier(Modifier::REVERSED));
            }
        }
    }
}

#[cfg(test)]
mod tests;
