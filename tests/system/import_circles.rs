//! Checks that no two files of a crate import each other, directly or through others, except a module and its children.
//! `make lint` shows the output.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ken_tests::root;

/// The path of a module in its crate. The path of the root is empty.
type Module = Vec<String>;

/// For each file of a crate, the other files that it imports.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The module of a file below `src`: `a/b.rs` and `a/b/mod.rs` are both `a::b`.
fn module(file: &Path) -> Module {
    let mut path: Module = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_folder = path.last().is_some_and(|last| last == "mod");
    let is_root = path.len() == 1 && matches!(path[0].as_str(), "main" | "lib");
    if is_folder || is_root {
        path.pop();
    }
    path
}

fn sources(folder: &Path, below: &Path, found: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = below.join(path.file_name().unwrap());
        if path.is_dir() {
            sources(&path, &name, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let known = found.entry(module(&name)).or_default();
            known.push_str(&text);
        }
    }
}

/// The code of a file: without comments, and without its tests at the end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// The paths that a text names after `start`, one for each branch of a `{…}`.
fn paths(text: &str, start: &str) -> Vec<Module> {
    let begins = |at: usize| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':')
    };
    let found = text.match_indices(start).filter(|(at, _)| begins(*at));
    found.flat_map(|(at, _)| branches(&text[at + start.len()..])).collect()
}

fn branches(text: &str) -> Vec<Module> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let end = text.find(|letter| !is_name(letter)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if let Some(group) = rest.strip_prefix('{').filter(|_| name.is_empty()) {
        return split_group(group).into_iter().flat_map(|part| branches(part.trim())).collect();
    }
    let below = match rest.strip_prefix("::") {
        Some(rest) => branches(rest),
        None => vec![Module::new()],
    };
    let with_name = |path: Module| [vec![name.to_owned()], path].concat();
    below.into_iter().map(with_name).collect()
}

/// The comma-separated parts of a `{…}` group, up to its closing brace.
fn split_group(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&text[from..at]);
                return parts;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts
}

fn imports(source: &Path) -> Imports {
    let mut files = BTreeMap::new();
    sources(source, Path::new(""), &mut files);
    let of = |own: &Module, text: &str| {
        let code = code(text);
        let up = |path: Module| {
            let further = path.iter().take_while(|part| *part == "super").count();
            let above = own.len().saturating_sub(1 + further);
            [&own[..above], &path[further..]].concat()
        };
        let named = paths(&code, "crate::").into_iter();
        let named = named.chain(paths(&code, "super::").into_iter().map(up));
        let mut files_named: BTreeSet<Module> = named.map(|path| file_of(&path, &files)).collect();
        // A module and its children are allowed to import each other.
        files_named.retain(|other| !own.starts_with(other) && !other.starts_with(own));
        files_named
    };
    files.iter().map(|(own, text)| (own.clone(), of(own, text))).collect()
}

/// The file of an import path: the longest prefix of the path that is a module.
fn file_of(path: &[String], files: &BTreeMap<Module, String>) -> Module {
    let mut module = path.to_vec();
    while !module.is_empty() && !files.contains_key(&module) {
        module.pop();
    }
    module
}

/// All files that a file imports, directly or through others.
fn reached(imports: &Imports, from: &Module) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for other in &imports[module] {
            if seen.insert(other.clone()) {
                next.push(other);
            }
        }
    }
    seen
}

/// Each group of files that import each other in a circle.
fn circles(imports: &Imports) -> BTreeSet<Vec<Module>> {
    let reached: BTreeMap<_, _> = imports.keys().map(|own| (own, reached(imports, own))).collect();
    let group = |own: &Module| -> Vec<Module> {
        let back = |other: &&Module| reached[*other].contains(own);
        reached[own].iter().filter(back).cloned().collect()
    };
    let in_one = imports.keys().filter(|own| reached[own].contains(*own));
    in_one.map(group).collect()
}

#[test]
#[allow(clippy::print_stdout)]
fn no_files_import_each_other() {
    let mut found = 0;
    for folder in ["bin", "lib", "tools"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            let source = path.join("src");
            if !source.is_dir() {
                continue;
            }
            for circle in circles(&imports(&source)) {
                let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
                println!("{name}: {}", files.join(" "));
                found += 1;
            }
        }
    }
    println!("circles {found}");
    assert_eq!(found, 0, "files that import each other are listed above");
}

#[test]
fn circles_are_found_and_parents_are_not_circles() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\npub use a::A;");
    write("a.rs", "use crate::{b::{self, B}, A};\nuse crate::child::x;");
    write("b.rs", "// crate::a\nfn f() { crate::c::g() }");
    write("c.rs", "use super::d::D;\n#[cfg(test)]\nmod tests { use crate::a; }");
    write("d/mod.rs", "mod below;\nuse below::X;");
    write("d/below.rs", "use super::D;\nuse crate::d;");
    assert_eq!(circles(&imports(folder.path())), BTreeSet::new());
    write("d/below.rs", "use crate::a::A;");
    assert_eq!(circles(&imports(folder.path())), BTreeSet::new(), "d itself imports nothing");
    write("c.rs", "use super::d::below::D;");
    let found = circles(&imports(folder.path()));
    let names: Vec<String> = found.iter().flatten().map(|module| module.join("::")).collect();
    assert_eq!(names, ["a", "b", "c", "d::below"]);
}
