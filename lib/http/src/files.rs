//! A folder of static files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderName, HeaderValue, VARY};
use ken_types::uri::decode;
use ken_types::{Error, hex};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use crate::failure::Failure;
use crate::request::{Request, Response};

/// Maximum size of a file that is served, in bytes (16 MiB), because a file is read completely.
const FILE_BYTES: u64 = 16 << 20;
const INDEX: &str = "index.html";
/// What stands for the version in `index.html`.
const VERSION_MARK: &str = "@version@";

/// Serves the files of one folder. Nothing outside the folder is served, whether through `..`, an escape in the path or a
/// symbolic link, and no file whose name begins with a dot. If `NAME.gz` is beside a file and not older, clients that accept
/// gzip get that.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    headers: &'static [(&'static str, &'static str)],
    version: &'static str,
}

/// A file as it is sent.
struct Found {
    bytes: Vec<u8>,
    etag: String,
    is_gzip: bool,
}

impl Files {
    /// `headers` are those of every response, with names in lower case. The folder is accessed only when a file is requested.
    ///
    /// The files are served below `/VERSION/` too, and the version is put in the place of `@version@` in `index.html`. A page
    /// whose files name each other by relative paths then never gets files of two versions: those of another one are 404.
    pub fn new(
        folder: impl Into<PathBuf>,
        headers: &'static [(&'static str, &'static str)],
        version: &'static str,
    ) -> Files {
        Files { folder: folder.into(), headers, version }
    }

    /// Answers with the file that the path of a request names, or `index.html` for `/`. Its ETag is a digest of its content; a
    /// client that has it gets 304. If there is no such file, the failure is 404.
    pub async fn answer(self: Arc<Files>, request: &Request) -> Result<Response, Failure> {
        let missing = || Failure::from(Error::not_found("no such path"));
        let name = self.relative(request.path()).ok_or_else(missing)?;
        let content_type = type_of(&name);
        let takes_gzip = request.header(ACCEPT_ENCODING.as_str()).is_some_and(names_gzip);
        let files = self.clone();
        let found = spawn_blocking(move || files.find(&name, takes_gzip)).await;
        let Found { bytes, etag, is_gzip } = found.ok().flatten().ok_or_else(missing)?;
        let mut response = if request.knows(&etag) {
            Response::empty(304)
        } else {
            let response = Response::bytes(200, HeaderValue::from_static(content_type), bytes);
            if is_gzip { response.header(CONTENT_ENCODING, HeaderValue::from_static("gzip")) } else { response }
        };
        for (name, value) in self.headers {
            response = response.header(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
            .header(CACHE_CONTROL, HeaderValue::from_static("no-cache"))
            .header(VARY, HeaderValue::from_static("accept-encoding"))
            .text_header(ETAG.as_str(), &etag)
    }

    /// The path of a file below the folder. `None` for a path that no served file can have.
    fn relative(&self, path: &str) -> Option<PathBuf> {
        let path = path.strip_prefix('/')?;
        let versioned = path.split_once('/').filter(|(first, _)| *first == self.version);
        relative(versioned.map_or(path, |(_, rest)| rest))
    }

    fn find(&self, name: &Path, takes_gzip: bool) -> Option<Found> {
        let folder = self.folder.canonicalize().ok()?;
        let (file, time) = open(&folder, name)?;
        // A compressed index would still have the mark of the version.
        let may_be_gzip = takes_gzip && name != Path::new(INDEX);
        let compressed = may_be_gzip.then(|| open(&folder, &beside(name))).flatten();
        match compressed.filter(|(_, made)| *made >= time) {
            Some((file, _)) => self.read(&beside(name), file, true),
            None => self.read(name, file, false),
        }
    }

    fn read(&self, name: &Path, file: File, is_gzip: bool) -> Option<Found> {
        let mut bytes = Vec::new();
        file.take(FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > FILE_BYTES {
            return None;
        }
        if name == Path::new(INDEX) {
            bytes = String::from_utf8_lossy(&bytes).replace(VERSION_MARK, self.version).into_bytes();
        }
        Some(Found { etag: etag(&bytes), bytes, is_gzip })
    }
}

/// The path below the folder that a path without its first slash names.
fn relative(path: &str) -> Option<PathBuf> {
    if path.is_empty() {
        return Some(PathBuf::from(INDEX));
    }
    path.split('/')
        .map(|segment| {
            let name = decode(segment)?;
            let is_plain = !name.is_empty()
                && !name.starts_with('.')
                && !name.contains(|c: char| matches!(c, '/' | '\\') || c.is_control());
            is_plain.then(|| PathBuf::from(name.as_ref()))
        })
        .collect()
}

fn beside(name: &Path) -> PathBuf {
    let mut name = name.as_os_str().to_owned();
    name.push(".gz");
    PathBuf::from(name)
}

/// Opens a regular file that is below the folder with symbolic links resolved, and returns when it was changed.
fn open(folder: &Path, name: &Path) -> Option<(File, SystemTime)> {
    let path = folder.join(name).canonicalize().ok()?;
    // Looked at before it is opened, because to open a FIFO waits for its writer.
    if !path.starts_with(folder) || !path.metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    let time = file.metadata().ok()?.modified().ok()?;
    Some((file, time))
}

/// Returns the strong ETag of a content, with its quotes.
pub fn etag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    format!("\"{}\"", hex::encode(digest.get(..16).unwrap_or_default()))
}

/// Whether `Accept-Encoding` names gzip, and not with the weight 0.
fn names_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}

/// The content type by the extension of the name; for an unknown extension, a type that browsers only store.
fn type_of(name: &Path) -> &'static str {
    let extension = name.extension().and_then(|extension| extension.to_str());
    match extension.unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_file_names() {
        for path in [
            "", "x", "//", "/a/", "/a//b", "/1.2/../a", "/1.2//", "/.", "/..", "/../a", "/a/../b", "/%2e%2e/a",
            "/%2E%2E%2Fa", "/..%2fa", "/a%2fb", "/a%5cb", "/a%00", "/a%0a", "/%zz", "/%ff", "/.env", "/a/.git",
        ] {
            assert_eq!(files().relative(path), None, "{path}");
        }
        for (path, name) in [
            ("/", "index.html"),
            ("/a/b%20c..js", "a/b c..js"),
            ("/1.2/a/b.js", "a/b.js"),
            ("/1.2/", "index.html"),
            ("/1.3/a.js", "1.3/a.js"),
            ("/1.2", "1.2"),
        ] {
            assert_eq!(files().relative(path), Some(name.into()), "{path}");
        }
    }

    fn files() -> Files {
        Files::new("/nowhere", &[], "1.2")
    }

    #[test]
    fn codings_that_a_client_accepts() {
        for yes in ["gzip", "br, GZIP", "gzip;q=0.5", "deflate, gzip; q=1"] {
            assert!(names_gzip(yes), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "gzip;q=0.000, br", "gzipped", "identity"] {
            assert!(!names_gzip(no), "{no}");
        }
    }

    #[test]
    fn the_size_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for (length, is_read) in [(FILE_BYTES, true), (FILE_BYTES + 1, false)] {
            File::create(folder.path().join("a")).unwrap().set_len(length).unwrap();
            let files = Files::new(folder.path(), &[], "1.2");
            assert_eq!(files.find(Path::new("a"), false).is_some(), is_read, "{length}");
        }
    }
}
