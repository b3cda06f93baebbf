//! `ken completions`: a script that completes the commands, flags and values of `ken` in a shell.

use clap::Args;
use clap_complete::Shell;
use ken_types::Error;

use crate::output::print_text;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// bash, zsh or fish
    pub(crate) shell: Shell,
}

/// What clap's scripts lack: the values that `ken complete` prints. They replace files, which no such argument takes.
const BASH: &str = r#"
_ken_values() {
    _ken "$@"
    local IFS=$'\n' line values=()
    for line in $(ken complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); do
        values+=("${line%%$'\t'*}")
    done
    if [[ ${#values[@]} -gt 0 ]]; then
        COMPREPLY=("${values[@]}")
    fi
}
complete -F _ken_values -o nosort -o bashdefault -o default ken
"#;

const ZSH: &str = r#"
_ken_values() {
    local -a typed lines values abouts
    typed=(${(z)LBUFFER})
    [[ $LBUFFER == *' ' ]] && typed+=('')
    lines=(${(f)"$(ken complete -- "${(@)typed[2,-1]}" 2>/dev/null)"})
    if (( ! $#lines )); then
        _default
        return
    fi
    values=(${lines%%$'\t'*})
    abouts=(${lines/$'\t'/  })
    compadd -l -d abouts -a values
}
"#;

const FISH: &str = r#"
function __ken_values
    set -l words (commandline -opc) (commandline -ct)
    ken complete -- $words[2..] 2>/dev/null
end
complete -c ken -n 'count (__ken_values) >/dev/null' -f -k -a "(__ken_values)"
"#;

/// The options with such values. In fish, only the line of an option itself completes its value.
const FISH_OPTIONS: [&str; 3] = [" -l session ", " -l model ", " -l deliver-to "];

/// Prints the completion script. `ken` is the command line of this program, as clap describes it.
pub(crate) fn run(args: &Completions, mut ken: clap::Command) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut ken, "ken", &mut script);
    let script = String::from_utf8(script).map_err(|error| Error::internal(error.to_string()))?;
    print_text(&with_values(args.shell, &script))
}

fn with_values(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{BASH}"),
        // The function has to be known before the end of the script, which completes when it is loaded by its name.
        Shell::Zsh => {
            let script = script.replace(":_default'", ":_ken_values'");
            match script.split_once("\n_ken() {") {
                Some((head, rest)) => format!("{head}\n{ZSH}\n_ken() {{{rest}"),
                None => script,
            }
        }
        Shell::Fish => {
            let has_values = |line: &str| FISH_OPTIONS.iter().any(|option| line.contains(option));
            let lines = script.lines().map(|line| match line.strip_suffix(" -r") {
                Some(option) if has_values(line) => format!("{option} -x -k -a \"(__ken_values)\"\n"),
                _ => format!("{line}\n"),
            });
            format!("{}{FISH}", lines.collect::<String>())
        }
        _ => script.to_owned(),
    }
}
