//! Checks of the configuration, the secrets, and who can reach the system.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use ken_types::config::{Config, Gateway, TrustLoopback};
use ken_types::places::Places;
use nix::unistd::geteuid;

use super::{Findings, Repair, ask};
use crate::config;

/// Checks the configuration files, and the permissions of the folders that hold state and sockets.
pub(super) fn check(places: &Places, findings: &mut Findings) {
    if check_secrets(&places.secrets(), findings) {
        check_configuration(places, findings);
    }
    let folders = [Some(&places.state), Some(&places.run), places.home.as_ref()];
    for folder in folders.into_iter().flatten() {
        check_folder(folder, findings);
    }
    if let Some(home) = places.home.as_deref().filter(|home| home.symlink_metadata().is_err()) {
        findings.note(
            "home-new",
            home.display(),
            "does not exist yet",
            "`ken up` makes it; is --home or KEN_HOME right?",
        );
    }
}

/// Checks the folders of a running system: kend closes them to others when it starts.
pub(super) fn check_running(places: &Places, findings: &mut Findings) {
    for folder in [&places.state, &places.run] {
        check_private(folder, findings);
    }
}

/// Reports a folder that others can read, and sockets in it that belong to another user.
fn check_private(path: &Path, findings: &mut Findings) {
    let Some(meta) = std::fs::metadata(path).ok().filter(Metadata::is_dir) else { return };
    if meta.mode() & 0o022 == 0 && meta.mode() & 0o055 != 0 {
        let why = format!("has mode {:04o}: others can read it", meta.mode() & 0o7777);
        findings.warning("folder-open", path.display(), why, format!("chmod go-rwx {}", path.display()));
        findings.repair(Repair::Mode(path.to_owned(), meta.mode() & 0o7700));
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(socket) = entry.metadata() else { continue };
        if socket.file_type().is_socket() && socket.uid() != meta.uid() {
            let why = format!("belongs to user {}, and its folder to user {}", socket.uid(), meta.uid());
            let fix = format!("chown {} {}", meta.uid(), entry.path().display());
            findings.error("socket-owner", entry.path().display(), why, fix);
        }
    }
}

/// Runs `kend --check`, which reports each problem of the configuration on a line of its own.
fn check_configuration(places: &Places, findings: &mut Findings) {
    let home = places.home.as_deref().map(Path::as_os_str);
    let mut args: Vec<&OsStr> = vec![OsStr::new("--check")];
    args.extend(home.into_iter().flat_map(|home| [OsStr::new("--home"), home]));
    let Some((good, output)) = ask("kend", &args) else {
        let why = "there is no kend beside ken or on PATH";
        return findings.error("program-missing", "kend", why, "install ken again: make install");
    };
    if good {
        return;
    }
    // The modes of the secrets have been reported already.
    let secrets = format!("kend: {}: has mode", places.secrets().display());
    for line in output.lines().filter(|line| !line.trim().is_empty() && !line.starts_with(&secrets)) {
        let line = line.strip_prefix("kend: ").unwrap_or(line);
        let fix = "edit the file; `kend --check` checks it again";
        findings.error("configuration", places.config.display(), line, fix);
    }
}

/// Checks `secrets.env`. Returns false if it is not a regular file: reading it could then block, as with a FIFO.
fn check_secrets(path: &Path, findings: &mut Findings) -> bool {
    let place = &path.display();
    let Ok(meta) = std::fs::metadata(path) else {
        return true;
    };
    if !meta.is_file() {
        let fix = "replace it by a file of NAME=value lines";
        findings.error("secrets-file", place, "is not a regular file", fix);
        return false;
    }
    if meta.mode() & 0o077 != 0 {
        let why = format!("has mode {:04o}: others can read it", meta.mode() & 0o777);
        findings.error("secrets-mode", place, why, format!("chmod 600 {place}"));
        findings.repair(Repair::Mode(path.to_owned(), 0o600));
    }
    for (name, value) in config::secrets(path) {
        if value.is_empty() {
            let why = format!("{name} is empty");
            let fix = format!("give {name} a value, or remove the line");
            findings.warning("secret-empty", place, why, fix);
        }
    }
    true
}

