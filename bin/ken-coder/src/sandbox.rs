//! Runs a program in ken-sandbox(1), with limits on its output, time and disk space.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ken_tool::{Error, find_program};
use ken_types::error::{JSON_ERRORS, reported};
use rustix::fs::{MemfdFlags, Mode, OFlags, fstatvfs, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::confine::{Access, with_tree};
use crate::network::{Network, Proxy};
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::Tree;

/// The limits of a command: data memory per process and size per file, both in MiB, and the number of processes.
const MAX_MEMORY_MIB: &str = "4096";
const MAX_FILE_SIZE_MIB: &str = "512";
const MAX_PROCESSES: &str = "512";
/// How many bytes of the disk a command can fill, and how many must stay free.
const MAX_DISK_BYTES: u64 = 2 * 1024 * 1024 * 1024;
const MIN_DISK_LEFT_BYTES: u64 = 256 * 1024 * 1024;
/// How often the disk space is checked.
const DISK_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The exit statuses of ken-sandbox(1) itself.
const TIMED_OUT: i32 = 124;
const CANNOT_CONFINE: i32 = 125;
const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// A program to run.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: &'a RelPath,
    /// The folders that it can change.
    pub(crate) write: &'a [RelPath],
    /// Whether it is kept from changing what makes git run programs, in the repositories in those folders.
    pub(crate) protects_git: bool,
    /// Variables as `NAME=value`, besides those that the operator's configuration passes on.
    pub(crate) env: Vec<String>,
    pub(crate) stdin: Option<&'a str>,
    /// The network that it can reach; `None` for no network.
    pub(crate) network: Option<Network<'a>>,
    pub(crate) timeout: Duration,
    /// How many bytes of each of its two outputs are kept: half from the start and half from the end.
    pub(crate) keep: usize,
    /// Set for ken's own programs.
    pub(crate) own: Option<Own<'a>>,
}

/// What a program that ken starts for itself gets instead of what the operator's configuration grants to commands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own<'a> {
    /// A folder outside the workspace that it can change.
    pub(crate) folder: &'a Path,
    /// The only files and folders that it can execute. Empty: what every command can execute.
    pub(crate) execute: &'a [PathBuf],
}

/// The folders of a job, opened once. The sandbox gets these descriptors and no paths: whatever is renamed later, they stay
/// the folders that were checked.
#[derive(Debug)]
pub(crate) struct Granted {
    root: OwnedFd,
    cwd: OwnedFd,
    write: Vec<OwnedFd>,
    /// Paths below the folders that it can change, each with the number of its folder, that stay as they are.
    read_only: Vec<(usize, String)>,
}

impl Granted {
    pub(crate) fn open(tree: &Tree, cwd: &RelPath, write: &[RelPath]) -> Result<Granted, Error> {
        let write: Result<_, _> = write.iter().map(|folder| tree.grant(folder)).collect();
        Ok(Granted {
            root: tree.grant(&RelPath::default())?,
            cwd: tree.grant(cwd)?,
            write: write?,
            read_only: Vec::new(),
        })
    }

    /// Keeps the command from changing these places in the folders of `write`.
    pub(crate) fn protect<'a>(&mut self, write: &[RelPath], places: impl Iterator<Item = &'a RelPath>) {
        for place in places {
            let folder = write.iter().enumerate().find(|(_, folder)| place.is_in(folder) && place != *folder);
            self.read_only.extend(folder.and_then(|(number, folder)| {
                let below = place.as_str().strip_prefix(folder.as_str())?.trim_start_matches('/');
                Some((number, below.to_owned()))
            }));
        }
    }

    /// Returns the folders at whose paths something else is by now.
    pub(crate) fn moved(&self, tree: &Tree, cwd: &RelPath, write: &[RelPath]) -> Vec<RelPath> {
        let folders = self.write.iter().zip(write).chain([(&self.cwd, cwd)]);
        let moved = folders.filter(|(granted, place)| !tree.is_still(place, granted));
        moved.map(|(_, place)| place.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        [&self.root, &self.cwd].into_iter().chain(&self.write)
    }
}

/// Which walls ken-sandbox(1) can set up on this system.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Walls {
    /// Whether parts of a writable folder can be made read-only, such as the configuration of git repositories.
    pub(crate) mounts: bool,
}

impl Walls {
    /// Fails if no command can be run here.
    pub(crate) fn find() -> Result<Walls, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::unavailable(format!("ken-sandbox cannot be used: {error}"));
        let found = program()?.arg("--walls").output().map_err(|error| failed(&error))?;
        match serde_json::from_slice(&found.stdout) {
            Ok(walls) => Ok(walls),
            Err(error) => Err(reported(&found.stderr).unwrap_or_else(|| failed(&error))),
        }
    }
}

fn program() -> Result<Command, Error> {
    let sandbox = find_program("ken-sandbox")
        .ok_or_else(|| Error::unavailable("the program ken-sandbox is not installed, so no command can be run"))?;
    let mut command = Command::new(sandbox);
    // The sandbox does not pass the variable on to its command.
    command.current_dir("/").env(JSON_ERRORS.0, JSON_ERRORS.1);
    Ok(command)
}

