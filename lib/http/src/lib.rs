//! The HTTP listener of ken, on hyper (HTTP/1.1 and 1.0): connections and their limits, a route table, who may call,
//! rate limits, errors in their envelopes, and answers that take long.
//!
//! A program fills a [`Routes`] table with functions `async fn(Arc<S>, Request) -> Result<Response, Failure>` and gives
//! it to a [`Server`]. Everything that the contract demands of connections, heads, bodies and headers is done below
//! those functions; they see requests that are well formed, admitted and within the rate.
//!
//! ```no_run
//! use std::sync::Arc;
//! use ken_http::{Area, Failure, Request, Response, Routes, Server};
//!
//! struct App { greeting: &'static str }
//!
//! async fn greet(app: Arc<App>, request: Request) -> Result<Response, Failure> {
//!     Response::json(200, &format!("{} {}", app.greeting, request.segment("name")))
//! }
//!
//! # async fn start(socket: std::net::TcpListener) -> Result<(), ken_types::Error> {
//! let routes = Routes::new()
//!     .area(Area { guarded: true, ..Area::below("api") })
//!     .on("GET /api/greet/:name", greet);
//! let server = Server::new(routes, Arc::new(App { greeting: "hello" }));
//! server.run(socket, std::future::pending()).await
//! # }
//! ```

mod access;
mod body;
mod chunks;
mod connection;
mod failure;
mod files;
mod head;
mod lazy_timeout;
mod life;
mod limits;
mod listener;
mod memory;
mod outlet;
mod owner;
mod path;
mod places;
mod rate;
mod request;
mod routes;
mod server;
mod service;
mod shutdown;
mod socket;

pub use access::{Access, Caller, Pass, Trust, names_loopback, single};
pub use body::Frames;
pub use connection::WriteResult;
pub use failure::{Envelope, Failure, plain, typed};
pub use files::{Files, etag};
pub use http;
pub use ken_types::Rate;
pub use ken_types::uri::decode;
pub use limits::Limits;
pub use listener::Server;
pub use outlet::{Outlet, SharedFrame};
pub use owner::can_see_owners;
pub use path::Query;
pub use places::caller_of;
pub use rate::{Clock, Key, Limiter, Quota};
pub use request::{LongResponse, Media, Request, Response, header_value};
pub use routes::{Area, PageHeaders, Routes};
pub use server::listening;
pub use shutdown::Shutdown;
