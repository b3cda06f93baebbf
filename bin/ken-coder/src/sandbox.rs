//! Runs a program in ken-sandbox(1), with bounded output, time and disk.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ken_tool::{Error, find_program};
use rustix::process::{Pid, Signal, kill_process};

use crate::network::{Network, Proxy};
use crate::place::Place;
use crate::settings::Settings;
use crate::tree::Tree;

/// The limits of a command: data memory of each process and size of each file, in MiB, and processes at a time.
const MEMORY: &str = "4096";
const FILE_SIZE: &str = "512";
const PROCESSES: &str = "512";
/// How much of the disk a command may fill, in bytes, and how much it must leave.
const DISK: u64 = 2 * 1024 * 1024 * 1024;
const DISK_LEFT: u64 = 256 * 1024 * 1024;
/// How often the disk is checked.
const LOOK: Duration = Duration::from_millis(100);
/// The exit statuses of ken-sandbox(1) itself.
const TIMED_OUT: i32 = 124;
const CANNOT_CONFINE: i32 = 125;
const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// A program to run.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: &'a Place,
    /// Folders that it can change.
    pub(crate) write: &'a [Place],
    /// `NAME=value`, besides the variables that the operator lets pass.
    pub(crate) env: Vec<String>,
    pub(crate) stdin: Option<&'a str>,
    /// The address that it can reach; `None` for no network.
    pub(crate) network: Option<Network<'a>>,
    pub(crate) timeout: Duration,
    /// How many bytes of each of its two outputs are kept, half from the beginning and half from the end.
    pub(crate) keep: usize,
}

/// The outcome of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    /// 128 + N after signal N.
    pub(crate) status: i32,
    pub(crate) timed_out: bool,
    /// Why it was stopped, other than by the timeout.
    pub(crate) stopped: Option<String>,
    pub(crate) stdout: Kept,
    pub(crate) stderr: Kept,
    pub(crate) duration: Duration,
}

/// What the program can touch, as text for a fingerprint.
pub(crate) fn profile(settings: &Settings, write: &[Place], network: Option<&Network<'_>>) -> String {
    let network = network.map_or_else(|| "no network".to_owned(), |network| network.shown().to_string());
    let write: Vec<String> = write.iter().map(Place::to_string).collect();
    let read: Vec<String> = settings.workspace.read.iter().map(|path| path.display().to_string()).collect();
    format!(
        "{network}; write {}; read {}; env {}; memory {MEMORY}; file size {FILE_SIZE}; processes {PROCESSES}",
        write.join(" "),
        read.join(" "),
        settings.workspace.env.join(" "),
    )
}

/// Runs the program to its end. An error says why it was not run.
pub(crate) fn run(settings: &Settings, job: &Job<'_>) -> Result<Ended, Error> {
    let begun = Instant::now();
    let network = job.network.as_ref();
    // The proxy ends with the command.
    let proxy = network.map(|network| network.open(settings)).transpose()?;
    let mut child = command(settings, job, proxy.as_ref())?
        .spawn()
        .map_err(|error| Error::unavailable(format!("ken-sandbox cannot be started: {error}")))?;
    let (done, outputs_done) = channel();
    let disk = Disk::new(settings);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (stopped, stdout, stderr) = std::thread::scope(|scope| {
        let also_done = done.clone();
        let out = scope.spawn(move || Kept::read(stdout, job.keep, &done));
        let err = scope.spawn(move || Kept::read(stderr, job.keep, &also_done));
        if let (Some(mut stdin), Some(text)) = (stdin, job.stdin) {
            scope.spawn(move || {
                // A command may do its work without having read all of its input.
                let _ = stdin.write_all(text.as_bytes());
            });
        }
        let stopped = watch(&mut child, &outputs_done, &disk);
        (stopped, out.join().unwrap_or_default(), err.join().unwrap_or_default())
    });
    let status = child.wait().map_err(|error| Error::unavailable(format!("ken-sandbox: {error}")))?;
    let status = status.code().unwrap_or(CANNOT_CONFINE);
    let duration = begun.elapsed();
    if matches!(status, CANNOT_CONFINE | CANNOT_EXECUTE | NOT_FOUND)
        && let Some(error) = own_error(&stderr)
    {
        return Err(error);
    }
    Ok(Ended { timed_out: status == TIMED_OUT && duration >= job.timeout, status, stopped, stdout, stderr, duration })
}

