//! Recognises command lines that are as free as one for a shell.

/// Programs that run a program or a text that their arguments name, whatever it does.
const WRAPPERS: [&str; 18] = [
    "awk", "busybox", "chroot", "doas", "env", "find", "gawk", "ionice", "nice", "nohup", "parallel", "setsid",
    "stdbuf", "sudo", "time", "timeout", "unshare", "xargs",
];
/// Programs that do so with some options, or with standard input. With a file they are like the program in that file.
const INTERPRETERS: [&str; 17] = [
    "ash", "bash", "csh", "dash", "fish", "ksh", "lua", "mksh", "node", "perl", "php", "python", "python3", "ruby",
    "sh", "tcsh", "zsh",
];

/// Whether the command line is as free as one for a shell: `sh -c`, `python3 -c`, `env`, `xargs`.
pub(crate) fn is_like_shell(argv: &[String], stdin: Option<&str>) -> bool {
    let Some((program, words)) = argv.split_first() else {
        return false;
    };
    let name = program.rsplit('/').next().unwrap_or_default();
    let has_code = || words.iter().any(|word| word.starts_with('-') && word.contains(['c', 'e', 'r']));
    WRAPPERS.contains(&name) || INTERPRETERS.contains(&name) && (stdin.is_some() || words.is_empty() || has_code())
}

#[cfg(test)]
mod tests {
    use super::is_like_shell;

    #[test]
    fn what_runs_a_text_is_like_a_shell() {
        for (line, stdin, expected) in [
            ("sh -c x", None, true),
            ("/bin/sh", None, true),
            ("sh ./build.sh", None, false),
            ("sh ./build.sh", Some("x"), true),
            ("python3 -c x", None, true),
            ("perl -e x", None, true),
            ("php -r x", None, true),
            ("python3 -m pytest", None, false),
            ("python3 recipe.py", None, false), // `c`, `e` and `r` count in options only
            ("env x", None, true),
            ("/usr/bin/xargs x", None, true),
            ("make -c", Some("x"), false),
            ("", None, false),
        ] {
            let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(is_like_shell(&argv, stdin), expected, "{line} {stdin:?}");
        }
    }
}
