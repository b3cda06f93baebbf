//! Tests of commands and git with network access: through ken-proxy, to the hosts of the rule, with keys that no
//! command sees.

#[path = "common/server.rs"]
mod server;

use crate::common::{Home, output_text, until};
use serde_json::{Value, json};
use server::{Server, certificate};

const KEY: &str = "ghp_planted-in-secrets.env";

/// Returns a home with a repository `repos/site` that has a commit, and a server with a bare repository. A rule allows
/// both addresses of the server.
fn repository_and_server() -> (Home, Server) {
    let home = Home::new();
    let served = home.folder().join("served");
    std::fs::create_dir_all(&served).unwrap();
    let server = Server::start(&served);
    home.configure(&format!(
        "[[workspace.rules]]\npath = \"repos\"\npolicy = \"ask\"\nhosts = [\"{}\", \"{}\", \"localhost:{}\"]\n\
         keys = {{ \"{}\" = \"SITE_KEY\" }}\n",
        server.plain,
        server.secure,
        server.plain.port(),
        server.secure,
    ));
    let secrets = home.folder().join("secrets.env");
    std::fs::write(&secrets, format!("SITE_KEY='{KEY}'\n")).unwrap();
    std::fs::set_permissions(&secrets, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    home.put("repos/site/a.txt", "one\n");
    home.git(&["init", "-q"]);
    home.git(&["add", "."]);
    home.git(&["commit", "-q", "-m", "one"]);
    let bare = served.join("site.git");
    home.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    (home, server)
}

/// Calls ken-coder as ken-tools does, with a root certificate that the proxy trusts.
fn call(home: &Home, command: &str, call: &Value) -> std::process::Output {
    let mut command = home.command(&[command, "--format", "compact", "--json", &call.to_string()]);
    command.env("SSL_CERT_FILE", certificate()).output().unwrap()
}

fn shell(home: &Home, script: &str) -> Value {
    let output =
        call(home, "run", &json!({"shell": script, "cwd": "repos/site", "network": true, "timeoutSeconds": 20}));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn commit(home: &Home, text: &str) {
    home.put("repos/site/a.txt", text);
    home.git(&["commit", "-q", "-a", "-m", text]);
}

#[test]
fn a_push_and_a_clone_go_through_the_proxy() {
    let (home, server) = repository_and_server();
    home.git(&["remote", "add", "origin", &format!("http://{}/site.git", server.plain)]);
    commit(&home, "two");
    let preview = home.preview("push", &json!({"repo": "repos/site"}));
    assert_eq!((&preview["approval"], &preview["actionType"]), (&json!("ask"), &json!("git.push")));
    assert_eq!(preview["action"]["network"]["hosts"][0], server.plain.to_string());
    let output = call(&home, "push", &json!({"repo": "repos/site"}));
    assert!(output.status.success(), "{}", output_text(&output));
    let served =
        |home: &Home| home.git(&["ls-remote", &home.folder().join("served/site.git").display().to_string(), "main"]);
    assert!(served(&home).starts_with(&home.git(&["rev-parse", "HEAD"])));

    let clone = json!({"url": format!("http://{}/site.git", server.plain), "repo": "repos/copy"});
    let preview = home.preview("clone", &clone);
    assert_eq!((&preview["approval"], &preview["actionType"]), (&json!("ask"), &json!("repo.clone")));
    let output = call(&home, "clone", &clone);
    assert!(output.status.success(), "{}", output_text(&output));
    assert_eq!(home.text("repos/copy/a.txt"), "two");
    assert_eq!(home.refused("clone", &clone)["code"], "conflict");
    // No key was sent, because the rule has no key for the host without TLS.
    assert!(server.keys().iter().all(Option::is_none));
}

#[test]
fn a_key_is_put_in_on_the_way_and_no_command_holds_it() {
    let (home, server) = repository_and_server();
    home.git(&["remote", "add", "origin", &format!("https://{}/site.git", server.secure)]);
    commit(&home, "three");
    let output = call(&home, "push", &json!({"repo": "repos/site"}));
    assert!(output.status.success(), "{}", output_text(&output));
    let keys = server.keys();
    assert!(!keys.is_empty() && keys.iter().all(|key| key.as_deref() == Some(&format!("Bearer {KEY}"))), "{keys:?}");

    let traced = shell(&home, &format!("curl -sS -X TRACE http://{}/show", server.secure));
    let text = traced["stdout"].as_str().unwrap();
    assert!(text.contains("not forwarded") && !text.contains(KEY), "{traced}");

    // The page repeats the request that left the proxy, and the proxy removes the key from the response. A key set by the
    // command itself is replaced. It is written in two pieces, because /proc shows the command line.
    let shown = shell(
        &home,
        &format!(
            "curl -sS -H 'Authorization: Bearer oth''er' http://{}/show; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'",
            server.secure
        ),
    );
    let text = shown["stdout"].as_str().unwrap();
    assert_eq!(server.keys().last().unwrap().as_deref(), Some(format!("Bearer {KEY}").as_str()));
    assert!(text.contains(&"*".repeat(format!("Bearer {KEY}").len())), "{shown}");
    assert!(!text.contains(KEY) && !text.contains("Bearer other"), "{text}");
    // The host sends the key back in the words of the status, in a header and byte by byte.
    let repeated = shell(&home, &format!("curl -sSi http://{}/repeat", server.secure));
    let text = repeated["stdout"].as_str().unwrap();
    assert!(text.contains("x-sent: ***") && text.contains("and Bearer no more\n"), "{repeated}");
    assert!(!repeated.to_string().contains("ghp_"), "{repeated}");
    // The key is not found in a response that ends in the middle of it, or that is compressed. So no part of a response is requested, and
    // no compression.
    let whole = format!("sent {}\n200", "*".repeat(format!("Bearer {KEY}").len()));
    for (options, path, expected) in [
        ("", "part", &*whole),
        ("-r 0-15", "part", &whole),
        ("-r 16-30 -H 'If-Range: \"x\"'", "part", &whole),
        ("-r 16-20,21-30", "part", &whole),
        (
            "-H 'X-Ms-Range: bytes=16-30'",
            "part",
            "sends a part of its response, so the key cannot be removed from it\n502",
        ),
        ("", "squeezed", "compresses its response, so the key cannot be removed from it\n502"),
    ] {
        let ran = shell(&home, &format!("curl -sS -w '%{{http_code}}' {options} http://{}/{path}", server.secure));
        let text = ran["stdout"].as_str().unwrap();
        assert!(text.ends_with(expected), "{options} {path}: {ran}");
    }
    // A request to which no key is added can ask for a part of a response.
    let ran = shell(&home, &format!("curl -sS -r 5-8 -H 'Authorization: Bearer own' http://{}/part", server.plain));
    assert_eq!(ran["stdout"], "Bear", "{ran}");
    let action = home.preview("run", &json!({"argv": ["true"], "cwd": "repos/site", "network": true}));
    assert_eq!(action["action"]["network"]["keysFor"], json!([server.secure.to_string()]));
    assert!(!action.to_string().contains(KEY));

    // The proxy cannot see into a tunnel, so the host gets no key.
    let before = server.keys().len();
    let tunnel = shell(
        &home,
        &format!("cp '{}' ca.pem 2>/dev/null; curl -ksS https://{}/show", certificate().display(), server.secure),
    );
    assert_eq!(tunnel["status"], 0, "{tunnel}");
    assert_eq!(server.keys()[before..], [None]);

    // Keys in a file that other users can read are not used.
    let secrets = home.folder().join("secrets.env");
    std::fs::set_permissions(&secrets, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let error = home.refused("push", &json!({"repo": "repos/site"}));
    assert_eq!(error["message"], "has mode 0644, others can read it", "{error}");
    assert_eq!(error["at"], secrets.display().to_string());

    std::fs::remove_file(&secrets).unwrap();
    let error = home.refused("push", &json!({"repo": "repos/site"}));
    assert!(error["message"].as_str().unwrap().contains("the key SITE_KEY"), "{error}");
}

/// Returns the command lines of all processes that work for this home.
fn command_lines(home: &Home) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&home.folder().display().to_string())).collect()
}

