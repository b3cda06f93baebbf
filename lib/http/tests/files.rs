//! A folder of static files beside the routes of a program.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs;
use std::path::Path;

use common::{Answer, Running, start_files};

const GET: &str = "GET";

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    fs::create_dir_all(files.join("parts")).unwrap();
    let put = |path: &str, text: &str| fs::write(dir.path().join(path), text).unwrap();
    put("secret.txt", "secret");
    put("files/index.html", "<!doctype html>");
    put("files/parts/app.js", "export {}");
    put("files/style.css", "a {}");
    put("files/data.bin", "\u{0}\u{1}");
    put("files/.hidden", "hidden");
    std::os::unix::fs::symlink(dir.path().join("secret.txt"), files.join("link.txt")).unwrap();
    std::os::unix::fs::symlink(dir.path(), files.join("up")).unwrap();
    std::os::unix::fs::symlink("style.css", files.join("alias.css")).unwrap();
    dir
}

fn start(dir: &Path) -> Running {
    start_files(dir.join("files"))
}

fn ask(running: &Running, method: &str, path: &str, headers: &str) -> Answer {
    let mut client = running.connect();
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"));
    client.answer_to(method)
}

#[test]
fn files_have_their_types_and_a_policy() {
    let dir = folder();
    let running = start(dir.path());
    for (path, content_type, body) in [
        ("/", "text/html; charset=utf-8", "<!doctype html>"),
        ("/index.html", "text/html; charset=utf-8", "<!doctype html>"),
        ("/parts/app.js", "text/javascript; charset=utf-8", "export {}"),
        ("/%73tyle.css", "text/css; charset=utf-8", "a {}"),
        ("/alias.css", "text/css; charset=utf-8", "a {}"),
        ("/data.bin", "application/octet-stream", "\u{0}\u{1}"),
    ] {
        let answer = ask(&running, GET, path, "").checked();
        assert_eq!((answer.status, answer.body.as_slice()), (200, body.as_bytes()), "{path}");
        assert_eq!(answer.header("content-type"), Some(content_type));
        assert_eq!(answer.header("content-security-policy"), Some("default-src 'self'"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        let head = ask(&running, "HEAD", path, "");
        assert_eq!((head.status, head.header("etag")), (200, answer.header("etag")));
    }
}

#[test]
fn a_file_that_the_client_has_is_304_until_it_changes() {
    let dir = folder();
    let running = start(dir.path());
    let first = ask(&running, GET, "/style.css", "");
    let etag = first.header("etag").unwrap().to_owned();
    for given in [etag.clone(), format!("\"x\", W/{etag}"), "*".to_owned()] {
        let answer = ask(&running, GET, "/style.css", &format!("If-None-Match: {given}\r\n"));
        assert_eq!((answer.status, answer.header("etag")), (304, Some(etag.as_str())));
        assert!(answer.body.is_empty());
    }
    fs::write(dir.path().join("files/style.css"), "b {}").unwrap();
    let changed = ask(&running, GET, "/style.css", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((changed.status, changed.body.as_slice()), (200, &b"b {}"[..]));
}

#[test]
fn nothing_outside_the_folder_is_served() {
    let dir = folder();
    let running = start(dir.path());
    for path in [
        "/secret.txt",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/parts/../../secret.txt",
        "/link.txt",
        "/up/secret.txt",
        "/.hidden",
        "/parts",
        "/parts/",
        "/none",
        "//",
    ] {
        ask(&running, GET, path, "").error(404, "not_found");
    }
}

#[test]
fn routes_come_first_and_their_areas_have_no_files() {
    let dir = folder();
    fs::create_dir(dir.path().join("files/api")).unwrap();
    fs::write(dir.path().join("files/api/file.txt"), "file").unwrap();
    fs::write(dir.path().join("files/health"), "file").unwrap();
    let running = start(dir.path());
    assert_eq!(ask(&running, GET, "/health", "").header("content-type"), Some("application/json"));
    ask(&running, GET, "/api/file.txt", "").error(404, "not_found");
    ask(&running, GET, "/agents/none", "").typed_error(404, "route_not_found");
    ask(&running, "POST", "/style.css", "Content-Length: 0\r\n").error(404, "not_found");
}
