//! The route table and the lookup of a path in it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{ALLOW, HeaderValue};
use http::{Method, StatusCode};
use ken_types::uri::decode;
use ken_types::{Code, Error};

use crate::failure::{Envelope, Failure, plain};
use crate::path::first_segment;
use crate::rate::Limiter;
use crate::request::{Media, Request, Response};

/// The table of one listener: rows of method, path and function, in areas that share how they are guarded and how they
/// report errors. All functions get a shared `S` beside the request.
///
/// ```
/// # use ken_http::{Area, Failure, Media, Request, Response, Routes};
/// # use std::sync::Arc;
/// # struct App;
/// # async fn health(_: Arc<App>, _: Request) -> Result<Response, Failure> { Ok(Response::empty(204)) }
/// # async fn list(_: Arc<App>, _: Request) -> Result<Response, Failure> { Ok(Response::empty(204)) }
/// # async fn prompt(_: Arc<App>, _: Request) -> Result<Response, Failure> { Ok(Response::empty(204)) }
/// let routes = Routes::new()
///     .area(Area { guarded: true, ..Area::below("api") })
///     .area(Area { guarded: true, media: Media::StrictJson, body_limit: 16 << 20, ..Area::below("agents") })
///     .on("GET   /health",           health)
///     .on("GET   /api/knowledge",    list)
///     .on("POST  /agents/:name/:id", prompt);
/// ```
///
/// `HEAD` works wherever `GET` does. A segment `:name` matches any single segment, a last segment `*name` one or more
/// segments; a literal segment has precedence over both.
pub struct Routes<S> {
    areas: Vec<Area>,
    /// The area of paths below no other area.
    open: Area,
    rows: Vec<Row<S>>,
    root: Node,
    otherwise: Option<Row<S>>,
    defect: Option<Error>,
}

/// The future of a row's function.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send>>;
type Function<S> = Box<dyn Fn(Arc<S>, Request) -> Work + Send + Sync>;

pub(crate) struct Row<S> {
    pattern: String,
    names: Vec<String>,
    pub function: Function<S>,
    limiter: Option<Arc<Limiter>>,
}

/// All paths below one first segment, whether or not they are in the table, and how they are guarded and limited.
#[derive(Clone)]
pub struct Area {
    pub first_segment: &'static str,
    /// Requests from elsewhere need the secret.
    pub guarded: bool,
    pub media: Media,
    /// How errors are written.
    pub envelope: Envelope,
    /// Whether the errors of the listener have this envelope too, because the clients know no other form.
    pub is_own_form: bool,
    /// Maximum size of a body, in bytes.
    pub body_limit: u64,
    /// The rate limit of its paths. A row of the table can have its own instead.
    pub limiter: Option<Arc<Limiter>>,
    /// Allows calls by web pages of other origins: `OPTIONS` needs no secret, and every response has these headers. All
    /// other requests still need the secret.
    pub for_pages: Option<PageHeaders>,
    /// Takes the secret as `Authorization: Bearer` too, as clients of a public protocol send it.
    pub takes_bearer: bool,
}

/// Names in lower case, with their values.
pub type PageHeaders = &'static [(&'static str, &'static str)];

impl Area {
    /// `/first_segment` and everything below it: open to anyone, JSON, plain errors, bodies up to 1 MiB, no rate limit.
    pub fn below(first_segment: &'static str) -> Area {
        Area {
            first_segment,
            guarded: false,
            media: Media::Json,
            envelope: plain,
            body_limit: 1 << 20,
            limiter: None,
            for_pages: None,
            is_own_form: false,
            takes_bearer: false,
        }
    }
}

impl<S> Default for Routes<S> {
    fn default() -> Routes<S> {
        Routes::new()
    }
}

impl<S> Routes<S> {
    pub fn new() -> Routes<S> {
        Routes {
            areas: Vec::new(),
            open: Area::below(""),
            rows: Vec::new(),
            root: Node::default(),
            otherwise: None,
            defect: None,
        }
    }

    pub fn area(mut self, area: Area) -> Routes<S> {
        self.areas.push(area);
        self
    }

    /// Adds a row: `"METHOD /path/:name"` and the function that answers it.
    pub fn on<F, W>(mut self, pattern: &str, function: F) -> Routes<S>
    where
        F: Fn(Arc<S>, Request) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Response, Failure>> + Send + 'static,
    {
        if let Err(defect) = self.insert(pattern) {
            self.defect.get_or_insert(defect);
        }
        self.rows.push(Row::new(pattern, function));
        self
    }

    /// Sets the function for GET and HEAD of a path that is in no row and below no area, for the files of web pages.
    pub fn otherwise<F, W>(mut self, function: F) -> Routes<S>
    where
        F: Fn(Arc<S>, Request) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Response, Failure>> + Send + 'static,
    {
        self.otherwise = Some(Row::new("", function));
        self
    }

    /// Gives the last row its own rate limit, instead of that of its area.
    pub fn limited(mut self, limiter: &Arc<Limiter>) -> Routes<S> {
        if let Some(row) = self.rows.last_mut() {
            row.limiter = Some(limiter.clone());
        }
        self
    }

