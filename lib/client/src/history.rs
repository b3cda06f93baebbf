//! The prompts that a person has typed in the terminal client, in a file. Each line is the JSON of a prompt with its session, or
//! only of its text if an older client wrote it. Deleting a session for good removes its lines.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const MAX_ENTRIES: usize = 1_000;
/// The maximum number of sessions about which a start asks the gateway, which may be on another machine and count requests.
const MAX_ASKED: usize = 500;
/// If the file has more lines than this, it is rewritten without the oldest ones.
const MAX_LINES: usize = 4 * MAX_ENTRIES;

/// The history in the folder `tui` of a state directory.
#[derive(Debug, Clone)]
pub struct History {
    folder: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Text(String),
    Prompt { text: String, session: String },
}

impl Line {
    fn is_of(&self, session: &str) -> bool {
        matches!(self, Line::Prompt { session: known, .. } if known == session)
    }

    fn into_text(self) -> String {
        match self {
            Line::Text(text) | Line::Prompt { text, .. } => text,
        }
    }
}

impl History {
    pub fn below(state: &Path) -> History {
        History { folder: state.join("tui") }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("history.jsonl")
    }

    /// Makes the folder, and locks it against other clients until the file is dropped: a file that is rewritten would lose what another
    /// client adds meanwhile.
    fn lock(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let folder = File::open(&self.folder)?;
        folder.lock().map(|()| folder)
    }

    /// Returns the newest 1,000 prompts, the newest last; none if the file cannot be read.
    pub fn prompts(&self) -> Vec<String> {
        // A history that nobody can write is read without the lock.
        let _lock = self.lock();
        let mut lines = self.lines().unwrap_or_default();
        let count = lines.len();
        lines.drain(..count.saturating_sub(MAX_ENTRIES));
        if count > MAX_LINES {
            // If this fails, the file stays longer.
            _ = self.write(&lines);
        }
        lines.into_iter().map(Line::into_text).collect()
    }

    /// Adds a prompt.
    ///
    /// # Errors
    /// Those of the file.
    pub fn add(&self, text: &str, session: &str) -> io::Result<()> {
        let _lock = self.lock()?;
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.path())?;
        let line = Line::Prompt { text: text.to_owned(), session: session.to_owned() };
        file.write_all(format!("{}\n", serde_json::to_string(&line)?).as_bytes())
    }

    /// Removes the prompts of a session.
    ///
    /// # Errors
    /// Those of the file. That there is none is no error.
    pub fn forget(&self, session: &str) -> io::Result<()> {
        if !self.path().try_exists()? {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut lines = self.lines()?;
        let count = lines.len();
        lines.retain(|line| !line.is_of(session));
        if lines.len() < count { self.write(&lines) } else { Ok(()) }
    }

    /// Removes the prompts of the sessions that are deleted. The newest sessions are asked about, each once, until an answer is `None`: the
    /// gateway is away, or has been asked too much. Returns whether there was one.
    pub fn forget_deleted(&self, is_deleted: impl Fn(&str) -> Option<bool>) -> bool {
        let sessions: BTreeSet<String> = self.sessions().into_iter().collect();
        let asked = sessions.iter().rev().take(MAX_ASKED).map_while(|session| Some((session, is_deleted(session)?)));
        asked.filter(|(session, is_deleted)| *is_deleted && self.forget(session).is_ok()).count() > 0
    }

    /// Returns the sessions of the prompts, one for each; none if the file cannot be read.
    pub fn sessions(&self) -> Vec<String> {
        let session = |line| match line {
            Line::Prompt { session, .. } => Some(session),
            Line::Text(_) => None,
        };
        self.lines().unwrap_or_default().into_iter().filter_map(session).collect()
    }

    fn lines(&self) -> io::Result<Vec<Line>> {
        // A line that is damaged, perhaps not even UTF-8, hides no other.
        let bytes = fs::read(self.path())?;
        Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    fn write(&self, lines: &[Line]) -> io::Result<()> {
        let fresh = self.folder.join("history.new");
        let mut text = String::new();
        for line in lines {
            text.push_str(&serde_json::to_string(line)?);
            text.push('\n');
        }
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        fs::rename(fresh, self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> (std::path::PathBuf, History) {
        let name = format!("ken-history-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name);
        (folder.clone(), History::below(&folder))
    }

    #[test]
    fn two_clients_at_once_lose_no_prompt() {
        let (folder, history) = history();
        let add = |session: &str, after: &dyn Fn()| {
            for number in 0..100 {
                history.add(&number.to_string(), session).unwrap();
                after();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| add("tui-1", &|| {}));
            scope.spawn(|| add("tui-2", &|| history.forget("tui-2").unwrap()));
        });
        let all: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(history.prompts(), all);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn it_is_private_bounded_and_forgets_a_session() {
        let (folder, history) = history();
        assert_eq!(history.prompts(), Vec::<String>::new());
        history.forget("tui-1").unwrap();
        history.add("a\nb", "tui-1").unwrap();
        history.add("c", "tui-2").unwrap();
        let mut file = OpenOptions::new().append(true).open(history.path()).unwrap();
        file.write_all(b"\"an old line\"\nnot JSON\n\xff\n").unwrap();
        history.add("of the first", "tui-1").unwrap();
        assert_eq!(history.prompts(), ["a\nb", "c", "an old line", "of the first"]);
        assert_eq!(history.sessions(), ["tui-1", "tui-2", "tui-1"]);
        assert!(!history.forget_deleted(|session| Some(session == "tui-3")));
        assert!(!history.forget_deleted(|session| (session != "tui-2").then_some(true)), "the newest one comes first");
        assert!(history.forget_deleted(|session| Some(session == "tui-1")));
        assert_eq!(history.prompts(), ["c", "an old line"]);
        for number in 0..=MAX_LINES {
            history.add(&number.to_string(), "tui-3").unwrap();
        }
        let prompts = history.prompts();
        assert_eq!((prompts.len(), prompts.last().unwrap().as_str()), (MAX_ENTRIES, "4000"));
        assert_eq!(history.lines().unwrap().len(), MAX_ENTRIES);
        assert_eq!(history.prompts(), prompts);
        let about = fs::metadata(history.path()).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777, 0o600);
        fs::remove_dir_all(folder).unwrap();
    }
}