/// Every user of the machine can read the arguments of programs.
#[test]
fn arguments_hold_no_password_of_the_proxy_and_no_variable() {
    let (home, server) = repository_and_server();
    let config = home.text("../../ken.toml");
    let config = config.replace("[workspace]\n", "[workspace]\nenv = [\"DEPLOY_TOKEN=planted-in-ken.toml\"]\n");
    std::fs::write(home.folder().join("ken.toml"), config).unwrap();
    let script = "printf '%s %s' \"$DEPLOY_TOKEN\" \"$http_proxy\" > given.part; mv given.part given; \
        until [ -e go ]; do sleep 0.02; done";
    let lines = std::thread::scope(|scope| {
        let ran = scope.spawn(|| shell(&home, script));
        until(|| home.path("repos/site/given").exists());
        let lines = command_lines(&home);
        home.put("repos/site/go", "");
        assert_eq!(ran.join().unwrap()["status"], 0);
        lines
    });
    let given = home.text("repos/site/given");
    let (token, proxy) = given.split_once(' ').unwrap();
    let password = proxy.strip_prefix("http://").unwrap().split(['@', ':']).nth(1).unwrap();
    assert!(token == "planted-in-ken.toml" && password.len() >= 16, "{given}");
    assert!(lines.iter().any(|line| line.contains("--reach")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(token) || line.contains(password)), "{lines:?}");

    // The password of a push is only known to it.
    home.git(&["remote", "add", "origin", &format!("https://{}/site.git", server.secure)]);
    let done = std::sync::atomic::AtomicBool::new(false);
    let lines = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                seen.extend(command_lines(&home));
            }
            seen
        });
        commit(&home, "pushed");
        let output = call(&home, "push", &json!({"repo": "repos/site"}));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(output.status.success(), "{}", output_text(&output));
        watching.join().unwrap()
    });
    assert!(lines.iter().any(|line| line.contains("--reach") && line.contains(" push ")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("_proxy=") || line.contains("@127.0.0.1")), "{lines:?}");
}

