//! Unified diffs, as `diff -u` and git write them. Every context line and every removed line must match exactly. If
//! they are not at the given position, they must occur at exactly one other place.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// `None` if the file is new.
    pub(crate) old: Option<String>,
    /// `None` if the file is removed.
    pub(crate) new: Option<String>,
    /// The permissions, if the patch sets them.
    pub(crate) mode: Option<u32>,
    hunks: Vec<Hunk>,
}

#[derive(Debug, PartialEq, Eq)]
struct Hunk {
    /// The number of the first line in the old file, from 1; 0 for an empty file.
    start: usize,
    old: Vec<String>,
    new: Vec<String>,
}

/// Parses a patch. The error says why the text is not a patch.
pub(crate) fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    // The last line feed is often missing, and is not needed.
    let text = &format!("{}\n", text.strip_suffix('\n').unwrap_or(text));
    let mut parser = Parser { lines: text.split_inclusive('\n').collect(), at: 0 };
    let mut files = Vec::new();
    while let Some(file) = parser.file()? {
        files.push(file);
    }
    if files.is_empty() { Err("there is no `--- ` and `+++ ` of a unified diff in it".to_owned()) } else { Ok(files) }
}

struct Parser<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let line = self.peek();
        self.at += 1;
        line
    }

    /// Parses the next file. Lines before it, which programs write around diffs, are skipped.
    fn file(&mut self) -> Result<Option<FilePatch>, String> {
        let (mut old, mut new, mut mode) = (None, None, None);
        let (mut is_git, mut is_new, mut is_gone, mut is_complete) = (false, false, false, false);
        while let Some(line) = self.peek() {
            let line = line.trim_end_matches(['\n', '\r']);
            if let Some(names) = line.strip_prefix("diff --git ") {
                if is_git {
                    break; // a file without a hunk: renamed, or only its mode has changed
                }
                is_git = true;
                (old, new) = git_names(names)?;
            } else if let Some(name) = line.strip_prefix("rename from ") {
                (old, is_complete) = (Some(unquoted(name)?), true);
            } else if let Some(name) = line.strip_prefix("rename to ") {
                new = Some(unquoted(name)?);
            } else if let Some(bits) = line.strip_prefix("new file mode ") {
                (is_new, is_complete, mode) = (true, true, permissions(bits)?);
            } else if line.starts_with("deleted file mode ") {
                (is_gone, is_complete) = (true, true);
            } else if let Some(bits) = line.strip_prefix("new mode ") {
                (is_complete, mode) = (true, permissions(bits)?);
            } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
                return Err(format!("line {}: a binary patch", self.at + 1));
            } else if let Some(name) = line.strip_prefix("--- ") {
                let next = self.lines.get(self.at + 1).copied().unwrap_or_default();
                if let Some(other) = next.trim_end_matches(['\n', '\r']).strip_prefix("+++ ") {
                    self.at += 2;
                    let (from, to) = (name_of(name, "a/")?, name_of(other, "b/")?);
                    if from.is_none() && to.is_none() {
                        return Err(format!("line {}: both sides are /dev/null", self.at));
                    }
                    let hunks = self.hunks()?;
                    return Ok(Some(FilePatch { old: from, new: to, mode, hunks }));
                }
            } else if line.starts_with("@@ ") {
                return Err(format!("line {}: a hunk before the names of its file", self.at + 1));
            }
            self.at += 1;
        }
        Ok((is_git && is_complete).then_some(FilePatch {
            old: old.filter(|_| !is_new),
            new: new.filter(|_| !is_gone),
            mode,
            hunks: Vec::new(),
        }))
    }

    fn hunks(&mut self) -> Result<Vec<Hunk>, String> {
        let mut hunks = Vec::new();
        while let Some(line) = self.peek().filter(|line| line.starts_with("@@ ")) {
            self.at += 1;
            let head = ranges(line).ok_or_else(|| format!("line {}: not the head of a hunk", self.at))?;
            hunks.push(self.hunk(head)?);
        }
        if hunks.is_empty() { Err(format!("line {}: a file without a hunk", self.at)) } else { Ok(hunks) }
    }

    fn hunk(&mut self, (start, mut old_left, mut new_left): (usize, usize, usize)) -> Result<Hunk, String> {
        let mut hunk = Hunk { start, old: Vec::new(), new: Vec::new() };
        while old_left > 0 || new_left > 0 {
            let number = self.at + 1;
            let line = self.next().ok_or_else(|| "the patch ends within a hunk".to_owned())?;
            let over = || format!("line {number}: more lines than the head of the hunk says");
            let (mark, rest) = match line.chars().next() {
                Some(mark @ (' ' | '-' | '+')) => (mark, line.get(1..).unwrap_or_default()),
                // Editors and models often remove the blank of an empty context line.
                Some('\n' | '\r') => (' ', line),
                Some('\\') => {
                    self.no_line_end(&mut hunk);
                    continue;
                }
                _ => return Err(format!("line {number}: not a line of a hunk")),
            };
            if mark != '+' {
                old_left = old_left.checked_sub(1).ok_or_else(over)?;
                hunk.old.push(rest.to_owned());
            }
            if mark != '-' {
                new_left = new_left.checked_sub(1).ok_or_else(over)?;
                hunk.new.push(rest.to_owned());
            }
        }
        if self.peek().is_some_and(|line| line.starts_with('\\')) {
            self.no_line_end(&mut hunk);
            self.at += 1;
        }
        Ok(hunk)
    }

    /// Handles `\ No newline at end of file`, which refers to the line before it.
    fn no_line_end(&self, hunk: &mut Hunk) {
        let before = self.lines.get(..self.at).unwrap_or_default().iter().rev().find(|line| !line.starts_with('\\'));
        let mark = before.and_then(|line| line.chars().next()).unwrap_or(' ');
        let strip = |lines: &mut Vec<String>| {
            if let Some(last) = lines.last_mut() {
                last.truncate(last.trim_end_matches('\n').len());
            }
        };
        if mark != '+' {
            strip(&mut hunk.old);
        }
        if mark != '-' {
            strip(&mut hunk.new);
        }
    }
}

