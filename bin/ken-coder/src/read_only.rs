//! Recognises commands that only read. A command line is one of them if its program and all its options are on the list
//! below. Shell text, an abbreviated option, or a program that runs another one is not. Such a command runs without
//! approval, and the kernel prevents it from changing anything.

/// A program, with the options that affect only what it prints.
struct Program {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value.
    values: &'static str,
    /// Long options, separated by blanks.
    long: &'static str,
}

const fn program(name: &'static str, flags: &'static str, values: &'static str, long: &'static str) -> Program {
    Program { name, flags, values, long }
}

const PROGRAMS: [Program; 20] = [
    program("basename", "az", "s", ""),
    program("cat", "AbeEnstTuv", "", "number show-all"),
    program("cmp", "bls", "in", ""),
    program("cut", "sz", "bcdf", "complement"),
    program("diff", "abBcdeEinNpqrstuwy", "UC", "brief recursive unified"),
    program("dirname", "z", "", ""),
    program("du", "abchkms", "d", "human-readable max-depth summarize"),
    program("echo", "neE", "", ""),
    program("false", "", "", ""),
    program("file", "bihLkN", "", "brief mime-type"),
    program(
        "grep",
        "EFGHILPRTUabchilnoqrsvwxyz",
        "ABCem",
        "count exclude exclude-dir extended-regexp files-with-matches fixed-strings ignore-case include line-number only-matching recursive word-regexp",
    ),
    program("head", "qvz", "cn", "bytes lines"),
    program(
        "ls",
        "1ABCFGHLNQRSUXacdfghiklmnopqrstux",
        "I",
        "all almost-all directory human-readable recursive reverse",
    ),
    program("pwd", "LP", "", ""),
    program("sha256sum", "btz", "", ""),
    program("stat", "Lft", "c", "format dereference"),
    program("tail", "qvz", "cn", "bytes lines"),
    program("true", "", "", ""),
    program("uname", "amnprsv", "", ""),
    program("wc", "LclmwL", "", "bytes chars lines words"),
];

/// Whether a command line only reads. The program must be named without a path.
pub(crate) fn is_read_only(argv: &[String]) -> bool {
    let Some((name, words)) = argv.split_first() else {
        return false;
    };
    let program = PROGRAMS.iter().find(|program| program.name == name);
    program.is_some_and(|program| program.takes(words))
}

impl Program {
    fn takes(&self, words: &[String]) -> bool {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                return true;
            }
            if let Some(long) = word.strip_prefix("--") {
                let name = long.split('=').next().unwrap_or_default();
                if !self.long.split(' ').any(|known| known == name) {
                    return false;
                }
            } else if let Some(short) = word.strip_prefix('-') {
                match self.short(short) {
                    None => return false,
                    // The next word is the value, even if it looks like an option.
                    Some(true) => drop(words.next()),
                    Some(false) => {}
                }
            }
        }
        true
    }

    /// Returns whether the next word is the value of these short options, or `None` if one of them is not on the list.
    fn short(&self, options: &str) -> Option<bool> {
        let is_count = options.bytes().all(|byte| byte.is_ascii_digit());
        if is_count && matches!(self.name, "head" | "tail") {
            return Some(false);
        }
        for (at, option) in options.char_indices() {
            if self.values.contains(option) {
                return Some(at + option.len_utf8() == options.len());
            }
            if !self.flags.contains(option) {
                return None;
            }
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::is_read_only;

    fn is_read_only_line(line: &str) -> bool {
        is_read_only(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn looking_is_free() {
        for line in [
            "ls -la src",
            "grep -rn --include=*.rs TODO .",
            "head -20 a",
            "head -n 20 a",
            "tail -c100 a",
            "wc -l a b",
            "cat -- -n",
            "cat -",
            "diff -u a b",
            "stat -c %s a",
            "true",
        ] {
            assert!(is_read_only_line(line), "{line}");
        }
    }

    #[test]
    fn what_could_do_more_is_not() {
        for line in [
            "", "sh -c ls", "bash -c ls", "env ls", "xargs ls", "sudo ls", "timeout 5 ls", "nice ls", "busybox ls",
            "/bin/ls", "./ls", "sort -o a b", "uniq a b", "find . -delete", "find . -exec rm {} ;", "tail -f a",
            "cat -20 a", "wc -5 a", "tail --follow a", "grep --rec x .", "grep --color=always x", "head --line=3 a",
            "ls --hyperlink", "file -C -m x", "file --compile", "diff --output=x a b", "git status",
            "awk {system(\"x\")}", "sed -i s/a/b/ f", "tee x", "date -s now", "ls;rm", "Ls",
        ] {
            assert!(!is_read_only_line(line), "{line}");
        }
    }
}
