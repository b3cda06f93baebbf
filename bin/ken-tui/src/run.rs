//! The client on a screen. It waits for keys, messages and signals, updates the state, and paints.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use ken_types::Error;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};
use ratatui::buffer::Buffer;
use ratatui_textarea::{Input, Key};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

use crate::files::{Files, attachment, listed};
use crate::find::Finder;
use crate::input::{Decoder, Event};
use crate::message::{Effect, Message, Selector};
use crate::model::Model;
use crate::net::{Net, Port};
use crate::screen::{Screen, printed, put};
use crate::view::view;
use crate::{clipboard, highlight};

/// The maximum number of queued messages. A sender waits while the queue is full.
const MAX_MESSAGES: usize = 256;
/// The minimum time between two frames while text is streamed.
const FRAME: Duration = Duration::from_millis(16);
/// How long to wait for the rest of a control sequence before its first byte counts as the escape key.
const SEQUENCE: Duration = Duration::from_millis(10);
/// The maximum number of bytes per read from the terminal.
const MAX_READ_BYTES: usize = 4096;

pub(crate) fn run(finder: Finder, selector: Selector) -> Result<ExitCode, Error> {
    let failed = |error: io::Error| Error::internal(format!("the terminal: {error}"));
    let files = finder.state().map(Files::below);
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (wake, woken) = UnixStream::pair().map_err(failed)?;
    wake.set_nonblocking(true).and_then(|()| woken.set_nonblocking(true)).map_err(failed)?;
    let (sender, messages) = sync_channel(MAX_MESSAGES);
    let port = Port { messages: sender, wake: Arc::new(wake) };
    let (model, effects) = Model::new(selector, Instant::now());
    let mut app = App {
        model,
        screen: Screen::enter(has_colour).map_err(failed)?,
        net: Net::new(finder, port.clone()),
        port,
        files,
        has_colour,
        has_edited: false,
        quit: None,
    };
    // The first frame is drawn before anything is waited for.
    app.draw().map_err(failed)?;
    highlight::in_background({
        let port = app.port.clone();
        move || _ = port.send(Message::Coloured)
    })
    .map_err(failed)?;
    app.perform(effects).map_err(failed)?;
    let result = match app.until_end(&messages, woken) {
        // The terminal is closed. SIGHUP says that, too, and can come earlier or later.
        Err(error) if is_closed(&error) => app.end().map(|()| ExitCode::SUCCESS),
        result => result,
    };
    app.leave();
    result.map_err(failed)
}

struct App {
    model: Model,
    screen: Screen,
    net: Net,
    port: Port,
    files: Option<Files>,
    has_colour: bool,
    /// Whether an editor has run since the signals were last looked at.
    has_edited: bool,
    quit: Option<u8>,
}

/// The sources that can wake the loop.
struct Sources {
    woken: UnixStream,
    /// Readable after the size of the terminal has changed, or the program continues after a stop.
    resized: UnixStream,
    /// Readable when the program must end.
    ended: UnixStream,
    /// Readable after a key that interrupts. While the client runs, the terminal sends such a key as a character.
    interrupted: UnixStream,
}

impl Sources {
    fn new(woken: UnixStream) -> io::Result<Sources> {
        let listen = |signals: &[i32]| -> io::Result<UnixStream> {
            let (write, read) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            for signal in signals {
                pipe::register(*signal, write.try_clone()?)?;
            }
            Ok(read)
        };
        let (resized, ended) = (listen(&[SIGWINCH, SIGCONT])?, listen(&[SIGTERM, SIGHUP])?);
        Ok(Sources { woken, resized, ended, interrupted: listen(&[SIGINT, SIGQUIT])? })
    }
}

/// Empties a pipe. Returns whether it contained anything.
fn drain(mut pipe: &UnixStream) -> bool {
    let mut bytes = [0; 256];
    let mut any = false;
    while pipe.read(&mut bytes).is_ok_and(|count| count > 0) {
        any = true;
    }
    any
}

