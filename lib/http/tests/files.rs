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
        ("/1.2/parts/app.js", "text/javascript; charset=utf-8", "export {}"),
        ("/%73tyle.css", "text/css; charset=utf-8", "a {}"),
        ("/alias.css", "text/css; charset=utf-8", "a {}"),
        ("/data.bin", "application/octet-stream", "\u{0}\u{1}"),
    ] {
        let answer = ask(&running, GET, path, "").checked();
        assert_eq!((answer.status, answer.body.as_slice()), (200, body.as_bytes()), "{path}");
        assert_eq!(answer.header("content-type"), Some(content_type));
        assert_eq!(answer.header("content-security-policy"), Some("default-src 'self'"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
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
fn the_page_names_its_version_and_no_other_one_has_files() {
    let dir = folder();
    fs::write(dir.path().join("files/index.html"), "<script src=\"/@version@/parts/app.js\">").unwrap();
    fs::write(dir.path().join("files/index.html.gz"), "not this").unwrap();
    let running = start(dir.path());
    let page = ask(&running, GET, "/", "Accept-Encoding: gzip\r\n").checked();
    assert_eq!(page.body, b"<script src=\"/1.2/parts/app.js\">");
    for path in ["/1.3/parts/app.js", "/1.2/1.2/parts/app.js"] {
        ask(&running, GET, path, "").error(404, "not_found");
    }
}

#[test]
fn a_client_that_takes_gzip_gets_the_file_beside_it_unless_that_is_older() {
    let dir = folder();
    let running = start(dir.path());
    let put = |name: &str, text: &str, age: u64| {
        let file = fs::File::create(dir.path().join("files").join(name)).unwrap();
        std::io::Write::write_all(&mut &file, text.as_bytes()).unwrap();
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(age)).unwrap();
    };
    put("style.css", "a {}", 60);
    put("style.css.gz", "small", 60);
    let ask = |headers: &str| ask(&running, GET, "/style.css", headers).checked();
    let (plain, small) = (ask(""), ask("Accept-Encoding: br, gzip\r\n"));
    assert_eq!((plain.body.as_slice(), plain.header("content-encoding")), (&b"a {}"[..], None));
    assert_eq!((small.body.as_slice(), small.header("content-encoding")), (&b"small"[..], Some("gzip")));
    assert_eq!(small.header("content-type"), Some("text/css; charset=utf-8"));
    assert_ne!(plain.header("etag"), small.header("etag"));
    let known = format!("Accept-Encoding: gzip\r\nIf-None-Match: {}\r\n", small.header("etag").unwrap());
    let answer = ask(&known);
    assert_eq!((answer.status, answer.body.len()), (304, 0));
    put("style.css", "b {}", 30);
    let answer = ask("Accept-Encoding: gzip\r\n");
    assert_eq!((answer.body.as_slice(), answer.header("content-encoding")), (&b"b {}"[..], None));
}

#[test]
fn nothing_outside_the_folder_is_served() {
    let dir = folder();
    let running = start(dir.path());
    for path in [
        "/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/parts/../../secret.txt",
        "/link.txt", "/up/secret.txt", "/.hidden", "/parts", "/parts/", "/none", "//",
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
