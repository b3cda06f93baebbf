//! Tests that apply to all protocol tools: errors for input that they cannot read, and the end of a tool whose output nobody
//! reads.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ken_tests::{binary, copy_program, run_with_input};
use serde_json::Value;

/// A tool, an input that it answers with status 0, and the inline flag for this input.
struct Tool {
    name: &'static str,
    input: &'static str,
    flag: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool { name: "ken-rep", input: r#"{"facts":["a"],"rules":[[["a"],"b"]]}"#, flag: "--json" },
    Tool { name: "ken-vvp", input: r#"{"facts":["a"],"rules":[[["a"],"b"]]}"#, flag: "--json" },
    Tool { name: "ken-esl", input: r#"{"user_input":"I love this!"}"#, flag: "--text" },
    Tool {
        name: "ken-laws",
        input: r#"{"text":"The test took 4.1 s on 2026-03-02. So the limit of 5 s holds."}"#,
        flag: "--text",
    },
];

/// A word of a command line need not be UTF-8.
#[test]
fn a_word_that_no_program_can_read_is_an_error() {
    for program in ["ken", "ken-coder", "ken-model", "ken-tools"].iter().chain(&TOOLS.map(|tool| tool.name)) {
        for word in [&b"-\xff"[..], b"--\xff"] {
            let mut command = Command::new(binary(program));
            command.env("KEN_ERRORS", "json").arg(OsStr::from_bytes(word)).stdin(Stdio::null());
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{program}: {output:?}");
            assert!(serde_json::from_slice::<Value>(&output.stderr).is_ok(), "{program}: {output:?}");
        }
    }
}

const LIMIT: usize = 8 * 1024 * 1024;

/// The user id of `nobody`, who has no rights.
const NOBODY: u32 = 65_534;

impl Tool {
    fn command(&self) -> Command {
        let mut command = Command::new(binary(self.name));
        command.env("KEN_ERRORS", "json");
        command
    }

    fn run(&self, args: &[&str], stdin: &[u8]) -> Output {
        run_with_input(self.command().args(args), stdin)
    }

    /// Runs a shell script in which `$0` is the tool.
    fn shell(&self, script: &str) -> Output {
        run_with_input(Command::new("sh").args(["-c", script]).arg(binary(self.name)), self.input.as_bytes())
    }
}

/// Checks for empty standard output, one line with an error on standard error, and status 2. Returns the error.
#[track_caller]
fn refused(tool: &Tool, output: &Output) -> Value {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    let name = tool.name;
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{name}: {stderr}");
    assert!(stderr.ends_with('\n') && stderr.lines().count() == 1, "{name}: {stderr}");
    let mut line: Value = serde_json::from_str(&stderr).unwrap();
    let error = line["error"].take();
    for field in ["code", "message", "at"] {
        assert!(error[field].is_string(), "{name}: {field} in {stderr}");
    }
    error
}

#[test]
fn unreadable_input_is_refused() {
    let deep = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1)).into_bytes();
    for tool in &TOOLS {
        let twice = format!("{}{}", tool.input.trim_end_matches('}'), tool.input.replacen('{', ",", 1));
        let nan = tool.input.replacen('{', "{\"more\":NaN,", 1);
        for (input, code) in [
            (b"".to_vec(), "invalid"),
            (b" \t\r\n \n".to_vec(), "invalid"),
            (b"{\"a\":\"\xff\"}".to_vec(), "invalid"),
            (b"\xed\xa0\x80 surrogate".to_vec(), "invalid"),
            (b"{\"text\": 1".to_vec(), "invalid"),
            (twice.into_bytes(), "invalid"),
            (nan.into_bytes(), "invalid"),
            (deep(129), "invalid"),
            (deep(100_000), "invalid"),
            (vec![b' '; LIMIT + 1], "too_large"),
        ] {
            let shown = String::from_utf8_lossy(&input).chars().take(60).collect::<String>();
            let error = refused(tool, &tool.run(&[], &input));
            assert_eq!(error["code"], code, "{}: {shown}", tool.name);
        }
        // Unknown fields are accepted, because they can be for other tools, and so are 128 levels of nesting and input of
        // exactly the maximum size.
        let mut full = tool.input.replacen('{', &format!("{{\"more\":{}{},", "[".repeat(127), "]".repeat(127)), 1);
        full.extend(std::iter::repeat_n(' ', LIMIT - full.len()));
        assert_eq!(tool.run(&[], full.as_bytes()).status.code(), Some(0), "{}", tool.name);
        full.push(' ');
        assert_eq!(refused(tool, &tool.run(&[], full.as_bytes()))["code"], "too_large");
    }
}

#[test]
fn unreadable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for tool in &TOOLS {
        for (args, code) in [
            (vec!["--file", folder.path().to_str().unwrap()], "invalid"),
            (vec!["--file", &path("none")], "not_found"),
            (vec!["-f", ""], "invalid"),
        ] {
            let error = refused(tool, &tool.run(&args, tool.input.as_bytes()));
            assert_eq!((&error["code"], &error["at"]), (&code.into(), &"--file".into()), "{}: {args:?}", tool.name);
        }
        let error = refused(tool, &tool.run(&["-f", &path("x"), tool.flag, tool.input], b""));
        assert!(error["message"].as_str().unwrap().contains("more than one input"));
    }
}

