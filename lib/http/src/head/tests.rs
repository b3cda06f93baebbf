use super::*;

fn read(head: &[u8]) -> Result<Option<Head>, Failure> {
    HeadReader::default().read(head, &Limits::default())
}

/// What is wrong with a head, or how its body is delimited.
fn outcome(head: &str) -> Result<BodyLength, String> {
    match read(head.as_bytes()) {
        Ok(read) => Ok(read.unwrap_or_else(|| panic!("{head:?} is complete")).body),
        Err(failure) => Err(failure.error().message.trim_start_matches("malformed request: ").to_owned()),
    }
}

/// All combinations of what the checks of the whole head look at, against the sentences of RFC 9112.
#[test]
fn lengths_chunks_hosts_and_versions_together() {
    let lengths: [&[&str]; 6] = [&[], &["7"], &["7", "7"], &["7", "8"], &["x"], &[""]];
    let encodings: [&[&str]; 6] =
        [&[], &["chunked"], &[" CHUNKED "], &["chunked", "chunked"], &["gzip"], &["gzip, chunked"]];
    for version in ["1.1", "1.0"] {
        for hosts in 0..3 {
            for given in lengths {
                for encoding in encodings {
                    let mut head = format!("POST / HTTP/{version}\r\n");
                    (0..hosts).for_each(|_| head.push_str("Host: a\r\n"));
                    given.iter().for_each(|length| head.push_str(&format!("Content-Length:{length}\r\n")));
                    encoding.iter().for_each(|name| head.push_str(&format!("Transfer-Encoding:{name}\r\n")));
                    head.push_str("\r\n");
                    let body = match (given, encoding) {
                        ([], []) => Some(BodyLength::Known(0)),
                        (["7"], []) => Some(BodyLength::Known(7)),
                        ([], ["chunked" | " CHUNKED "]) if version == "1.1" => Some(BodyLength::Chunked),
                        _ => None,
                    };
                    let has_host = hosts == 1 || hosts == 0 && version == "1.0";
                    assert_eq!(outcome(&head).ok(), body.filter(|_| has_host), "{head:?}");
                }
            }
        }
    }
}

