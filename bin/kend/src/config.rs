//! Reads `ken.toml` and merges it into the built-in configuration. Reports all errors together, each with file, line
//! and key.

use std::ops::Range;
use std::path::{Path, PathBuf};

use ken_text::nearest;
use ken_trusted::Others;
use ken_types::config::{BUILTIN, Config};
use ken_types::places::CLIENT_SECRET;
use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::files;
use crate::problem::Problem;
use crate::secrets::{self, Secrets};

/// The maximum number of reported type errors.
const MAX_PROBLEMS: usize = 50;

/// The configuration in force: the built-in one, overridden by the user's files.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) secrets: Secrets,
    /// The user's file, used to find the line of a value.
    pub(crate) source: Source,
}

/// Reads `path`, and `secrets.env` and `client.secret` beside it. It is a problem if `path` does not exist and `needed` is true. Invalid
/// values are left out of the returned configuration so that the rest can be checked further.
pub(crate) fn load(path: &Path, needed: bool) -> (Loaded, Vec<Problem>) {
    let mut problems = Vec::new();
    if let Some(folder) = path.parent() {
        problems.extend(files::check_folder(folder).err());
    }
    let text = files::read(path, Others::MayRead).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    if needed && text.is_none() && problems.is_empty() {
        problems.push(Problem::whole(path, "there is no such file"));
    }
    let secrets = secrets::read(&path.with_file_name("secrets.env")).unwrap_or_else(|found| {
        problems.extend(found);
        Secrets::new()
    });
    let secrets = secrets::with_client_secret(secrets, &path.with_file_name(CLIENT_SECRET)).unwrap_or_else(|found| {
        problems.push(found);
        Secrets::new()
    });
    let source = Source { path: path.to_owned(), text };
    let (own, found) = check_types(&source);
    problems.extend(found);
    let config = merge(own).unwrap_or_else(|error| {
        problems.push(Problem::whole(path, error.message()));
        Config::default()
    });
    let loaded = Loaded { config, secrets, source };
    (loaded, problems)
}

/// The user's file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    path: PathBuf,
    text: Option<String>,
}