fn check_folder(path: &Path, findings: &mut Findings) {
    let place = &path.display();
    let Ok(meta) = std::fs::metadata(path) else {
        // What does not exist is made at the start.
        if let Ok(to) = std::fs::read_link(path) {
            let why = format!("is a link to {}, which does not exist", to.display());
            findings.error("not-a-folder", place, why, format!("make that folder, or remove the link: rm {place}"));
        }
        return;
    };
    if !meta.is_dir() {
        return findings.error("not-a-folder", place, "is not a folder", format!("mv {place} {place}.old"));
    }
    if !is_own(&meta) {
        let why = format!("belongs to user {}, not to you", meta.uid());
        return findings.error("folder-owner", place, why, format!("chown -R {} {place}", geteuid()));
    }
    if meta.mode() & 0o022 != 0 {
        let why = format!("has mode {:04o}: others can write in it", meta.mode() & 0o7777);
        findings.error("folder-mode", place, why, format!("chmod go-w {place}"));
        findings.repair(Repair::Mode(path.to_owned(), meta.mode() & 0o7755));
    }
    if meta.mode() & 0o200 == 0 {
        findings.error("folder-read-only", place, "cannot be written", format!("chmod u+w {place}"));
        findings.repair(Repair::Mode(path.to_owned(), meta.mode() & 0o7777 | 0o200));
    }
}

fn is_own(meta: &Metadata) -> bool {
    meta.uid() == geteuid().as_raw() || geteuid().is_root()
}

/// Reports who is taken for local besides the person who runs ken.
fn check_trust(places: &Places, gateway: &Gateway, has_secret: bool, findings: &mut Findings) {
    let file = &places.config.display();
    if !gateway.trusts_loopback() {
        return;
    }
    if !gateway.public_url.is_empty() {
        let why = format!(
            "public_url says that a proxy stands in front, and trust_loopback = \"{}\" lets everybody behind it in",
            if gateway.trust_loopback == TrustLoopback::AnyUser { "any-user" } else { "yes" }
        );
        return findings.error("proxy-trusted", file, why, "set trust_loopback = \"auto\" in [gateway]");
    }
    let fix = "set public_url or trust_loopback = \"no\" in [gateway], and API_SECRET in secrets.env";
    if gateway.trust_loopback == TrustLoopback::AnyUser {
        let why = "trust_loopback = \"any-user\": every user of this machine can read all sessions and approve actions";
        findings.warning("any-user-trusted", file, why, "set trust_loopback = \"auto\" in [gateway]");
    } else if let Some(proxy) = proxy_of_the_same_user(places) {
        let why = String::from(
            "runs as the user of ken: what it forwards to the gateway without a header of its own needs no secret",
        );
        findings.warning("proxy-same-user", proxy, why, format!("run it as another user, or {fix}"));
    } else if has_secret {
        let why = "API_SECRET is set, and requests of the user who runs ken need none; a proxy of this user would let \
                   everybody in";
        findings.warning(
            "loopback-trusted",
            file,
            why,
            format!("when a proxy stands in front, {fix}; else remove API_SECRET"),
        );
    }
}

/// Programs that forward requests to other servers on the same machine.
const PROXIES: [&str; 10] =
    ["nginx", "haproxy", "caddy", "apache2", "httpd", "lighttpd", "traefik", "envoy", "varnishd", "squid"];

/// Looks for a proxy that runs as the user of ken, to whom the gateway takes its requests for local.
fn proxy_of_the_same_user(places: &Places) -> Option<String> {
    let user = std::fs::metadata(&places.state).ok()?.uid();
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let is_of_user = process.metadata().is_ok_and(|meta| meta.uid() == user);
        let name = std::fs::read_to_string(process.path().join("comm")).ok().filter(|_| is_of_user)?;
        let pid = process.file_name().into_string().ok()?;
        // The master of nginx runs as root, but forwards nothing; its workers do.
        let title = std::fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        let forwards = PROXIES.contains(&name.trim()) && !title.contains("master process");
        forwards.then(|| format!("{}, process {pid}", name.trim()))
    })
}

/// Reports who is let in without a secret. That other machines can reach a gateway without one is an error of the configuration.
pub(super) fn check_exposure(places: &Places, config: &Config, findings: &mut Findings) {
    let secrets = config::secrets(&places.secrets());
    let has_secret = secrets.iter().any(|(name, value)| name == "API_SECRET" && !value.is_empty());
    check_trust(places, &config.gateway, has_secret, findings);
}