/// Splits `a/x b/x` into two names. If they contain blanks, this works only if both are the same.
fn git_names(names: &str) -> Result<(Option<String>, Option<String>), String> {
    let half = names.len() / 2;
    match (names.get(..half), names.get(half + 1..)) {
        (Some(old), Some(new)) if old.get(2..) == new.get(2..) => Ok((name_of(old, "a/")?, name_of(new, "b/")?)),
        _ => Ok((None, None)),
    }
}

/// Returns the name without git's prefix and without the time that `diff -u` appends, or `None` for /dev/null.
fn name_of(name: &str, prefix: &str) -> Result<Option<String>, String> {
    let name = unquoted(name.split('\t').next().unwrap_or_default().trim_end())?;
    let name = name.strip_prefix(prefix).unwrap_or(&name);
    Ok((name != "/dev/null").then(|| name.to_owned()))
}

/// Returns a name that git has put in quotes, as it does with those that have other than plain characters (core.quotePath).
fn unquoted(name: &str) -> Result<String, String> {
    let Some(quoted) = name.strip_prefix('"') else {
        return Ok(name.to_owned());
    };
    let wrong = || format!("the name {name} is not quoted as git does it");
    let mut rest = quoted.strip_suffix('"').ok_or_else(wrong)?.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'"' => return Err(wrong()),
            b'\\' => match rest.next() {
                Some(b'a') => 7,
                Some(b'b') => 8,
                Some(b't') => b'\t',
                Some(b'n') => b'\n',
                Some(b'v') => 11,
                Some(b'f') => 12,
                Some(b'r') => b'\r',
                Some(same @ (b'"' | b'\\')) => same,
                Some(first @ b'0'..=b'3') => {
                    let digits = [Some(first), rest.next(), rest.next()];
                    digits.into_iter().try_fold(0, |sum, digit| {
                        let digit = digit.filter(|digit| (b'0'..=b'7').contains(digit)).ok_or_else(wrong)?;
                        Ok::<u8, String>(sum * 8 + (digit - b'0'))
                    })?
                }
                _ => return Err(wrong()),
            },
            plain => plain,
        });
    }
    String::from_utf8(bytes).map_err(|_| format!("the name {name} is not UTF-8"))
}

fn permissions(bits: &str) -> Result<Option<u32>, String> {
    match bits.trim() {
        "100644" => Ok(Some(0o644)),
        "100755" => Ok(Some(0o755)),
        other => Err(format!("the mode {other}: only 100644 and 100755 are applied")),
    }
}

/// Parses `@@ -1,3 +1,4 @@`: the first old line, and the numbers of old and new lines.
fn ranges(line: &str) -> Option<(usize, usize, usize)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let ((start, old), (_, new)) = (range(old)?, range(new)?);
    Some((start, old, new))
}

impl FilePatch {
    /// Returns the text of the file after the patch. The error says which hunk does not apply, and why.
    pub(crate) fn apply(&self, text: &str) -> Result<String, String> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let (mut done, mut next) = (String::with_capacity(text.len()), 0);
        for (number, hunk) in self.hunks.iter().enumerate() {
            let at = hunk
                .find(&lines, next)
                .map_err(|why| format!("hunk {} (line {}) does not apply: {why}", number + 1, hunk.start))?;
            done.extend(lines.get(next..at).unwrap_or_default().iter().copied());
            done.extend(hunk.new.iter().map(String::as_str));
            next = at + hunk.old.len();
        }
        done.extend(lines.get(next..).unwrap_or_default().iter().copied());
        Ok(done)
    }
}