/// RFC 9110, section 5.6.2, and RFC 3986, section 2, each byte at each place.
#[test]
fn each_byte_where_it_is_allowed() {
    for byte in 0..=255u8 {
        let is_accepted = |before: &str, after: &str| {
            let head = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            matches!(read(&head), Ok(Some(_)))
        };
        let is_one_of = |bytes: &[u8]| byte.is_ascii_alphanumeric() || bytes.contains(&byte);
        let is_token = is_one_of(b"!#$%&'*+-.^_`|~");
        assert_eq!(is_accepted("G", "T / HTTP/1.1\r\nhost: a\r\n\r\n"), is_token, "method: {byte}");
        assert_eq!(
            is_accepted("GET / HTTP/1.1\r\nhost: a\r\nx", "y: z\r\n\r\n"),
            is_token || byte == b':',
            "name: {byte}"
        );
        let is_target = is_one_of(b"-._~:/?[]@!$&'()*+,;=%{}|");
        assert_eq!(is_accepted("GET /a", "b HTTP/1.1\r\nhost: a\r\n\r\n"), is_target, "target: {byte}");
        let is_host = is_one_of(b"-._~!$&'()*+;=:[]%");
        assert_eq!(is_accepted("GET / HTTP/1.1\r\nhost: a", "b\r\n\r\n"), is_host, "host: {byte}");
        let is_text = matches!(byte, b'\t' | b' '..=b'~');
        assert_eq!(is_accepted("GET / HTTP/1.1\r\nhost: a\r\nx: a", "b\r\n\r\n"), is_text, "value: {byte}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    const LINE: &str = "a request line is METHOD, one blank, target, one blank, HTTP/1.1";
    const TARGET: &str = "a bad target in the request line";
    const VERSION: &str = "a version other than HTTP/1.1 and HTTP/1.0";
    for (line, problem) in [
        ("GET / HTTP/1.1", None),
        ("GET / HTTP/1.0", None),
        ("GET http://localhost:1/a?b HTTP/1.1", None),
        ("GET https://localhost/ HTTP/1.1", None),
        ("", Some("an empty line instead of a request line")),
        ("GET /", Some(LINE)),
        ("GET / HTTP/1.1 ", Some(LINE)),
        ("GET  / HTTP/1.1", Some(LINE)),
        (" / HTTP/1.1", Some("a bad method in the request line")),
        ("GET  HTTP/1.1", Some(TARGET)),
        ("GET a HTTP/1.1", Some(TARGET)),
        ("OPTIONS * HTTP/1.1", Some(TARGET)),
        ("CONNECT localhost:80 HTTP/1.1", Some(TARGET)),
        ("GET ftp://localhost/ HTTP/1.1", Some(TARGET)),
        ("GET http:// HTTP/1.1", Some(TARGET)),
        ("GET https://[/ HTTP/1.1", Some(TARGET)),
        ("GET /#a HTTP/1.1", Some(TARGET)),
        ("GET / HTTP/1.2", Some(VERSION)),
        ("GET / HTTP/2", Some(VERSION)),
        ("GET / http/1.1", Some(VERSION)),
    ] {
        let found = outcome(&format!("{line}\r\nHost: a\r\n\r\n"));
        assert_eq!(found, problem.map_or(Ok(BodyLength::Known(0)), |problem| Err(problem.to_owned())), "{line:?}");
    }
    for (field, problem) in [
        // The length of a name alone does not make it one of those that are looked at.
        ("Date: a/b", None),
        ("Accept-Charset: x", None),
        ("Accept-Encodings_: x", None),
        ("Accept-Encoding_1: x", None),
        ("X:", None),
        ("X", Some("a header line without name and colon")),
        ("X : a", Some("a header line without name and colon")),
        (" X: a", Some("a header line without name and colon")),
        (": a", Some("a header line without a name")),
        ("Content-Length: 9223372036854775807", None),
        ("Content-Length: 92233720368547758070", Some("two lengths, or a length that is not a number")),
        ("Content-Length: +1", Some("two lengths, or a length that is not a number")),
    ] {
        let found = outcome(&format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
        assert_eq!(found.err().as_deref(), problem, "{field:?}");
    }
}

#[test]
fn exactly_as_many_lines_and_bytes_as_are_allowed() {
    let limits = Limits { head_lines: 3, head_bytes: 60, ..Limits::default() };
    let lines = |count: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(count));
    let status = |head: &str| match HeadReader::default().read(head.as_bytes(), &limits) {
        Ok(read) => Ok(read.map(|head| head.length)),
        Err(failure) => Err(failure.status_code().as_u16()),
    };
    assert_eq!(status(&lines(3)), Ok(Some(lines(3).len())));
    assert_eq!(status(&lines(4)), Err(431));
    // A line that does not end is refused as soon as the head cannot end within the limit any more.
    let begun = |size: usize| format!("GET /{}", "a".repeat(size - 5));
    assert_eq!(status(&begun(59)), Ok(None));
    assert_eq!(status(&begun(60)), Err(431));
}

#[test]
fn a_reader_is_fresh_until_the_first_byte() {
    let mut reader = HeadReader::default();
    assert!(reader.is_fresh() && reader.read(b"", &Limits::default()).unwrap().is_none() && reader.is_fresh());
    assert!(reader.read(b"G", &Limits::default()).unwrap().is_none() && !reader.is_fresh());
}

#[test]
fn the_request_id_is_found_in_a_refused_head() {
    let head = b"GET / HTTP/1.1\r\nX-Request-ID: abc\r\nbad\r\n\r\n";
    assert_eq!(request_id_in(head), Some(&b"abc"[..]));
    assert_eq!(request_id_in(b"GET / HTTP/1.1\r\nx-request-id: a b\r\n"), None);
    assert_eq!(request_id_in(b"GET / HTTP/1.1\r\nx-request-it: a\r\nX-REQUEST-ID:  c\r\n"), Some(&b"c"[..]));
    for (length, is_id) in [(0, false), (1, true), (128, true), (129, false)] {
        let id = "i".repeat(length);
        assert_eq!(request_id_in(format!("x-request-id: {id}\r\n").as_bytes()).is_some(), is_id, "{length}");
        assert_eq!(is_request_id(id.as_bytes()), is_id, "{length}");
    }
    assert!(!is_request_id(b"a b") && !is_request_id("ä".as_bytes()));
}
