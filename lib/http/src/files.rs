//! A folder of static files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderValue};
use ken_types::uri::decode;
use ken_types::{Error, hex};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use crate::failure::Failure;
use crate::request::{Request, Response};

/// Maximum size of a file that is served, in bytes (16 MiB), because a file is read completely.
const FILE_BYTES: u64 = 16 << 20;

/// Serves the files of one folder. Nothing outside the folder is served, whether through `..`, an escape in the path or a
/// symbolic link, and no file whose name begins with a dot.
#[derive(Debug, Clone)]
pub struct Files {
    folder: PathBuf,
    policy: HeaderValue,
}

impl Files {
    /// `policy` is the `Content-Security-Policy` of every response. The folder is accessed only when a file is requested.
    pub fn new(folder: impl Into<PathBuf>, policy: &'static str) -> Files {
        Files { folder: folder.into(), policy: HeaderValue::from_static(policy) }
    }

    /// Answers with the file that the path of a request names, or `index.html` for `/`. Its ETag is a digest of its content; a
    /// client that has it gets 304. If there is no such file, the failure is 404.
    pub async fn answer(&self, request: &Request) -> Result<Response, Failure> {
        let missing = || Failure::from(Error::not_found("no such path"));
        let name = relative(request.path()).ok_or_else(missing)?;
        let content_type = type_of(&name);
        let folder = self.folder.clone();
        let read = spawn_blocking(move || read(&folder, &name)).await;
        let bytes = read.ok().flatten().ok_or_else(missing)?;
        let etag = etag(&bytes);
        let response = if request.knows(&etag) {
            Response::empty(304)
        } else {
            Response::bytes(200, HeaderValue::from_static(content_type), bytes)
        };
        let response = response
            .header(CACHE_CONTROL, HeaderValue::from_static("no-cache"))
            .header(CONTENT_SECURITY_POLICY, self.policy.clone());
        response.text_header(ETAG.as_str(), &etag)
    }
}

/// The path of a file below the folder. `None` for a path that no served file can have.
fn relative(path: &str) -> Option<PathBuf> {
    let path = path.strip_prefix('/')?;
    if path.is_empty() {
        return Some(PathBuf::from("index.html"));
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

fn read(folder: &Path, name: &Path) -> Option<Vec<u8>> {
    let folder = folder.canonicalize().ok()?;
    // With symbolic links resolved it must still be below the folder.
    let path = folder.join(name).canonicalize().ok()?;
    if !path.starts_with(&folder) || !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let mut file = File::open(path).ok()?.take(FILE_BYTES + 1);
    file.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= FILE_BYTES).then_some(bytes)
}

fn etag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    format!("\"{}\"", hex::encode(digest.get(..16).unwrap_or_default()))
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
            "",
            "x",
            "//",
            "/a/",
            "/a//b",
            "/.",
            "/..",
            "/../a",
            "/a/../b",
            "/%2e%2e/a",
            "/%2E%2E%2Fa",
            "/..%2fa",
            "/a%2fb",
            "/a%5cb",
            "/a%00",
            "/a%0a",
            "/%zz",
            "/%ff",
            "/.env",
            "/a/.git",
        ] {
            assert_eq!(relative(path), None, "{path}");
        }
        assert_eq!(relative("/"), Some("index.html".into()));
        assert_eq!(relative("/a/b%20c..js"), Some("a/b c..js".into()));
    }

    #[test]
    fn the_size_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for (length, is_read) in [(FILE_BYTES, true), (FILE_BYTES + 1, false)] {
            File::create(folder.path().join("a")).unwrap().set_len(length).unwrap();
            assert_eq!(read(folder.path(), Path::new("a")).is_some(), is_read, "{length}");
        }
    }
}
