//! Runs a program on a pseudo-terminal, with a keyboard and a screen.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use parking_lot::Mutex;
use rustix::termios::tcsetwinsize;

use crate::terminal::read_output;

/// Maximum time to wait for output, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
const SCROLLBACK: usize = 5_000;

struct ScreenState {
    screen: vt100::Parser,
    bytes: Vec<u8>,
    /// The times at which output was read, each with the number of bytes read until then.
    times: Vec<(usize, Instant)>,
}

/// A terminal with a running program, which is killed when this is dropped.
pub struct Terminal {
    child: Child,
    keyboard: File,
    state: Arc<Mutex<ScreenState>>,
    reader: Option<JoinHandle<()>>,
    before: Termios,
}

impl Terminal {
    /// Runs a command on a new terminal, as the leader of a session. Its errors are sentences.
    pub fn start(command: &Command, columns: u16, rows: u16) -> Terminal {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(Some(&size), None).expect("a terminal");
        // A daemon that the program starts must not keep the terminal open.
        for end in [&terminal.master, &terminal.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("a flag");
        }
        let mut modes = tcgetattr(&terminal.slave).expect("modes");
        // Keys that are pressed before the program sets up the terminal must not be echoed, because the program shows
        // them itself.
        modes.local_flags.remove(nix::sys::termios::LocalFlags::ECHO);
        tcsetattr(&terminal.slave, SetArg::TCSANOW, &modes).expect("modes");
        let mut leader = Command::new("setsid");
        leader.arg("--ctty").arg(command.get_program()).args(command.get_args()).env_clear();
        leader.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        leader.env("TERM", "xterm-256color").env("PATH", "/usr/bin:/bin").env_remove("KEN_ERRORS");
        // Not the folder of this test, which is in a repository: a person at a terminal is asked about that.
        leader.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
        let of_child = || Stdio::from(terminal.slave.try_clone().expect("a descriptor"));
        let child = leader.stdin(of_child()).stdout(of_child()).stderr(of_child()).spawn().expect("setsid");
        drop(leader);
        drop(terminal.slave);
        let keyboard = File::from(terminal.master);
        let mut screen = keyboard.try_clone().expect("a descriptor");
        let shown = Arc::new(Mutex::new(ScreenState {
            screen: vt100::Parser::new(rows, columns, SCROLLBACK),
            bytes: Vec::new(),
            times: Vec::new(),
        }));
        let written = Arc::clone(&shown);
        let reader = std::thread::spawn(move || {
            read_output(&mut screen, |bytes| {
                let now = Instant::now();
                let mut shown = written.lock();
                shown.screen.process(bytes);
                shown.bytes.extend(bytes);
                let end = shown.bytes.len();
                shown.times.push((end, now));
            });
        });
        Terminal { child, keyboard, state: shown, reader: Some(reader), before: modes }
    }

    /// The current text of the screen.
    pub fn screen(&self) -> String {
        self.state.lock().screen.screen().contents()
    }

    /// Everything that has been written to it so far.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.state.lock().bytes).into_owned()
    }

    /// The number of bytes that have been written to it so far.
    pub fn length(&self) -> usize {
        self.state.lock().bytes.len()
    }

    /// Waits until a text is written after the first `from` bytes, and returns the time; `None` if it is not written
    /// within the limit.
    pub fn wait_for_written(&self, from: usize, text: &str, limit: Duration) -> Option<Instant> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            let shown = self.state.lock();
            let bytes = shown.bytes.get(from..).unwrap_or_default();
            let found = bytes.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let whole = from + at + text.len();
                let time = shown.times.iter().rev().take_while(|(end, _)| *end >= whole).last();
                return time.map(|(_, time)| *time);
            }
            drop(shown);
            std::thread::sleep(Duration::from_micros(200));
        }
        None
    }

    /// The text that was written after the alternate screen was left, without styles.
    pub fn printed(&self) -> String {
        let written = self.written();
        let after = written.rsplit("\u{1b}[?1049l").next().unwrap_or_default().to_owned();
        let mut plain = String::new();
        let mut rest = after.as_str();
        while let Some(at) = rest.find('\u{1b}') {
            plain.push_str(rest.get(..at).unwrap_or_default());
            let sequence = rest.get(at + 2..).unwrap_or_default();
            let end = sequence.find(|c: char| c.is_ascii_alphabetic()).map_or(sequence.len(), |end| end + 1);
            rest = sequence.get(end..).unwrap_or_default();
        }
        plain.push_str(rest);
        plain.replace('\r', "")
    }

    /// The row and column of the cursor, from 0.
    pub fn cursor(&self) -> (u16, u16) {
        self.state.lock().screen.screen().cursor_position()
    }

    /// Waits until the screen contains a text, and returns the screen.
    #[track_caller]
    pub fn wait_for_text(&self, text: &str) -> String {
        self.wait_for_screen(&format!("{text:?} on the screen"), |screen| screen.contains(text))
    }

    /// Waits until the screen satisfies a condition, and returns the screen.
    #[track_caller]
    pub fn wait_for_screen(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + TIMEOUT;
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "not seen: {what}. The screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Presses keys.
    pub fn press(&mut self, bytes: &str) {
        self.keyboard.write_all(bytes.as_bytes()).expect("the keyboard");
    }

    /// Types a line and sends it.
    pub fn type_line(&mut self, line: &str) {
        self.press(line);
        self.press("\r");
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.state.lock().screen.screen_mut().set_size(rows, columns);
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.keyboard.as_fd(), size).expect("a size");
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Waits for the end of the program, checks that the terminal's settings are restored, and returns the exit status.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let end = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                break status;
            }
            assert!(Instant::now() < end, "it does not end. The screen:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        };
        if let Some(reader) = self.reader.take() {
            let modes = tcgetattr(self.keyboard.as_fd()).expect("modes");
            reader.join().expect("the reader");
            assert_eq!(modes.local_flags, self.before.local_flags, "the modes of the terminal");
            assert_eq!(modes.input_flags, self.before.input_flags, "the modes of the terminal");
        }
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