fn command(settings: &Settings, job: &Job<'_>, proxy: Option<&Proxy>) -> Result<Command, Error> {
    let sandbox = find_program("ken-sandbox")
        .ok_or_else(|| Error::unavailable("the program ken-sandbox is not installed, so no command can be run"))?;
    let mut command = Command::new(sandbox);
    command
        .args(["--with-parent", "--memory", MEMORY, "--file-size", FILE_SIZE, "--processes", PROCESSES])
        .arg("--timeout")
        .arg(job.timeout.as_secs_f64().to_string())
        .arg("--cwd")
        .arg(settings.root.join(job.cwd.as_str()))
        .arg("--read")
        .arg(&settings.root);
    let existing = settings.workspace.read.iter().filter(|path| path.exists());
    for path in existing {
        command.arg("--read").arg(path);
    }
    for folder in job.write {
        command.arg("--write").arg(settings.root.join(folder.as_str()));
    }
    for variable in settings.workspace.env.iter().chain(&job.env) {
        command.arg("--env").arg(variable);
    }
    if let Some(proxy) = proxy {
        command.arg("--reach").arg(proxy.address());
        for variable in proxy.variables() {
            command.arg("--env").arg(variable);
        }
    }
    let stdin = if job.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.arg("--").args(&job.argv).current_dir("/").stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Waits until both outputs are closed and the sandbox has ended; stops it when it fills the disk.
fn watch(child: &mut Child, outputs_done: &Receiver<()>, disk: &Disk) -> Option<String> {
    let (mut open, mut stopped) = (2, None);
    while open > 0 || !matches!(child.try_wait(), Ok(Some(_))) {
        match outputs_done.recv_timeout(if open > 0 { LOOK } else { LOOK / 20 }) {
            Ok(()) => open -= 1,
            Err(RecvTimeoutError::Timeout) => {}
            // Both outputs are closed, but the program still runs.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK / 20),
        }
        if stopped.is_none()
            && let Some(why) = disk.is_filled()
        {
            stopped = Some(why);
            terminate(child);
        }
    }
    stopped
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The process has not been waited for, so its number has not been reused.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// The disk, as it was when the command began. Others write to it too, so the limits are wide.
struct Disk {
    tree: Option<Tree>,
    free: u64,
}

impl Disk {
    fn new(settings: &Settings) -> Disk {
        let tree = Tree::open(&settings.root).ok();
        let free = tree.as_ref().and_then(Tree::free_bytes).unwrap_or_default();
        Disk { tree, free }
    }

    fn is_filled(&self) -> Option<String> {
        const MIB: u64 = 1024 * 1024;
        let most = limit().unwrap_or(DISK);
        let free = self.tree.as_ref()?.free_bytes()?;
        if self.free.saturating_sub(free) > most {
            return Some(format!("it has filled more than {} MiB of the disk", most / MIB));
        }
        let was_left = self.free > DISK_LEFT;
        (was_left && free < DISK_LEFT).then(|| format!("it has left less than {} MiB of the disk", DISK_LEFT / MIB))
    }
}

/// `KEN_CODER_DISK`, in MiB: a smaller limit.
fn limit() -> Option<u64> {
    let mib: u64 = std::env::var("KEN_CODER_DISK").ok()?.parse().ok()?;
    Some(mib.saturating_mul(1024 * 1024).min(DISK))
}

/// The error of ken-sandbox itself, which is one line of JSON; `None` if the output is that of the command.
fn own_error(stderr: &Kept) -> Option<Error> {
    let said: serde_json::Value = serde_json::from_slice(&stderr.head).ok()?;
    serde_json::from_value(said.get("error")?.clone()).ok()
}

/// The beginning and the end of an output.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// The length of the whole output, in bytes.
    pub(crate) bytes: u64,
}

impl Kept {
    /// Reads an output to its end, then sends a message to `done`. Keeps the first and the last `most / 2` bytes.
    fn read(from: Option<impl Read>, most: usize, done: &Sender<()>) -> Kept {
        let (mut kept, mut buffer) = (Kept::default(), [0; 16 * 1024]);
        if let Some(mut from) = from {
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => kept.add(buffer.get(..count).unwrap_or_default(), most / 2),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        let _ = done.send(());
        kept
    }

    fn add(&mut self, bytes: &[u8], half: usize) {
        self.bytes += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(half.saturating_sub(self.head.len())));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(half);
        self.tail.drain(..over);
    }

    /// The output as text, with the number of bytes that are missing in the middle.
    pub(crate) fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let tail = [front, back].concat();
        let left_out = self.bytes - (self.head.len() + tail.len()) as u64;
        match left_out {
            0 => String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned(),
            count => format!(
                "{}\n[{count} bytes are left out]\n{}",
                String::from_utf8_lossy(&self.head),
                String::from_utf8_lossy(&tail)
            ),
        }
    }
}

/// The folders that a command that starts in `cwd` can change: its repository or project, else all of them.
pub(crate) fn scope(cwd: &Place) -> Vec<Place> {
    match cwd.project() {
        Some(project) => vec![project],
        None => crate::place::FOLDERS.map(|folder| Place::default().join(folder)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn the_middle_of_a_flood_is_left_out() {
        let mut kept = Kept::default();
        for _ in 0..100 {
            kept.add(b"0123456789", 15);
        }
        assert_eq!(kept.text(), "012345678901234\n[970 bytes are left out]\n567890123456789");
        let mut small = Kept::default();
        small.add("grün".as_bytes(), 3);
        assert_eq!(small.text(), "grün");
    }
}