/// Root can read every file, so the tool runs as another user.
#[test]
fn a_file_without_permission_is_forbidden() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let locked = folder.path().join("locked");
    fs::write(&locked, "{}").unwrap();
    fs::set_permissions(&locked, Permissions::from_mode(0o000)).unwrap();
    for tool in &TOOLS {
        let copy = open_to_all(&binary(tool.name), folder.path());
        let mut command = Command::new(copy);
        command.arg("--file").arg(&locked);
        if File::open(&locked).is_ok() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let error = refused(tool, &run_with_input(&mut command, b""));
        assert_eq!((&error["code"], &error["at"]), (&"forbidden".into(), &"--file".into()), "{}", tool.name);
    }
}

/// Copies a program to a folder where every user can run it, because the checkout may be readable only by its owner.
fn open_to_all(program: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(program.file_name().unwrap());
    copy_program(program, &copy);
    copy
}

#[test]
fn an_answer_that_cannot_be_written_is_reported() {
    for tool in &TOOLS {
        for flag in ["", "--lines", "--format summary", "--help"] {
            let closed = tool.shell(&format!("\"$0\" {flag} >&-"));
            assert!(refused(tool, &closed)["message"].as_str().unwrap().contains("it is closed"), "{}", tool.name);
            let full = tool.shell(&format!("\"$0\" {flag} >/dev/full"));
            assert!(refused(tool, &full)["message"].as_str().unwrap().contains("No space"), "{}", tool.name);
        }
        assert_eq!(tool.shell("\"$0\" >/dev/null").status.code(), Some(0));
        assert_eq!(tool.shell("\"$0\" <&- >/dev/null").status.code(), Some(2));
        // If the error cannot be written, the exit status still reports it.
        assert_eq!(tool.shell("echo '{\"text\"' | \"$0\" 2>&-").status.code(), Some(2));
    }
}

#[test]
fn a_tool_ends_quietly_when_its_reader_leaves() {
    for tool in &TOOLS {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut child =
            tool.command().arg("--lines").stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        writeln!(to, "{}", tool.input).unwrap();
        let mut first = [0];
        reader.read_exact(&mut first).unwrap();
        drop(reader);
        let _ = to.write_all(format!("{}\n", tool.input).repeat(10_000).as_bytes());
        drop(to);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]), "{}", tool.name);
    }
}

/// On a terminal a tool without input prints its usage as text, with status 2. Flags have the same effect as in a script.
#[test]
fn on_a_terminal_a_tool_asks_for_its_input() {
    for tool in &TOOLS {
        let (output, status) = on_terminal(tool, &[]);
        assert_eq!(status, 2, "{output}");
        assert!(output.contains("standard input is a terminal") && output.contains("Usage: "), "{output}");
        assert!(!output.contains("{\"error\""), "{output}");
        let args = [tool.flag, tool.input, "--format", "compact"];
        let (output, status) = on_terminal(tool, &args);
        let flat = tool.run(&args, b"");
        assert_eq!((output.replace("\r\n", "\n").as_bytes(), Some(status)), (&flat.stdout[..], flat.status.code()));
    }
}

/// Runs the tool with `script`, which connects all three standard streams to a terminal.
fn on_terminal(tool: &Tool, args: &[&str]) -> (String, i32) {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let words: Vec<String> =
        std::iter::once(binary(tool.name).to_str().unwrap()).chain(args.iter().copied()).map(quoted).collect();
    let output = Command::new("script")
        .args(["-qec", &words.join(" "), "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script(1), of util-linux");
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

#[test]
fn lines_gives_the_same_answers_and_continues_after_errors() {
    for tool in &TOOLS {
        let alone = tool.run(&["--format", "compact"], tool.input.as_bytes()).stdout;
        let alone = String::from_utf8(alone).unwrap();
        let mut input = format!("{}\n{{\"text\"\n\n", tool.input).into_bytes();
        input.extend_from_slice(b"\xff\n");
        input.resize(input.len() + LIMIT + 1, b'x');
        input.extend_from_slice(format!("\n{}", tool.input).as_bytes());
        let output = tool.run(&["--lines"], &input);
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
        let answers = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<&str> = answers.lines().collect();
        assert_eq!(answers.len(), 6, "{}", tool.name);
        assert_eq!((answers[0], answers[5]), (alone.trim_end(), alone.trim_end()), "{}", tool.name);
        for (answer, code) in answers[1..5].iter().zip(["invalid", "invalid", "invalid", "too_large"]) {
            let answer: Value = serde_json::from_str(answer).unwrap();
            assert_eq!(answer["error"]["code"], code, "{}", tool.name);
        }
    }
}

/// `ken-rep | ken-vvp | ken-laws`, in a shell.
#[test]
fn the_tools_form_a_pipe() {
    let folder = binary("ken-rep").parent().unwrap().to_owned();
    let script = r#"ken-rep --facts "Socrates is a man" --rules '[[["?x is a man"],"?x is mortal"]]' | tee rep |
        ken-vvp | tee vvp | ken-laws --format summary"#;
    let here = tempfile::tempdir().unwrap();
    let output = run_with_input(
        Command::new("bash")
            .args(["-o", "pipefail", "-c", script])
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .current_dir(here.path()),
        b"",
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{stdout}");
    assert!(stdout.starts_with("Five laws validation\n") && stdout.contains("Status: "), "{stdout}");
    let read = |name: &str| serde_json::from_slice::<Value>(&fs::read(here.path().join(name)).unwrap()).unwrap();
    assert_eq!(read("rep")["conclusions"][0], "Socrates is mortal");
    assert_eq!(read("vvp")["validation_status"], "success");
}
