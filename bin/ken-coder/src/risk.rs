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