/// The outcome of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit status, or 128 + N after signal N.
    pub(crate) status: i32,
    pub(crate) timed_out: bool,
    /// Why it was stopped, if not by the timeout.
    pub(crate) stopped: Option<String>,
    pub(crate) stdout: CapturedOutput,
    pub(crate) stderr: CapturedOutput,
    pub(crate) duration: Duration,
}

/// Describes what the program can access, as text for a fingerprint.
pub(crate) fn profile(settings: &Settings, write: &[RelPath], network: Option<&Network<'_>>) -> String {
    let network = network.map_or_else(|| "no network".to_owned(), |network| network.describe().to_string());
    let write: Vec<String> = write.iter().map(RelPath::to_string).collect();
    let read: Vec<String> = settings.workspace.read.iter().map(|path| path.display().to_string()).collect();
    format!(
        "{network}; write {}; read {}; env {}; memory {MAX_MEMORY_MIB}; file size {MAX_FILE_SIZE_MIB}; processes {MAX_PROCESSES}",
        write.join(" "),
        read.join(" "),
        settings.workspace.env.join(" "),
    )
}

/// Runs a program that can write nothing to its end. Fails if it cannot be started.
pub(crate) fn run(settings: &Settings, job: &Job<'_>) -> Result<Ended, Error> {
    let granted = with_tree(settings, Access::Read, |tree| Granted::open(tree, job.cwd, job.write))?;
    run_in(settings, job, &granted, None)
}