impl Hunk {
    /// Returns the index of the line at which the hunk applies: the given position, or else the only place that
    /// matches.
    fn find(&self, lines: &[&str], from: usize) -> Result<usize, &'static str> {
        if self.old.is_empty() {
            // A hunk without old lines is inserted after the line that its header names.
            return if self.start >= from && self.start <= lines.len() {
                Ok(self.start)
            } else {
                Err("the file has fewer lines")
            };
        }
        let fits = |at: usize| {
            let there = lines.get(at..at + self.old.len());
            there.is_some_and(|there| there.iter().zip(&self.old).all(|(line, old)| *line == old.as_str()))
        };
        let named = self.start.saturating_sub(1);
        if named >= from && fits(named) {
            return Ok(named);
        }
        let last = lines.len().saturating_sub(self.old.len());
        let mut places = (from..=last).filter(|at| fits(*at));
        match (places.next(), places.next()) {
            (Some(at), None) => Ok(at),
            (Some(_), Some(_)) => Err("its lines are in several places, and not where it says"),
            (None, _) => Err("its lines are not in the file"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::parse;

    fn applied(patch: &str, text: &str) -> Result<String, String> {
        parse(patch)?[0].apply(text)
    }

    #[test]
    fn a_hunk_applies_where_it_says_or_at_the_only_place() {
        let patch = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n";
        assert_eq!(applied(patch, "a\nb\nc\nd\n").unwrap(), "a\nB\nc\nd\n");
        assert_eq!(applied(patch, "x\ny\na\nb\nc\n").unwrap(), "x\ny\na\nB\nc\n");
        assert!(applied(patch, "x\na\nb\nc\na\nb\nc\n").unwrap_err().contains("several places"));
        assert!(applied(patch, "a\nx\nc\n").unwrap_err().contains("not in the file"));
    }

    #[test]
    fn the_hunks_of_a_file_come_in_the_order_of_its_lines() {
        let before = "--- a/f\n+++ b/f\n@@ -3 +3 @@\n-c\n+C\n@@ -1 +1 @@\n-a\n+A\n";
        let why = applied(before, "a\nb\nc\nd\n").unwrap_err();
        assert_eq!(why, "hunk 2 (line 1) does not apply: its lines are not in the file");
        // The same line again, and lines that are inserted before it.
        let again = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+A\n@@ -1 +1 @@\n-a\n+B\n";
        assert!(applied(again, "a\nb\n").is_err());
        let inserted = "--- a/f\n+++ b/f\n@@ -3 +3 @@\n-c\n+C\n@@ -2,0 +2 @@\n+x\n";
        assert!(applied(inserted, "a\nb\nc\nd\n").is_err());
        let next = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+A\n@@ -2 +2 @@\n-b\n+B\n@@ -2,0 +3 @@\n+x\n";
        assert_eq!(applied(next, "a\nb\n").unwrap(), "A\nB\nx\n", "they may touch");
        let one_of_two = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+A\n@@ -2 +2 @@\n-b\n+B\n";
        assert_eq!(applied(one_of_two, "a\nb\nb\n").unwrap(), "A\nB\nb\n", "the place that it names counts");
        let (last, after) = ("--- a/f\n+++ b/f\n@@ -2,0 +3 @@\n+x\n", "--- a/f\n+++ b/f\n@@ -3,0 +4 @@\n+x\n");
        assert_eq!(applied(last, "a\nb\n").unwrap(), "a\nb\nx\n");
        assert!(applied(after, "a\nb\n").unwrap_err().contains("fewer lines"));
    }

    #[test]
    fn the_end_of_the_last_line_counts() {
        let patch =
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n";
        assert_eq!(applied(patch, "a").unwrap(), "b");
        assert!(applied(patch, "a\n").is_err());
        let ends = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n";
        assert_eq!(applied(ends, "a").unwrap(), "a\n");
    }

    #[test]
    fn new_removed_and_renamed_files() {
        let patch = "diff --git a/n b/n\nnew file mode 100755\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+x\n+y\n\
            diff --git a/old b/old\ndeleted file mode 100644\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n\
            diff --git a/p b/q\nsimilarity index 100%\nrename from p\nrename to q\n";
        let files = parse(patch).unwrap();
        assert_eq!((files[0].old.as_deref(), files[0].new.as_deref(), files[0].mode), (None, Some("n"), Some(0o755)));
        assert_eq!(files[0].apply("").unwrap(), "x\ny\n");
        assert_eq!((files[1].old.as_deref(), files[1].new.as_deref()), (Some("old"), None));
        assert_eq!(files[1].apply("z\n").unwrap(), "");
        assert_eq!((files[2].old.as_deref(), files[2].new.as_deref()), (Some("p"), Some("q")));
    }

    #[test]
    fn a_name_in_quotes_is_the_one_that_git_means() {
        let name =
            |name: &str| parse(&format!("--- a/x\n+++ {name}\n@@ -1 +1 @@\n-a\n+b\n")).map(|all| all[0].new.clone());
        for (quoted, plain) in [
            (r#""b/\303\266.txt""#, Some("\u{f6}.txt")),
            (r#""b/a\"b\\c\td\001""#, Some("a\"b\\c\td\u{1}")),
            (r#""b/""#, Some("")),
            (r#"b/a"b""#, Some("a\"b\"")),
            (r#""b/\303""#, None),
            (r#""b/\400""#, None),
            (r#""b/\08""#, None),
            (r#""b/\x""#, None),
            (r#""b/a"b""#, None),
            (r#""b/a\""#, None),
            (r#"""#, None),
        ] {
            assert_eq!(name(quoted).ok(), plain.map(|plain| Some(plain.to_owned())), "{quoted}");
        }
        let moved = "diff --git \"a/\\303\\266\" b/q\nrename from \"\\303\\266\"\nrename to q\n\
            diff --git \"a/\\303\\266\" \"b/\\303\\266\"\nnew file mode 100644\n";
        let names: Vec<_> = parse(moved).unwrap().into_iter().map(|file| (file.old, file.new)).collect();
        let [o, q] = ["\u{f6}", "q"].map(|name| Some(name.to_owned()));
        assert_eq!(names, [(o.clone(), q), (None, o)]);
    }

    /// What git writes without a hunk: only its own header says what becomes of a file.
    #[test]
    fn a_header_alone_is_a_change_if_it_is_one_of_git() {
        let head = "diff --git a/x b/x\n";
        for (text, expected) in [
            ("new file mode 100644\n", Some((None, Some("x"), Some(0o644)))),
            ("deleted file mode 100644\n", Some((Some("x"), None, None))),
            ("old mode 100644\nnew mode 100755\n", Some((Some("x"), Some("x"), Some(0o755)))),
            ("rename from p q\nrename to r\n", Some((Some("p q"), Some("r"), None))),
            ("index 1..2\n", None),
        ] {
            let all = format!("{head}{text}{head}{text}Some words\n");
            let files = parse(&all).unwrap_or_default();
            let found: Vec<_> =
                files.iter().map(|file| (file.old.as_deref(), file.new.as_deref(), file.mode)).collect();
            assert_eq!(
                found,
                expected.iter().copied().cycle().take(2 * usize::from(expected.is_some())).collect::<Vec<_>>()
            );
            assert!(files.iter().all(|file| file.hunks.is_empty()));
            // Words around a diff that only look like a header.
            assert!(parse(text).is_err(), "{text}");
        }
        for (names, expected) in [
            ("a/x b/x", (Some("x"), Some("x"))),
            ("a/p q b/p q", (Some("p q"), Some("p q"))),
            ("a/one b/two", (None, None)),
            ("a/one b/three", (None, None)),
        ] {
            let (old, new) = super::git_names(names).unwrap();
            assert_eq!((old.as_deref(), new.as_deref()), expected, "{names}");
        }
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for wrong in [
            "",
            "hello\n",
            "@@ -1 +1 @@\n-a\n+b\n",
            "--- a/f\n+++ b/f\n",
            "--- a/f\n+++ b/f\n@@ -1,2 +1,1 @@\n-a\n",
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n*a\n",
            "--- a/f\n+++ b/f\n@@ -x +1 @@\n",
            "diff --git a/f b/f\nGIT binary patch\n",
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/g b/g\nBinary files a/g and b/g differ\n",
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\nGIT binary patch\n",
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n\n@@ -3 +3 @@\n-c\n+d\n",
            "--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n",
            "diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(patch in "(--- a/f\n|\\+\\+\\+ b/f\n|@@ -[0-9],[0-9] \\+[0-9],[0-9] @@\n|[-+ ][a-c]\n|\\\\ No\n|\n){0,12}", text in "([a-c]\n){0,6}") {
            let _ = applied(&patch, &text);
        }

        #[test]
        fn a_diff_applies_to_what_it_was_made_of(old in "([a-d]\n){0,12}[a-d]?", new in "([a-d]\n){0,12}[a-d]?") {
            proptest::prop_assume!(old != new);
            let diff = similar::TextDiff::from_lines(&old, &new).unified_diff().header("a/f", "b/f").to_string();
            proptest::prop_assert_eq!(applied(&diff, &old), Ok(new));
        }
    }
}
