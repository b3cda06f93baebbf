//! A skill, and the list of all skills.

use std::path::{Path, PathBuf};

use ken_text::front_matter;
use ken_types::Error;
use serde::Serialize;

use crate::files::{SkillFile, beside, manifest};
use crate::source::SKILL_FILE;
use crate::{Accepted, State, sha256_hex};

/// The maximum size of a `SKILL.md`, in bytes.
pub const SKILL_BYTES: u64 = 64 * 1024;
const NAME_BYTES: usize = 64;
const DESCRIPTION_CHARACTERS: usize = 1024;
/// The skill that greets a new terminal session.
pub const GREETING: &str = "greeting";

/// A skill that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skill {
    pub name: String,
    /// The purpose of the skill, as its author describes it.
    pub description: String,
    pub state: State,
    /// The digest of the whole file, in hexadecimal; with further files, that of the list of all digests and paths.
    pub sha256: String,
    /// The other files in the folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SkillFile>,
    /// Absent for the copy in the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The content of the whole file.
    #[serde(skip)]
    pub text: String,
}

/// A skill that cannot be read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnreadableSkill {
    pub file: PathBuf,
    pub error: Error,
}

/// All skills that were found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Listing {
    /// Sorted by name. If several have the same name, the user's own comes first.
    pub skills: Vec<Skill>,
    pub broken: Vec<UnreadableSkill>,
}

impl Skill {
    /// Creates a skill from its text. Fails if its name differs from that of its folder.
    pub(crate) fn new(folder: &str, text: String, file: Option<PathBuf>) -> Result<Skill, Error> {
        let at_line = |line: usize| format!("line {line}");
        let matter =
            front_matter(&text).map_err(|(line, what)| Error::invalid(at_line(line), what))?.ok_or_else(|| {
                Error::invalid(at_line(1), "it does not begin with front matter: `---`, name, description, `---`")
            })?;
        let field = |name: &str| matter.texts.get(name).map(|text| text.trim()).unwrap_or_default();
        let (name, description) = (field("name"), field("description"));
        if !is_name(name) {
            let wanted = format!("{name:?} is not 1 to {NAME_BYTES} of a-z, 0-9 and single hyphens");
            return Err(Error::invalid("name", wanted));
        }
        if name != folder {
            return Err(Error::invalid("name", format!("{name:?} is not the name of its folder, {folder:?}")));
        }
        if !(1..=DESCRIPTION_CHARACTERS).contains(&description.chars().count()) {
            return Err(Error::invalid("description", format!("1 to {DESCRIPTION_CHARACTERS} characters")));
        }
        if matter.body.trim().is_empty() {
            return Err(Error::invalid("body", "nothing follows the front matter"));
        }
        Ok(Skill {
            name: name.to_owned(),
            description: description.split_whitespace().collect::<Vec<_>>().join(" "),
            state: State::New,
            sha256: sha256_hex(text.as_bytes()),
            files: Vec::new(),
            file,
            text,
        })
    }

    /// Reads a file `SKILL.md`, and what else is in its folder.
    pub fn read(file: &Path) -> Result<Skill, Error> {
        Skill::read_or_copy(file, &[])
    }

    /// Reads a skill as [`Skill::read`] does, but does not parse the text of a copy again.
    pub(crate) fn read_or_copy(file: &Path, copies: &[Skill]) -> Result<Skill, Error> {
        let bytes = ken_trusted::read_any(file, SKILL_BYTES)?;
        let text = String::from_utf8(bytes).map_err(|_| Error::invalid("", "not UTF-8"))?;
        let absolute = std::path::absolute(file).map_err(|error| Error::invalid("", error.to_string()))?;
        let folder = absolute.parent().unwrap_or(&absolute);
        // A path that ends in `..` has no name. The name of a link is not that of the folder to which it leads.
        let named = match folder.file_name() {
            Some(_) => folder.to_owned(),
            None => folder.canonicalize().map_err(|error| Error::invalid("", error.to_string()))?,
        };
        let name = named.file_name().unwrap_or_default().to_string_lossy();
        let mut skill = match copies.iter().find(|copy| copy.name == name && copy.text == text) {
            Some(copy) => Skill { file: Some(file.to_owned()), ..copy.clone() },
            None => Skill::new(&name, text, Some(file.to_owned()))?,
        };
        skill.files = beside(folder, SKILL_FILE)?;
        if !skill.files.is_empty() {
            skill.sha256 = sha256_hex(manifest(SKILL_FILE, &skill.text, &skill.files).as_bytes());
        }
        Ok(skill)
    }

