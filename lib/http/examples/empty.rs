//! An empty answer, by hyper alone and through this crate: the floor that `make bench` prints its figures beside.
//!
//! `empty hyper` or `empty ken`; prints the address it listens on and serves until it is killed. Drive it with any
//! load generator at `/health`.

use std::convert::Infallible;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ken_http::{Area, Failure, Request, Response, Routes, Server};

fn main() -> ExitCode {
    let which = std::env::args().nth(1).unwrap_or_default();
    match serve(&which) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "empty hyper|ken: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(which: &str) -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
    writeln!(std::io::stdout(), "{}", socket.local_addr()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match which {
        "hyper" => runtime.block_on(bare(socket)),
        "ken" => runtime.block_on(through_ken(socket)),
        other => Err(format!("no such floor: {other:?}").into()),
    }
}

const ANSWER: &[u8] = br#"{"ok":true}"#;

async fn health(_: Arc<()>, _: Request) -> Result<Response, Failure> {
    Ok(Response::json_bytes(200, ANSWER))
}

async fn through_ken(socket: std::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
    let routes = Routes::new().area(Area { guarded: true, ..Area::below("api") }).on("GET /health", health);
    Server::new(routes, Arc::new(())).run(socket, std::future::pending()).await?;
    Ok(())
}

async fn bare(socket: std::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
    socket.set_nonblocking(true)?;
    let socket = tokio::net::TcpListener::from_std(socket)?;
    loop {
        let (stream, _) = socket.accept().await?;
        stream.set_nodelay(true)?;
        let service = service_fn(|_| async { Ok::<_, Infallible>(bare_answer()) });
        let talk = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(talk);
    }
}

fn bare_answer() -> http::Response<Full<Bytes>> {
    let mut answer = http::Response::new(Full::new(Bytes::from_static(ANSWER)));
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}
