//! The files of the client: a log for diagnosis, and texts for the editor. Errors while writing them are ignored.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use ken_client::History;
use ken_client::chat::Image;
use ken_tool::open_regular;
use ken_types::Error;

use crate::message::{Attachment, Content};

const LOG_BYTES: u64 = 1024 * 1024;
const TEXT_BYTES: usize = 128 * 1024;
const IMAGE_BYTES: u64 = 10 * 1024 * 1024;

/// The folder `tui` of the state directory.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    folder: PathBuf,
    pub(crate) history: History,
}

impl Files {
    pub(crate) fn below(state: &Path) -> Files {
        Files { folder: state.join("tui"), history: History::below(state) }
    }

    fn make_folder(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)
    }

    /// Writes a line to the log. It names a category and never contains text of the conversation.
    pub(crate) fn log(&self, category: &'static str) {
        let file = self.make_folder().and_then(|()| private().append(true).open(self.folder.join("log.jsonl")));
        let Ok(mut file) = file else { return };
        let line = format!(
            "{{\"timestamp\":\"{:.3}\",\"pid\":{},\"event\":\"{category}\"}}\n",
            Timestamp::now(),
            std::process::id()
        );
        _ = file.write_all(line.as_bytes());
        if file.metadata().is_ok_and(|data| data.len() >= LOG_BYTES) {
            let name = |name: &str| self.folder.join(name);
            _ = fs::rename(name("log.1.jsonl"), name("log.2.jsonl"));
            _ = fs::rename(name("log.jsonl"), name("log.1.jsonl"));
        }
    }

    /// Creates a temporary file with a text for the editor. Only its owner can read it.
    pub(crate) fn draft(&self, text: &str) -> io::Result<PathBuf> {
        self.make_folder()?;
        let path = self.folder.join(format!("draft-{}.md", std::process::id()));
        private().write(true).truncate(true).open(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }
}

/// Returns options for creating a file that only its owner can read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

/// Reads a file as an attachment: an image, or a text of at most 128 KiB.
pub(crate) fn attachment(path: &str) -> Result<Attachment, Error> {
    let path = path.trim();
    let wrong = |message: String| Error::invalid(path, format!("{path}: {message}"));
    let expanded = match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    };
    let file = open_regular(&expanded).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(IMAGE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| wrong(error.to_string()))?;
    let name = expanded.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(image) = Image::of_bytes(&bytes) {
        if bytes.len() as u64 > IMAGE_BYTES {
            return Err(wrong("a picture of more than 10 MiB".to_owned()));
        }
        return Ok(Attachment { name, content: Content::Image(image) });
    }
    if bytes.len() > TEXT_BYTES {
        return Err(wrong("a text of more than 128 KiB".to_owned()));
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => {
            let content = Content::Text(text);
            Ok(Attachment { name, content })
        }
        _ => Err(wrong("neither a text nor a PNG, JPEG, GIF or WebP picture".to_owned())),
    }
}

/// The maximum number of files that are listed.
const MAX_LISTED: usize = 20_000;

/// Lists the files below a folder, relative to it, without hidden ones and those that git ignores. Links are not followed. Returns
/// also whether there are more.
pub(crate) fn listed(folder: &Path) -> (Vec<String>, bool) {
    let walk = ignore::WalkBuilder::new(folder).require_git(false).sort_by_file_path(Path::cmp).build();
    let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let paths = files.filter_map(|entry| entry.path().strip_prefix(folder).ok()?.to_str().map(str::to_owned));
    // A name with control characters cannot be shown as it is.
    let mut paths: Vec<String> = paths.filter(|path| !path.contains(char::is_control)).take(MAX_LISTED + 1).collect();
    let cut = paths.len() > MAX_LISTED;
    paths.truncate(MAX_LISTED);
    (paths, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::below(folder.path());
        files.make_folder().unwrap();
        let line = "{\"x\":1}\n".repeat(131_072);
        for _ in 0..5 {
            fs::write(folder.path().join("tui/log.jsonl"), &line).unwrap();
            files.log("start");
        }
        let mut names: Vec<String> = fs::read_dir(folder.path().join("tui"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["log.1.jsonl", "log.2.jsonl"]);
    }

    #[test]
    fn files_to_attach_are_pictures_or_texts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path.display().to_string()
        };
        let text = attachment(&write("a.txt", b"hello")).unwrap();
        assert_eq!(text.content, Content::Text("hello".to_owned()));
        let picture = attachment(&write("a.png", b"\x89PNG\r\n")).unwrap();
        assert!(matches!(picture.content, Content::Image(image) if image.media_type == "image/png"));
        for bytes in [&[0xff, 0xfe, 0][..], &[b'x'; TEXT_BYTES + 1]] {
            assert!(attachment(&write("b", bytes)).is_err());
        }
        // Opening a FIFO that nobody writes to would wait for ever.
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = attachment(&fifo.display().to_string()).unwrap_err();
        assert!(refused.message.ends_with("it is not a regular file"), "{refused}");
        assert!(attachment("/nowhere").unwrap_err().message.starts_with("/nowhere: "));
    }
    #[test]
    fn a_list_of_many_files_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..25_000 {
            fs::File::create(folder.path().join(format!("f{number:05}"))).unwrap();
        }
        let start = std::time::Instant::now();
        let (paths, cut) = listed(folder.path());
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(cut && paths.len() == MAX_LISTED, "{}", paths.len());
        assert_eq!((paths[0].as_str(), paths[MAX_LISTED - 1].as_str()), ("f00000", "f19999"));
    }
}