    /// Every row as `METHOD /path`, in the order of the table, for tests that compare it with an API description.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| row.pattern.as_str())
    }

    /// Fails if a pattern is malformed or occurs twice.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.root.note_allowed();
        self.defect.take().map_or(Ok(()), Err)
    }

    fn insert(&mut self, pattern: &str) -> Result<(), Error> {
        let wrong = |what: &str| Error::internal(format!("route {pattern:?}: {what}"));
        let mut words = pattern.split_ascii_whitespace();
        let (Some(method), Some(path), None) = (words.next(), words.next(), words.next()) else {
            return Err(wrong("not METHOD /path"));
        };
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| wrong("bad method"))?;
        let path = path.strip_prefix('/').ok_or_else(|| wrong("the path does not start with /"))?;
        let mut node = &mut self.root;
        for segment in path.split('/') {
            node = node.child(segment);
        }
        if node.row_of(&method).is_some() {
            return Err(wrong("is there twice"));
        }
        node.rows.push((method, self.rows.len()));
        Ok(())
    }

    /// The area of a path, by its first segment, decoded once.
    pub(crate) fn area_of(&self, path: &str) -> &Area {
        let (first, _) = first_segment(path.strip_prefix('/').unwrap_or(path));
        let first = decode(first).unwrap_or_default();
        let area = self.areas.iter().find(|area| area.first_segment == first);
        area.unwrap_or(&self.open)
    }

    /// The row of [`Routes::otherwise`], if it applies to a path that is in no row.
    fn otherwise_at(&self, method: &Method, path: &str) -> Option<&Row<S>> {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let row = self.otherwise.as_ref().filter(|_| is_read)?;
        // The open area is the only one without a first segment.
        self.area_of(path).first_segment.is_empty().then_some(row)
    }

    /// The row for a path and method, and the values of its named segments. The failure is 404, 405 or 400.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<(&Row<S>, Vec<String>), Failure> {
        let mut values = Vec::new();
        let found = self.root.find(path.strip_prefix('/'), &mut values);
        let Some(node) = found.map_err(Failure::from)? else {
            let row = self.otherwise_at(method, path).ok_or_else(not_found)?;
            return Ok((row, Vec::new()));
        };
        let row = node.row_of(method).or_else(|| match *method {
            Method::HEAD => node.row_of(&Method::GET),
            _ => None,
        });
        match row.and_then(|row| self.rows.get(row)) {
            Some(row) => Ok((row, values)),
            None => Err(method_not_allowed(method, &node.allowed)),
        }
    }
}

impl<S> Row<S> {
    fn new<F, W>(pattern: &str, function: F) -> Row<S>
    where
        F: Fn(Arc<S>, Request) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Response, Failure>> + Send + 'static,
    {
        Row {
            pattern: pattern.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            names: names_in(pattern),
            function: Box::new(move |state, request| Box::pin(function(state, request))),
            limiter: None,
        }
    }

    pub(crate) fn limiter<'a>(&'a self, area: &'a Area) -> Option<&'a Arc<Limiter>> {
        self.limiter.as_ref().or(area.limiter.as_ref())
    }

    /// Names with their values.
    pub(crate) fn segments(&self, values: Vec<String>) -> Vec<(String, String)> {
        self.names.iter().cloned().zip(values).collect()
    }
}

fn names_in(pattern: &str) -> Vec<String> {
    let names = pattern.split('/').filter_map(|segment| segment.strip_prefix([':', '*']));
    names.map(str::to_owned).collect()
}

fn not_found() -> Failure {
    Failure::from(Error::not_found("no such path"))
}

fn method_not_allowed(method: &Method, allowed: &str) -> Failure {
    let message = format!("{method} is not among the methods of this path");
    let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, Code::Invalid, message);
    match HeaderValue::from_str(allowed) {
        Ok(allowed) => failure.header(ALLOW, allowed),
        Err(_) => failure,
    }
}

/// A node in the tree of segments.
#[derive(Default)]
struct Node {
    literals: BTreeMap<String, Node>,
    /// `:name`
    any: Option<Box<Node>>,
    /// `*name`
    rest: Option<Box<Node>>,
    rows: Vec<(Method, usize)>,
    /// The value of the header `Allow`.
    allowed: String,
}

impl Node {
    fn child(&mut self, segment: &str) -> &mut Node {
        match segment.as_bytes().first() {
            Some(b':') => self.any.get_or_insert_default(),
            Some(b'*') => self.rest.get_or_insert_default(),
            _ => self.literals.entry(segment.to_owned()).or_default(),
        }
    }

    fn row_of(&self, method: &Method) -> Option<usize> {
        let row = self.rows.iter().find(|(name, _)| name == method);
        row.map(|(_, row)| *row)
    }