impl Source {
    /// Returns the path of the file, or `None` if there is no such file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.text.as_ref().map(|_| self.path.as_path())
    }

    /// Returns the text. A file that does not exist is the same as an empty one.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Returns a problem with the value of a key. Its line is that of the key or, if the file does not set it, of the
    /// innermost table around it.
    pub(crate) fn problem(&self, keys: &[&str], message: impl Into<String>) -> Problem {
        Problem {
            line: self.line_of(keys),
            key: keys.join(".").trim_end_matches('.').to_owned(),
            ..Problem::whole(&self.path, message)
        }
    }

    /// Whether the file sets a key.
    pub(crate) fn sets(&self, keys: &[&str]) -> bool {
        self.lines_to(keys).len() == keys.len()
    }

    fn line_of(&self, keys: &[&str]) -> Option<usize> {
        self.lines_to(keys).last().copied()
    }

    /// Returns the line of each of the keys on the way to a value, up to the first that is not there.
    fn lines_to(&self, keys: &[&str]) -> Vec<usize> {
        let text = self.text();
        let Ok(root) = DeTable::parse(text) else {
            return Vec::new();
        };
        let mut table = Some(root.get_ref());
        let lines = keys.iter().map_while(|key| {
            let (name, value) = table?.iter().find(|(name, _)| name.get_ref() == key)?;
            table = value.get_ref().as_table();
            Some(line_at(text, name.span().start))
        });
        lines.collect()
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// Finds all errors of syntax and type. serde stops at the first type error, so each invalid value is removed and the
/// rest is read again. Returns the valid rest, which is empty after a syntax error, and the problems.
fn check_types(source: &Source) -> (Table, Vec<Problem>) {
    let text = source.text();
    let (mut root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let shown = |error| source.error(text, String::new(), error);
        let mut problems: Vec<Problem> = errors.iter().map(shown).collect();
        problems.sort_by_key(|problem| problem.line);
        return (Table::new(), problems);
    }
    let mut problems = Vec::new();
    while problems.len() < MAX_PROBLEMS {
        let Err(error) = Config::deserialize(toml::de::Deserializer::from(root.clone())) else {
            let own = Table::deserialize(toml::de::Deserializer::from(root)).unwrap_or_default();
            problems.sort_by_key(|problem: &Problem| problem.line);
            return (own, problems);
        };
        let mut key = Vec::new();
        let removed = error.span().is_some_and(|span| remove(root.get_mut(), &span, &mut key));
        problems.push(source.error(text, key.join("."), &error));
        if !removed {
            break;
        }
    }
    (Table::new(), problems)
}

impl Source {
    fn error(&self, text: &str, key: String, error: &toml::de::Error) -> Problem {
        let problem = Problem {
            line: error.span().map(|span| line_at(text, span.start)),
            key,
            ..Problem::whole(&self.path, error.message().replace('\n', " "))
        };
        let names: Vec<&str> = error.message().split('`').skip(1).step_by(2).collect();
        match names.split_first() {
            Some((unknown, known)) if error.message().starts_with("unknown field") => Problem {
                hint: nearest(unknown, known.iter().copied()).map(|name| format!("did you mean `{name}`?")),
                message: String::from("unknown key"),
                ..problem
            },
            _ => problem,
        }
    }
}

/// Removes the innermost entry that contains `span`, and appends its keys to `path`. Returns false if there is none.
fn remove(table: &mut DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    let around = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    let found = table.iter().find_map(|(name, value)| {
        let inside = around(name.span()) || around(value.span()) || holds(value, &around);
        inside.then(|| (name.clone(), around(name.span())))
    });
    let Some((name, is_key)) = found else {
        return false;
    };
    path.push(name.get_ref().to_string());
    if !is_key
        && let Some(DeValue::Table(inner)) = table.get_mut(&name).map(Spanned::get_mut)
        && remove(inner, span, path)
    {
        return true;
    }
    table.remove(&name).is_some()
}

/// Whether an entry below a table contains the span. This searches inside, because the span of a `[header]` table does
/// not cover the lines below the header.
fn holds(value: &Spanned<DeValue<'_>>, around: &impl Fn(Range<usize>) -> bool) -> bool {
    let Some(table) = value.get_ref().as_table() else {
        return false;
    };
    table.iter().any(|(name, value)| around(name.span()) || around(value.span()) || holds(value, around))
}

/// Merges the user's file into the built-in one: sections and parts key by key, while any other value is replaced as a
/// whole.
fn merge(mut own: Table) -> Result<Config, toml::de::Error> {
    let mut all: Table = BUILTIN.parse()?;
    let builtin = own.get("kend").and_then(|kend| kend.get("builtin_parts"));
    if builtin.and_then(Value::as_bool) == Some(false) {
        all.remove("part");
    }
    if let Some(Value::Table(parts)) = own.remove("part") {
        let Value::Table(base) = all.entry("part").or_insert(Value::Table(Table::new())) else {
            return all.try_into();
        };
        leave_walls_of_other_programs(base, &parts);
        overlay(base, parts);
    }
    overlay(&mut all, own);
    all.try_into()
}

/// The walls of a built-in part fit the program of ken. Another program in its place gets those that its own entry names.
fn leave_walls_of_other_programs(base: &mut Table, own: &Table) {
    for (name, part) in own.iter().filter(|(_, part)| part.get("command").is_some()) {
        let is_own_program = part.get("command").and_then(Value::as_array).is_some_and(Vec::is_empty);
        if let Some(Value::Table(base)) = base.get_mut(name).filter(|_| !is_own_program) {
            base.remove("walls");
        }
    }
}

fn overlay(base: &mut Table, over: Table) {
    for (name, value) in over {
        match (base.get_mut(&name), value) {
            (Some(Value::Table(section)), Value::Table(keys)) => section.extend(keys),
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ken_types::config::Part;

    use super::*;

    fn merge(text: &str) -> Result<Config, toml::de::Error> {
        super::merge(text.parse()?)
    }

    fn problems(text: &str) -> Vec<String> {
        let source = Source { path: PathBuf::from("f"), text: Some(text.to_owned()) };
        check_types(&source).1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_built_in_file_has_every_key_with_its_default() {
        let file: Table = BUILTIN.parse().unwrap();
        let config: Config = BUILTIN.parse::<Table>().unwrap().try_into().unwrap();
        let sections = Config { part: Default::default(), ..config.clone() };
        assert_eq!(sections, Config::default());
        let defaults = Table::try_from(Config::default()).unwrap();
        for (section, keys) in &defaults {
            let Some(keys) = keys.as_table().filter(|_| section != "part") else {
                continue;
            };
            for key in keys.keys() {
                assert!(file[section].get(key).is_some(), "[{section}] {key} is not in etc/ken.toml");
            }
        }
        let store = Part {
            env: Vec::new(),
            secrets: Vec::new(),
            reads: Vec::new(),
            sockets: Default::default(),
            watchdog_ms: 0,
            walls: Default::default(),
            ..config.part["store"].clone()
        };
        assert_eq!(store, Part::default());
        // The built-in file enables the watchdog for every part of ken, while the type's default is 0.
        let watched = |part: &Part| part.watchdog_ms == config.part["store"].watchdog_ms;
        assert!(config.part["store"].watchdog_ms > 0 && config.part.values().all(watched));
        for key in Table::try_from(Part::default()).unwrap().keys() {
            assert!(file["part"]["store"].get(key).is_some(), "[part.store] {key} is not in etc/ken.toml");
        }
    }

    #[test]
    fn the_manual_has_every_key_with_its_default() {
        let manual = include_str!("../../../man/man5/ken.toml.5");
        let defaults = Table::try_from(Config::default()).unwrap();
        let part = Table::try_from(Part::default()).unwrap();
        let sections = defaults.iter().filter(|(name, _)| *name != "part");
        let keys = sections.flat_map(|(_, keys)| keys.as_table().unwrap());
        let keys = keys.flat_map(|(key, value)| match value.as_table() {
            Some(below) => below.iter().collect::<Vec<_>>(),
            None => vec![(key, value)],
        });
        for (key, value) in keys.chain(&part) {
            let value = value.to_string().replace('"', "\\(dq");
            let line = format!(".It Cm {key} No = {value}");
            assert!(manual.contains(&line), "{line} is not in ken.toml(5)");
        }
    }

    #[test]
    fn times_to_keep_data_are_days() {
        for value in ["\"0d\"", "-1", "1.5", "36501", "true"] {
            let text = format!("[retention]\nsessions = {value}\n");
            let expected = format!("f:2: retention.sessions: {value} is not a number of days: 0 (for ever) to 36500");
            assert_eq!(problems(&text), [expected]);
        }
        assert_eq!(problems("[retention]\nsessions = 0\nschedule_runs = 36500\n"), Vec::<String>::new());
    }

    #[test]
    fn every_error_has_its_line_its_key_and_the_nearest_name() {
        let text = "[gateway]\nprot = 1\nport = 70000\n\n[part.store]\nenabled = 3\nlimit = { m = 1 }\n\n[cat]\n[chat]\nwait_ms = -1\n";
        let found = problems(text);
        let starts = [
            "f:2: gateway.prot: unknown key; did you mean `port`?",
            "f:3: gateway.port: invalid value",
            "f:6: part.store.enabled: invalid type",
            "f:7: part.store.limit.m: unknown key; did you mean `n`?",
            "f:9: cat: unknown key; did you mean `chat`?",
            "f:11: chat.wait_ms: invalid value",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for start in starts {
            assert!(found.iter().any(|line| line.starts_with(start)), "{start}: {found:#?}");
        }
    }

    #[test]
    fn bad_syntax_says_where() {
        let found = problems("[gateway]\nport = \n[x\n");
        assert!(found[0].starts_with("f:2: "), "{found:#?}");
    }

    #[test]
    fn what_is_right_is_left_when_the_rest_is_wrong() {
        let source = Source {
            path: PathBuf::from("f"),
            text: Some(String::from("[gatway]\nport = 1\n[chat]\nwait_ms = 5\n[limits]\nrate_chat = 3\n")),
        };
        let (own, problems) = check_types(&source);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(super::merge(own).unwrap().chat.wait_ms, 5);
    }

    #[test]
    fn the_users_file_is_laid_over_key_by_key() {
        let config = merge("[part.store]\nnofile = 9\n[part.extra]\n[gateway]\nport = 1\n").unwrap();
        assert_eq!(config.part["store"].nofile, 9);
        assert_eq!(config.part["store"].sockets.len(), 1);
        assert_eq!(config.gateway.port, 1);
        assert_eq!(config.part.len(), merge("").unwrap().part.len() + 1);
        let own = merge("[kend]\nbuiltin_parts = false\n[part.extra]\n").unwrap();
        assert_eq!(own.part.keys().collect::<Vec<_>>(), ["extra"]);
        let other = merge("[part.store]\ncommand = [\"x\"]\n[part.agent]\ncommand = []\n").unwrap();
        assert_eq!(other.part["store"].walls, Default::default());
        assert_eq!(other.part["agent"].walls, config.part["agent"].walls);
        let named = merge("[part.store]\ncommand = [\"x\"]\nwalls = { calls = \"serve\" }\n").unwrap();
        assert_eq!(named.part["store"].walls.calls.name(), "serve");
        let socket = merge("[part.store]\nsockets = { wire = { tcp = \"127.0.0.1:1\" } }\n").unwrap();
        assert_eq!(socket.part["store"].sockets.len(), 1);
    }
}