#[test]
fn nothing_else_is_reached() {
    let (home, server) = repository_and_server();
    let (plain, gateway) = (server.plain, std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let gateway = gateway.local_addr().unwrap();
    let cases = [
        // The rule does not name these hosts.
        (format!("curl -sS -m 9 http://{gateway}/"), "not among the hosts"),
        (format!("curl -sS -m 9 https://{gateway}/"), "response 403"),
        ("curl -sS -m 9 http://169.254.169.254/".to_owned(), "not among the hosts"),
        // The rule names this host, but its name leads to a private address.
        (format!("curl -sS -m 9 http://localhost:{}/show", plain.port()), "which is not a public address"),
        // Bypassing the proxy, and using it without its password.
        (format!("curl -sS -m 9 --noproxy '*' http://{plain}/show"), ""),
        ("curl -sS -m 9 --proxy http://127.0.0.1:${http_proxy##*:} http://x.test/".to_owned(), "no password"),
    ];
    for (script, why) in cases {
        let ran = shell(&home, &script);
        let text = format!("{}{}", ran["stdout"], ran["stderr"]);
        assert!(text.contains(why) && !text.contains("user-agent"), "{script}: {ran}");
    }
    assert!(server.keys().is_empty(), "{:?}", server.keys());

    // If the operator allows private addresses, the name can lead there.
    let config = std::fs::read_to_string(home.folder().join("ken.toml")).unwrap();
    std::fs::write(home.folder().join("ken.toml"), format!("{config}private = [\"127.0.0.0/8\", \"::1\"]\n")).unwrap();
    let ran = shell(&home, &format!("curl -sS -m 9 http://localhost:{}/show", plain.port()));
    assert!(ran["stdout"].as_str().unwrap().contains("host: localhost"), "{ran}");
}

#[test]
fn the_network_is_what_a_rule_names() {
    let (home, server) = repository_and_server();
    for (name, url) in [
        ("unnamed", "https://example.org/x.git".to_owned()),
        ("password", format!("http://user:word@{}/site.git", server.plain)),
        ("ssh", "git@example.org:x.git".to_owned()),
    ] {
        home.git(&["remote", "add", name, &url]);
        let error = home.refused("push", &json!({"repo": "repos/site", "remote": name}));
        assert_eq!((&error["code"], &error["at"]), (&json!("forbidden"), &json!("/remote")), "{error}");
        let error = home.refused("clone", &json!({"url": url, "repo": "repos/new"}));
        assert_eq!((&error["code"], &error["at"]), (&json!("forbidden"), &json!("/url")), "{error}");
    }
    assert!(!home.path("repos/new").exists());
    home.put("projects/x/a", "");
    let error = home.refused("run", &json!({"argv": ["true"], "cwd": "projects/x", "network": true}));
    assert_eq!((&error["code"], &error["at"]), (&json!("forbidden"), &json!("/network")), "{error}");
    // A read-only command with network access needs approval too. Without network access, it reaches nothing.
    let preview = home.preview("run", &json!({"argv": ["ls"], "cwd": "repos/site", "network": true}));
    assert_eq!((&preview["approval"], &preview["risk"]), (&json!("ask"), &json!("high")));
    let ran = home
        .done("run", &json!({"shell": "curl -sS -m 5 http://127.0.0.1/; env | grep -i proxy", "cwd": "repos/site"}));
    assert_eq!(ran["status"], 1, "{ran}");
}