impl App {
    fn until_end(&mut self, messages: &Receiver<Message>, woken: UnixStream) -> io::Result<ExitCode> {
        let sources = Sources::new(woken)?;
        let mut decoder = Decoder::default();
        let mut drawn = Instant::now();
        let mut is_due = false;
        loop {
            let now = Instant::now();
            let frame = is_due.then(|| (drawn + FRAME).saturating_duration_since(now));
            let sequence = decoder.is_waiting().then_some(SEQUENCE);
            let timeout = [frame, sequence, self.model.next_tick()].into_iter().flatten().min();
            let has_input = wait(&sources, timeout)?;
            let mut changed = false;
            if drain(&sources.resized) {
                self.handle(Message::Resized)?;
                self.screen.forget();
                changed = true;
            }
            // What is pressed in the editor is for the editor, but the terminal sends its signal to both.
            let has_edited = std::mem::take(&mut self.has_edited);
            let is_interrupted = drain(&sources.interrupted) && !has_edited;
            if drain(&sources.ended) || is_interrupted {
                self.end()?;
            }
            let events = match has_input {
                true => decoder.push(&read_terminal()?),
                false if sequence.is_some() => decoder.flush().into_iter().collect(),
                false => Vec::new(),
            };
            for message in messages_of(events) {
                self.handle(message)?;
                changed = true;
            }
            drain(&sources.woken);
            while let Ok(message) = messages.try_recv() {
                self.handle(message)?;
                changed = true;
            }
            if timeout.is_some() && !changed {
                self.handle(Message::Tick)?;
                changed = true;
            }
            if let Some(status) = self.quit {
                return Ok(ExitCode::from(status));
            }
            is_due |= changed;
            // The effect of a key is drawn at once. Streamed text is drawn at the frame rate.
            if is_due && (has_input || drawn.elapsed() >= FRAME) {
                self.draw()?;
                drawn = Instant::now();
                is_due = false;
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.model.quit();
        let effects = self.model.take_effects();
        self.perform(effects)
    }

    fn handle(&mut self, message: Message) -> io::Result<()> {
        let effects = self.model.update(message, Instant::now());
        self.perform(effects)
    }

    fn draw(&mut self) -> io::Result<()> {
        let area = Screen::area();
        let mut frame = Buffer::empty(area);
        let cursor = view(&mut self.model, area, &mut frame);
        self.screen.paint(&frame, cursor)
    }

    fn perform(&mut self, effects: Vec<Effect>) -> io::Result<()> {
        effects.into_iter().try_for_each(|effect| self.perform_one(effect))
    }

    fn perform_one(&mut self, effect: Effect) -> io::Result<()> {
        match effect {
            Effect::Open(selector) => self.net.open(selector),
            Effect::Attach { epoch, session, offset } => self.net.attach(epoch, &session, offset),
            Effect::Call(call) => self.net.call(call),
            Effect::Copy(text) => return self.copy(&text),
            Effect::Notify(what) => return put(&format!("\x07\x1b]9;{what}\x07")),
            Effect::Edit(text) => return self.edit(&text),
            Effect::ReadFile(path) => return self.handle(Message::Attached(attachment(&path))),
            Effect::ListFiles => self.in_background(|| {
                let (paths, cut) = listed(Path::new("."));
                Message::Files { paths, cut }
            }),
            Effect::LoadHistory => {
                let files = self.files.clone();
                self.in_background(|| Message::History(files.map(|files| files.history.prompts()).unwrap_or_default()));
            }
            // The client works without a history, so errors are ignored.
            Effect::Remember { text, session } => {
                _ = self.files.as_ref().map(|files| files.history.add(&text, &session));
            }
            Effect::Forget { session } => {
                _ = self.files.as_ref().map(|files| files.history.forget(&session));
            }
            Effect::ForgetDeleted => {
                self.files.iter().for_each(|files| self.net.forget_deleted(files.history.clone()));
            }
            Effect::Log(category) => self.log(category),
            Effect::Suspend => return self.suspend(),
            Effect::Repaint => self.screen.forget(),
            Effect::Quit(status) => self.quit = Some(status),
        }
        Ok(())
    }

    fn in_background(&self, work: impl FnOnce() -> Message + Send + 'static) {
        let port = self.port.clone();
        std::thread::spawn(move || port.send(work()));
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        let in_tmux = std::env::var_os("TMUX").is_some();
        match clipboard::copy_sequence(text, in_tmux) {
            Some(sequence) => put(&sequence),
            None => {
                self.model.notice = Some("too long for the terminal's clipboard".to_owned());
                Ok(())
            }
        }
    }

    /// Stops the process, as Ctrl+Z does with other programs. The conversation is printed on the terminal's normal
    /// screen before.
    fn suspend(&mut self) -> io::Result<()> {
        self.screen.suspend();
        self.print_conversation()?;
        self.log("suspend");
        raise(Signal::SIGTSTP).map_err(io::Error::from)?;
        self.screen.resume()
    }

    fn print_conversation(&mut self) -> io::Result<()> {
        let lines = self.model.transcript.take_unprinted();
        put(&printed(&lines, self.has_colour))
    }

    fn log(&self, category: &'static str) {
        if let Some(files) = &self.files {
            files.log(category);
        }
    }

    fn edit(&mut self, text: &str) -> io::Result<()> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let editor = variable("VISUAL").or_else(|| variable("EDITOR")).unwrap_or("vi".to_owned());
        let Some(path) = self.files.as_ref().and_then(|files| files.draft(text).ok()) else {
            self.model.notice = Some("there is no place for the editor's file".to_owned());
            return Ok(());
        };
        self.screen.suspend();
        // The variable can contain arguments, so the shell splits it, as in other programs. With its trap, it waits for the editor after
        // Ctrl+C and Ctrl+\, which then have their usual effect in the editor alone.
        let run = format!("trap : INT QUIT; {editor} \"$1\"");
        let status = Command::new("/bin/sh").arg("-c").arg(run).arg("sh").arg(&path).status();
        self.has_edited = true;
        self.screen.resume()?;
        // Also an editor that was killed may have saved something.
        let written = status.and_then(|_| std::fs::read(&path));
        let edited = written.as_ref().ok().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        self.handle(Message::Edited(edited.filter(|edited| edited != text)))?;
        if written.is_ok() {
            _ = std::fs::remove_file(&path);
        }
        Ok(())
    }

    /// Restores the terminal, and prints the conversation and the id of the session there.
    fn leave(&mut self) {
        self.screen.suspend();
        if let Some(why) = &self.model.fatal {
            let line = ken_text::for_terminal(why).into_owned();
            _ = io::Write::write_all(&mut io::stderr(), format!("ken-tui: {line}\n").as_bytes());
        } else {
            _ = self.print_conversation();
            if let Some(session) = &self.model.session {
                _ = put(&format!("session {}\r\n", session.id));
            }
        }
        self.log("exit");
    }
}

/// Waits until there is something to do. Returns whether there is input from the terminal.
fn wait(sources: &Sources, timeout: Option<Duration>) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = [
        stdin.as_fd(),
        sources.woken.as_fd(),
        sources.resized.as_fd(),
        sources.ended.as_fd(),
        sources.interrupted.as_fd(),
    ]
    .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let timeout = match timeout {
        // The timeout is rounded up, because a wait that ends too early would be followed by another one.
        Some(timeout) => PollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(PollTimeout::MAX),
        None => PollTimeout::NONE,
    };
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let input = fds.first().and_then(PollFd::revents);
    Ok(input.is_some_and(|flags| !flags.is_empty()))
}

