//! `ken open`: opens the console in a browser, with a link that lets that browser in once.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use ken_client::Endpoint;
use ken_trusted::Others;
use ken_types::Error;
use ken_types::ops::Nothing;
use ken_types::ops::gateway::{ConsoleCode, LinkCode};
use ken_types::places::Places;

use crate::client::call;
use crate::gateway::url;
use crate::globals::Globals;
use crate::output::{print_line, print_note};

const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The run directory of the system service, which only its user can enter.
const SYSTEM_RUN: &str = "/run/ken";
/// The file that leads the browser to the link, in the run directory.
const PAGE: &str = "console.html";

#[derive(Debug, Args)]
pub(crate) struct Open {
    /// Print a link that works for a minute, once, instead of opening a browser
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(globals: &Globals, open: &Open) -> Result<(), Error> {
    if globals.url.is_some() {
        let error = Error::invalid("--url", "the link comes from the gateway's own machine");
        return Err(error.hint("run `ken open --print` there, and follow the link here"));
    }
    let places = globals.places()?;
    let link = link(&places)?;
    if !open.print {
        let Err(why) = show(&places, &link) else { return Ok(()) };
        print_note(&format!("no browser is opened: {why}; follow this link within a minute"));
    }
    print_line(&link)
}

fn link(places: &Places) -> Result<String, Error> {
    let LinkCode { code, public_url, .. } = call::<ConsoleCode>(places, "gateway", &Nothing {}, Some(CALL_TIMEOUT))
        .map_err(|error| explain(places, error))?;
    let address = match public_url {
        Some(url) => url,
        None => Endpoint::new(&url(places)?).url().to_owned(),
    };
    Ok(format!("{address}/#link={code}"))
}

/// Says how the link of the system service is had, which runs as a user of its own.
fn explain(places: &Places, error: Error) -> Error {
    let is_other = places.run != Path::new(SYSTEM_RUN) && Path::new(SYSTEM_RUN).exists();
    if is_other { error.hint("for the system service: `sudo ken open --print`") } else { error }
}

/// Opens a browser with a private file that leads to the link. The link itself does not get into the arguments of a program,
/// which every user of the machine can read.
fn show(places: &Places, link: &str) -> Result<(), Error> {
    let program = browser()?;
    let path = places.run.join(PAGE);
    ken_trusted::replace(&path, page(link).as_bytes(), Others::Nothing)?;
    let failed = |why: String| Error::unavailable(format!("{}: {why}", program.display()));
    let mut command = Command::new(&program);
    let status = command.arg(&path).stdin(Stdio::inherit()).stdout(Stdio::null()).status();
    let status = status.map_err(|error| failed(error.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
}

fn browser() -> Result<OsString, Error> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(browser) = set("BROWSER") {
        return Ok(browser);
    }
    let has_screen = set("WAYLAND_DISPLAY").or_else(|| set("DISPLAY")).is_some();
    if has_screen { Ok("xdg-open".into()) } else { Err(Error::unavailable("there is no graphical session here")) }
}

fn page(link: &str) -> String {
    let link = link.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    format!(
        "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer>\
         <meta http-equiv=refresh content=\"0; url={link}\"><title>ken</title>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_inside_its_attribute() {
        let page = page("http://x/\"><script>&#link=1");
        assert!(page.contains("url=http://x/&quot;>&lt;script>&amp;#link=1\">"), "{page}");
    }
}
