//! Runs a program once with given input, and collects its output.

use std::io;
use std::process::Output;
use std::time::Duration;

use ken_tool::find_program;
use ken_types::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::time::timeout;

use crate::process::{Launch, command, described, kill_group, last_line};

/// Limits of a program.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub time: Duration,
    /// Maximum size of its standard output, in bytes.
    pub bytes: usize,
}

/// Number of bytes of standard error that are kept.
const ERROR_BYTES: usize = 4096;

/// Runs a program without a shell, in the current environment and in its own process group, and returns its standard output.
/// The program need not read its input.
///
/// Returns `unavailable` if it cannot be started or exits with a status other than 0, `deadline` if it takes too long, and
/// `too_large` if it writes too much. At either limit, and when the future is dropped, its process group is killed.
pub async fn run_once(words: &[String], input: &[u8], limits: Limits) -> Result<Vec<u8>, Error> {
    let Some((program, args)) = words.split_first() else {
        return Err(Error::invalid("", "there is no program to run"));
    };
    let missing = || Error::unavailable(format!("there is no program {program}"));
    let launch = Launch {
        program: find_program(program).ok_or_else(missing)?,
        args: args.to_vec(),
        environment: std::env::vars_os().collect(),
    };
    let child = command(&launch).spawn();
    let child = child.map_err(|error| Error::unavailable(format!("{program} does not start: {error}")))?;
    match timeout(limits.time, Running(child).finish(input, limits.bytes)).await {
        Err(_) => Err(Error::deadline(format!("{program} took longer than {:?} and was killed", limits.time))),
        Ok(Err(error)) => Err(Error::unavailable(format!("cannot communicate with {program}: {error}"))),
        Ok(Ok(None)) => {
            Err(Error::too_large(format!("{program} wrote more than {} bytes and was killed", limits.bytes)))
        }
        Ok(Ok(Some(end))) if !end.status.success() => {
            let stderr = String::from_utf8_lossy(&end.stderr);
            let why = last_line(&stderr).map(|line| format!(": {line}")).unwrap_or_default();
            Err(Error::unavailable(format!("{program} {}{why}", described(end.status))))
        }
        Ok(Ok(Some(end))) => Ok(end.stdout),
    }
}

/// A running program. Dropping it kills its process group.
struct Running(Child);

impl Running {
    /// Waits until the program ends, and returns its output with the beginning of its standard error. Returns `None` if it
    /// wrote more than `max` bytes.
    async fn finish(mut self, input: &[u8], max: usize) -> io::Result<Option<Output>> {
        let (stdin, stdout, stderr) = (self.0.stdin.take(), self.0.stdout.take(), self.0.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                let _ = stdin.write_all(input).await; // the program may exit without reading everything
            }
            io::Result::Ok(())
        };
        let read = async {
            let stdout = read(stdout, max + 1).await?;
            if stdout.len() > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(stdout) }
        };
        let (stdout, stderr) = match tokio::try_join!(write, read, drain(stderr)) {
            Ok(((), stdout, stderr)) => (stdout, stderr),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(None),
            Err(error) => return Err(error),
        };
        let status = self.0.wait().await?;
        Ok(Some(Output { status, stdout, stderr }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill_group(&self.0);
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(max as u64).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Reads to the end, so that the program never blocks, and returns the beginning.
async fn drain(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let Some(mut pipe) = pipe else {
        return Ok(Vec::new());
    };
    let kept = read(Some(&mut pipe), ERROR_BYTES).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    Ok(kept)
}