    /// Reads one of the other files. Fails if it is no longer what it was when the skill was read.
    pub fn open(&self, path: &str) -> Result<Vec<u8>, Error> {
        let known = self.files.iter().find(|file| file.path == path);
        let folder = self.file.as_deref().and_then(Path::parent);
        let (Some(known), Some(folder)) = (known, folder) else {
            return Err(Error::not_found(format!("the skill {} has no file {path:?}", self.name)));
        };
        let content = ken_trusted::read_below(folder, Path::new(path), known.bytes)?;
        if sha256_hex(&content) != known.sha256 {
            return Err(Error::conflict(format!("{path} has just been changed")));
        }
        Ok(content)
    }

    /// Returns the text after the front matter.
    pub fn body(&self) -> &str {
        match front_matter(&self.text) {
            Ok(Some(matter)) => matter.body.trim(),
            _ => "",
        }
    }

    /// Sets the state, according to the copies in the program and the accepted texts.
    pub(crate) fn with_state(mut self, shipped: &[Skill], accepted: &Accepted) -> Skill {
        let of_name = shipped.iter().find(|skill| skill.name == self.name);
        let accepted = accepted.skills.get(&self.name);
        self.state = match (of_name, accepted) {
            (_, Some(digest)) if *digest == self.sha256 => State::Accepted,
            (Some(copy), _) if copy.sha256 == self.sha256 => State::Shipped,
            (None, None) => State::New,
            _ => State::Changed,
        };
        self
    }
}

impl Listing {
    /// Returns the skills that agents are given, one for each name.
    pub fn in_force(&self) -> impl Iterator<Item = &Skill> {
        let mut last = None;
        let usable = self.skills.iter().filter(|skill| skill.state.is_in_force());
        usable.filter(move |skill| last.replace(&skill.name) != Some(&skill.name))
    }

    /// Returns the skills that are not used until somebody accepts them.
    pub fn waiting(&self) -> impl Iterator<Item = &Skill> {
        self.skills.iter().filter(|skill| !skill.state.is_in_force())
    }
}

/// Whether a name is allowed by the public format of skills.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=NAME_BYTES).contains(&name.len()) && name.split('-').all(|word| !word.is_empty() && word.bytes().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_broken_skill_names_its_field() {
        let long = "x".repeat(1025);
        for (text, at) in [
            ("# No front matter".to_owned(), "line 1"),
            ("---\nname: a\n".to_owned(), "line 1"),
            ("---\nname: A b\ndescription: x\n---\nB".to_owned(), "name"),
            ("---\nname: a--b\ndescription: x\n---\nB".to_owned(), "name"),
            ("---\nname: other\ndescription: x\n---\nB".to_owned(), "name"),
            ("---\nname: a\n---\nB".to_owned(), "description"),
            (format!("---\nname: a\ndescription: {long}\n---\nB"), "description"),
            ("---\nname: a\ndescription: x\n---\n\n".to_owned(), "body"),
        ] {
            let error = Skill::new("a", text.clone(), None).unwrap_err();
            assert_eq!(error.at.as_deref(), Some(at), "{text}");
        }
    }

    #[test]
    fn of_one_name_the_first_in_force_counts() {
        let skill = |text: &str| {
            let text = format!("---\nname: a\ndescription: d\n---\n{text}");
            Skill::new("a", text, None).unwrap()
        };
        let shipped = [skill("shipped")];
        let state = |own: &Skill, accepted: &Accepted| own.clone().with_state(&shipped, accepted).state;
        let own = skill("own");
        let mut accepted = Accepted::default();
        assert_eq!(state(&own, &accepted), State::Changed);
        assert_eq!(state(&shipped[0], &accepted), State::Shipped);
        accepted.skills.insert("a".to_owned(), own.sha256.clone());
        assert_eq!(state(&own, &accepted), State::Accepted);
        let listing = Listing {
            skills: [&own, &shipped[0]].map(|skill| skill.clone().with_state(&shipped, &accepted)).to_vec(),
            broken: Vec::new(),
        };
        let bodies: Vec<&str> = listing.in_force().map(Skill::body).collect();
        assert_eq!(bodies, ["own"]);
    }
}
