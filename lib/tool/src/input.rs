//! Where the input of a tool comes from, and its limits.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use crate::cli::Cli;
use crate::{Code, Error, Filter, MAX_INPUT, Need};

const BYTE_ORDER_MARK: char = '\u{feff}';

pub(crate) enum Source<'a> {
    Inline(&'a str),
    /// The value of `--file`, or a FILE argument.
    File {
        path: &'a Path,
        is_flag: bool,
    },
    /// Standard input, named by `-` or read because no source is named.
    Stdin {
        named: bool,
    },
    /// No input: the flags are complete.
    Nothing,
}

impl<'a> Source<'a> {
    fn at(path: &'a Path, is_flag: bool) -> Source<'a> {
        match path {
            path if path == Path::new("-") => Source::Stdin { named: true },
            path => Source::File { path, is_flag },
        }
    }

    pub(crate) fn is_stdin_unnamed(&self) -> bool {
        matches!(self, Source::Stdin { named: false })
    }

    /// Opens the source for reading. The error names the file.
    pub(crate) fn open(&self) -> Result<Box<dyn Read + 'a>, Error> {
        match self {
            Source::Inline(text) => Ok(Box::new(text.as_bytes())),
            Source::File { path, .. } => Ok(Box::new(self.open_file(path)?)),
            Source::Stdin { .. } => Ok(Box::new(io::stdin().lock())),
            Source::Nothing => Ok(Box::new(io::empty())),
        }
    }

    /// The size of a regular file in bytes, limited to the maximum input; 0 if it is unknown.
    fn size(&self) -> usize {
        let file = match self {
            Source::File { path, .. } => path.metadata().ok(),
            Source::Stdin { .. } => io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .ok()
                .and_then(|descriptor| File::from(descriptor).metadata().ok()),
            _ => None,
        };
        file.map_or(0, |metadata| metadata.len().min(MAX_INPUT as u64) as usize + 1)
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Source::File { path, .. } => path.display().to_string(),
            Source::Stdin { .. } => "standard input".to_owned(),
            Source::Inline(_) | Source::Nothing => "the flags".to_owned(),
        }
    }

    pub(crate) fn unreadable(&self, error: &io::Error) -> Error {
        cannot_read(self.name(), error).at(match self {
            Source::File { is_flag: true, .. } => "--file",
            _ => "",
        })
    }

    fn open_file(&self, path: &Path) -> Result<File, Error> {
        let file = File::open(path).map_err(|error| self.unreadable(&error))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            Err(self.unreadable(&io::Error::other("it is a directory")))
        } else {
            Ok(file)
        }
    }
}

/// The error for a file that cannot be read.
pub fn unreadable(path: &Path, error: &io::Error) -> Error {
    cannot_read(path.display(), error)
}

fn cannot_read(name: impl std::fmt::Display, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::PermissionDenied => Code::Forbidden,
        _ => Code::Invalid,
    };
    Error::new(code, format!("cannot read {name}: {error}"))
}

/// The sources that the command line names, at least one. Several are possible only as FILE arguments.
pub(crate) fn choose<F: Filter>(cli: &Cli<F>) -> Result<Vec<Source<'_>>, Error> {
    let inline = cli.filter.inline().map(Source::Inline);
    let flag = cli.common.file.as_deref().map(|path| Source::at(path, true));
    let files: Vec<Source<'_>> = cli.common.files.iter().map(|path| Source::at(path, false)).collect();
    let mut named = inline.into_iter().chain(flag);
    match (named.next(), named.next(), files.is_empty()) {
        (Some(source), None, true) => Ok(vec![source]),
        (None, _, false) => Ok(files),
        (Some(_), ..) => Err(Error::invalid("", "more than one input is named")
            .hint("give one of the inline flag, --file PATH, or FILE arguments")),
        // With --lines, each line is an input, even if the flags are complete.
        (None, _, true) if cli.filter.need() == Need::Nothing && !cli.common.lines => Ok(vec![Source::Nothing]),
        (None, _, true) => Ok(vec![Source::Stdin { named: false }]),
    }
}

/// The whole input as text, at most [`MAX_INPUT`] bytes.
pub(crate) fn read(source: &Source<'_>, need: Need) -> Result<String, Error> {
    use io::IsTerminal;
    if need == Need::Optional && source.is_stdin_unnamed() && io::stdin().is_terminal() {
        return Ok(String::new());
    }
    let mut bytes = Vec::with_capacity(source.size());
    let mut reader = source.open()?.take(MAX_INPUT as u64 + 1);
    reader.read_to_end(&mut bytes).map_err(|error| source.unreadable(&error))?;
    if bytes.len() > MAX_INPUT {
        return Err(too_large());
    }
    text(bytes)
}

pub(crate) fn too_large() -> Error {
    Error::too_large(format!("the input is larger than {MAX_INPUT} bytes"))
}

/// Decodes UTF-8. The byte order mark that some editors put before a JSON document is removed; before plain text it stays,
/// so that offsets in the text are offsets in the file.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, Error> {
    let mut text = String::from_utf8(bytes)
        .map_err(|error| Error::invalid("", format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to())))?;
    let marked = text.strip_prefix(BYTE_ORDER_MARK);
    if marked.is_some_and(|rest| rest.trim_start().starts_with('{')) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

/// Refuses a blank input where one is needed.
pub(crate) fn check_blank(text: &str, need: Need) -> Result<(), Error> {
    if need == Need::Input && text.trim().is_empty() {
        return Err(Error::invalid("", "the input is empty"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn the_mark_before_a_document_is_no_part_of_it() {
        for (bytes, read) in [
            ("\u{feff}{}", "{}"),
            ("\u{feff} \n{\"a\":1}", " \n{\"a\":1}"),
            ("\u{feff}plain {}", "\u{feff}plain {}"),
            ("\u{feff}", "\u{feff}"),
            ("{\"a\":\"\u{feff}\"}", "{\"a\":\"\u{feff}\"}"),
        ] {
            assert_eq!(text(bytes.as_bytes().to_vec()).unwrap(), read);
        }
    }
}