/// Whether a terminal cannot be read or written any more because its other end is closed.
fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error() == Some(nix::errno::Errno::EIO as i32)
}

/// Reads what the terminal has sent. Fails if the terminal has been closed.
fn read_terminal() -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; MAX_READ_BYTES];
    // This bypasses the buffer of `Stdin`, because poll(2) does not see what is in it.
    match nix::unistd::read(io::stdin(), &mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            bytes.truncate(count);
            Ok(bytes)
        }
        Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Converts events to messages, and recognises the mouse wheel: it sends several arrow keys at once, which a person
/// cannot do.
fn messages_of(events: Vec<Event>) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut rest = events.into_iter().peekable();
    while let Some(event) = rest.next() {
        let mut arrows = 0;
        if let Some(direction) = arrow(&event) {
            arrows = direction;
            while rest.next_if(|next| arrow(next) == Some(direction)).is_some() {
                arrows += direction;
            }
        }
        match arrows.abs() {
            2.. => messages.push(Message::Wheel(arrows)),
            _ => messages.push(Message::Terminal(event)),
        }
    }
    messages
}

fn arrow(event: &Event) -> Option<i64> {
    match event {
        Event::Key(Input { key, ctrl: false, alt: false, shift: false }) => match key {
            Key::Up => Some(-1),
            Key::Down => Some(1),
            _ => None,
        },
        _ => None,
    }
}