    /// The node for the rest of a path; `None` if the path ends here.
    fn find(&self, path: Option<&str>, values: &mut Vec<String>) -> Result<Option<&Node>, Error> {
        let Some(path) = path else {
            return Ok((!self.rows.is_empty()).then_some(self));
        };
        let (segment, behind) = first_segment(path);
        let segment =
            decode(segment).ok_or_else(|| Error::new(Code::Invalid, "malformed percent-encoding in the path"))?;
        if segment.is_empty() {
            return Ok(self.find_empty(behind));
        }
        if let Some(node) = self.literals.get(&*segment)
            && let Some(found) = node.find(behind, values)?
        {
            return Ok(Some(found));
        }
        self.find_named(segment, path, behind, values)
    }

    /// Only the path `/` has an empty segment.
    fn find_empty(&self, behind: Option<&str>) -> Option<&Node> {
        self.literals.get("").filter(|_| behind.is_none())
    }

    fn find_named(
        &self,
        segment: Cow<'_, str>,
        path: &str,
        behind: Option<&str>,
        values: &mut Vec<String>,
    ) -> Result<Option<&Node>, Error> {
        let depth = values.len();
        if let Some(node) = &self.any {
            values.push(segment.into_owned());
            if let Some(found) = node.find(behind, values)? {
                return Ok(Some(found));
            }
            values.truncate(depth);
        }
        match &self.rest {
            Some(node) if !path.split('/').any(str::is_empty) => {
                values.push(path.to_owned());
                Ok(Some(node))
            }
            _ => Ok(None),
        }
    }

    fn note_allowed(&mut self) {
        let mut names = Vec::new();
        for (method, _) in &self.rows {
            names.push(method.as_str());
            if *method == Method::GET && self.row_of(&Method::HEAD).is_none() {
                names.push("HEAD");
            }
        }
        names.sort_unstable();
        self.allowed = names.join(", ");
        let literals = self.literals.values_mut();
        let others = [&mut self.any, &mut self.rest];
        let others = others.into_iter().flatten().map(|node| &mut **node);
        literals.chain(others).for_each(Node::note_allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn nothing(_: Arc<()>, _: Request) -> Result<Response, Failure> {
        Ok(Response::empty(204))
    }

    fn table(patterns: &[&str]) -> Result<Routes<()>, Error> {
        let empty = Routes::new().area(Area { guarded: true, ..Area::below("api") });
        let mut table = patterns.iter().fold(empty, |table, row| table.on(row, nothing));
        table.check().map(|()| table)
    }

    const ROWS: [&str; 8] = [
        "GET /",
        "GET /health",
        "GET /api/approvals/bindings/pending",
        "GET /api/approvals/:id",
        "POST /api/approvals/:id/decision",
        "GET /agents/:name/:id",
        "POST /agents/:name/:id",
        "PUT /streams/*path",
    ];

    fn find(method: Method, path: &str) -> Result<(String, Vec<String>), u16> {
        let table = table(&ROWS).unwrap();
        let found = table.find(&method, path);
        found.map(|(row, values)| (row.pattern.clone(), values)).map_err(|failure| failure.status_code().as_u16())
    }

    #[test]
    fn paths_find_their_rows() {
        let row =
            |pattern: &str, values: &[&str]| Ok((pattern.to_owned(), values.iter().map(ToString::to_string).collect()));
        assert_eq!(find(Method::GET, "/"), row("GET /", &[]));
        assert_eq!(find(Method::HEAD, "/health"), row("GET /health", &[]));
        assert_eq!(find(Method::GET, "/%68ealth"), row("GET /health", &[]));
        assert_eq!(find(Method::GET, "/api/approvals/bindings"), row("GET /api/approvals/:id", &["bindings"]));
        let decision = row("POST /api/approvals/:id/decision", &["bindings"]);
        assert_eq!(find(Method::POST, "/api/approvals/bindings/decision"), decision);
        assert_eq!(find(Method::GET, "/agents/a%2Fb/%E2%82%AC"), row("GET /agents/:name/:id", &["a/b", "€"]));
        assert_eq!(find(Method::PUT, "/streams/a/b%20c"), row("PUT /streams/*path", &["a/b%20c"]));
    }

    #[test]
    fn other_paths_do_not() {
        for path in ["/health/", "//", "/api", "/api/approvals//decision", "/agents/a/b/c", "/Health", "/streams/a//b"]
        {
            assert_eq!(find(Method::GET, path), Err(404), "{path}");
        }
        assert_eq!(find(Method::GET, "/api/approvals/%zz"), Err(400));
        assert_eq!(find(Method::GET, "/api/approvals/bindings/decision"), Err(405));
        assert_eq!(find(Method::POST, "/api/approvals/bindings/pending"), Err(405));
    }

    #[test]
    fn the_area_is_that_of_the_decoded_segment() {
        let table = table(&ROWS).unwrap();
        for path in ["/api", "/api/", "/api/x", "/%61pi/x", "/ap%69"] {
            assert!(table.area_of(path).guarded, "{path}");
        }
        for path in ["/", "/apix", "/health", "//api/x"] {
            assert!(!table.area_of(path).guarded, "{path}");
        }
    }

    #[test]
    fn a_bad_table_is_refused() {
        for rows in [&["GET /a", "GET  /a"][..], &["GET"], &["GET a"], &["GET /a b"], &["G@T /a"]] {
            assert!(table(rows).is_err(), "{rows:?}");
        }
    }
}