/// Runs a program in folders that are open already, to its end. The sandbox keeps `lock` open: even if this process is
/// killed, no other command gets it while that one runs.
pub(crate) fn run_in(
    settings: &Settings,
    job: &Job<'_>,
    granted: &Granted,
    lock: Option<&OwnedFd>,
) -> Result<Ended, Error> {
    let begun = Instant::now();
    let network = job.network.as_ref();
    // The proxy runs until the command has ended.
    let proxy = network.map(|network| network.open(settings)).transpose()?;
    let variables = memory_file(&variables(settings, job, proxy.as_ref()))
        .map_err(|error| Error::unavailable(format!("the variables of the command: {error}")))?;
    let mut command = command(settings, job, granted, &variables, proxy.as_ref())?;
    for descriptor in granted.descriptors().chain(lock).chain([&variables]) {
        fcntl_setfd(descriptor, FdFlags::empty())
            .map_err(|errno| Error::unavailable(format!("descriptors: {errno}")))?;
    }
    let mut child =
        command.spawn().map_err(|error| Error::unavailable(format!("ken-sandbox cannot be started: {error}")))?;
    let (done, outputs_done) = channel();
    let disk = Disk::new(granted);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (stopped, stdout, stderr) = std::thread::scope(|scope| {
        let also_done = done.clone();
        let out = scope.spawn(move || CapturedOutput::read(stdout, job.keep, &done));
        let err = scope.spawn(move || CapturedOutput::read(stderr, job.keep, &also_done));
        if let (Some(mut stdin), Some(text)) = (stdin, job.stdin) {
            scope.spawn(move || {
                // An error is ignored, because a command need not read all of its input.
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
        && let Some(error) = reported(&stderr.head)
    {
        return Err(error);
    }
    Ok(Ended { timed_out: status == TIMED_OUT && duration >= job.timeout, status, stopped, stdout, stderr, duration })
}

/// Returns the variables of a job, each as `NAME=value`, or as `NAME` where the one of this process is passed on.
fn variables(settings: &Settings, job: &Job<'_>, proxy: Option<&Proxy>) -> Vec<String> {
    // A variable of git could name a configuration, and with it a program.
    let configured = settings.workspace.env.iter().filter(|variable| !variable.starts_with("GIT_"));
    let configured = configured.filter(|_| job.own.is_none());
    configured.chain(&job.env).cloned().chain(proxy.iter().flat_map(|proxy| proxy.variables())).collect()
}

/// Returns a memory file with these variables. They can hold secrets of the operator and the password of the proxy, and every user of the
/// machine can read the arguments of ken-sandbox. In its environment, a name such as `LD_PRELOAD` would have an effect on ken-sandbox itself.
fn memory_file(variables: &[String]) -> std::io::Result<OwnedFd> {
    if variables.iter().any(|variable| variable.contains('\0')) {
        return Err(std::io::Error::other("one of them holds a NUL byte"));
    }
    let mut file = File::from(memfd_create("variables", MemfdFlags::CLOEXEC)?);
    file.write_all(variables.join("\0").as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

fn command(
    settings: &Settings,
    job: &Job<'_>,
    granted: &Granted,
    variables: &OwnedFd,
    proxy: Option<&Proxy>,
) -> Result<Command, Error> {
    let number = |descriptor: &OwnedFd| descriptor.as_raw_fd().to_string();
    let mut command = program()?;
    command
        .args([
            "--with-parent", "--memory", MAX_MEMORY_MIB, "--file-size", MAX_FILE_SIZE_MIB, "--processes", MAX_PROCESSES,
        ])
        .args(["--timeout", &job.timeout.as_secs_f64().to_string()])
        .args(["--cwd-fd", &number(&granted.cwd), "--read-fd", &number(&granted.root)])
        .arg("--except")
        .arg(&settings.root);
    match &job.own {
        Some(own) => {
            command.arg("--write").arg(own.folder);
            for path in own.execute {
                command.arg("--execute").arg(path);
            }
        }
        None => {
            for own in &settings.own {
                command.arg("--keep-out").arg(own);
            }
            for path in settings.workspace.read.iter().filter(|path| path.exists()) {
                command.arg("--read").arg(path);
            }
        }
    }
    for folder in &granted.write {
        command.args(["--write-fd", &number(folder)]);
    }
    if job.protects_git {
        command.arg("--protect-git");
        for (folder, path) in granted.read_only.iter().filter_map(|(at, path)| Some((granted.write.get(*at)?, path))) {
            command.arg("--read-only-below").arg(format!("{}:{path}", number(folder)));
        }
    }
    command.args(["--env-fd", &number(variables)]);
    if let Some(proxy) = proxy {
        command.arg("--reach").arg(proxy.address());
    }
    let stdin = if job.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.arg("--").args(&job.argv).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Waits until both outputs are closed and the sandbox has ended. Stops the program if it fills the disk, and then
/// returns the reason.
fn watch(child: &mut Child, outputs_done: &Receiver<()>, disk: &Disk) -> Option<String> {
    let (mut open, mut stopped) = (2, None);
    // If it cannot be waited for, the caller reports that.
    while open > 0 || matches!(child.try_wait(), Ok(None)) {
        match outputs_done.recv_timeout(if open > 0 { DISK_CHECK_INTERVAL } else { DISK_CHECK_INTERVAL / 20 }) {
            Ok(()) => open -= 1,
            Err(RecvTimeoutError::Timeout) => {}
            // Both outputs are closed, but the sandbox still runs.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(DISK_CHECK_INTERVAL / 20),
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
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The process has not been waited for, so its pid has not been reused.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// The free disk space when the command started, in the workspace and in the folder for temporary files, which can be on
/// different file systems. Other programs write to them too, so the limits are generous.
struct Disk(Vec<(OwnedFd, u64)>);

impl Disk {
    fn new(granted: &Granted) -> Disk {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let temporary = rustix::fs::open(std::env::temp_dir(), flags, Mode::empty()).ok();
        let folders = granted.root.try_clone().ok().into_iter().chain(temporary);
        Disk(folders.filter_map(|folder| free_bytes(&folder).map(|free| (folder, free))).collect())
    }

    fn is_filled(&self) -> Option<String> {
        const MIB: u64 = 1024 * 1024;
        let max = limit().unwrap_or(MAX_DISK_BYTES);
        self.0.iter().find_map(|(folder, before)| {
            let free = free_bytes(folder)?;
            if before.saturating_sub(free) > max {
                return Some(format!("it has filled more than {} MiB of the disk", max / MIB));
            }
            let was_left = *before > MIN_DISK_LEFT_BYTES;
            (was_left && free < MIN_DISK_LEFT_BYTES)
                .then(|| format!("it has left less than {} MiB of the disk", MIN_DISK_LEFT_BYTES / MIB))
        })
    }
}

/// Returns how many bytes an ordinary user can still write to the file system of a folder.
fn free_bytes(folder: &OwnedFd) -> Option<u64> {
    let about = fstatvfs(folder).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Returns the limit that `KEN_CODER_DISK` sets in MiB, as bytes, but at most [`MAX_DISK_BYTES`].
fn limit() -> Option<u64> {
    let mib: u64 = std::env::var("KEN_CODER_DISK").ok()?.parse().ok()?;
    Some(mib.saturating_mul(1024 * 1024).min(MAX_DISK_BYTES))
}

/// The start and the end of an output.
#[derive(Debug, Default)]
pub(crate) struct CapturedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// The length of the whole output, in bytes.
    pub(crate) bytes: u64,
}

impl CapturedOutput {
    /// Reads an output to its end, then sends a message to `done`. Keeps the first and the last `max / 2` bytes.
    fn read(from: Option<impl Read>, max: usize, done: &Sender<()>) -> CapturedOutput {
        let (mut kept, mut buffer) = (CapturedOutput::default(), [0; 16 * 1024]);
        if let Some(mut from) = from {
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => kept.add(buffer.get(..count).unwrap_or_default(), max / 2),
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

    /// Returns the output as text. It says how many bytes are missing in the middle.
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

#[cfg(test)]
mod tests {
    use super::CapturedOutput;

    #[test]
    fn the_middle_of_a_flood_is_left_out() {
        let mut kept = CapturedOutput::default();
        for _ in 0..100 {
            kept.add(b"0123456789", 15);
        }
        assert_eq!(kept.text(), "012345678901234\n[970 bytes are left out]\n567890123456789");
        let mut small = CapturedOutput::default();
        small.add("grün".as_bytes(), 3);
        assert_eq!(small.text(), "grün");
    }
}
