//! The context windows and prices of models: `models.toml`, which the operator can edit.

use std::io::ErrorKind;
use std::path::Path;

use ken_types::Error;
use ken_types::event::{Cost, Usage};
use ken_types::rule::pattern_matches;
use serde::Deserialize;

use crate::provider::{Rates, Window};

/// What is known of a model. A property that is not known has its default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// `provider/model`. `*` matches any text.
    name: String,
    /// The context window, in tokens.
    pub(crate) window: Option<u64>,
    /// The maximum length of an answer, in tokens.
    output: Option<u64>,
    /// Whether it is known to see images.
    #[serde(default)]
    pub(crate) images: bool,
    #[serde(default)]
    price: Prices,
}

/// Prices are in US dollars per million tokens; 0 if they are unknown. Cached tokens whose price is unknown cost as much as others, so
/// that no cost is missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Prices {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

/// The table of models. The first matching entry applies.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Table {
    model: Vec<Model>,
}

const WINDOW: u64 = 98_304;
const OUTPUT: u64 = 8_192;
const MAX_TOKENS: u64 = 1_000_000_000;
const MAX_PRICE: f64 = 1_000_000.0;

impl Table {
    /// Reads `models.toml` beside ken.toml, then that of the installation or else the copy in the program. The first
    /// entry that matches a name applies, so the operator's file needs to contain only changes.
    pub(crate) fn installed(config: Option<&Path>) -> Result<Table, Error> {
        let own = config.map(|config| config.with_file_name("models.toml"));
        let shipped = ken_types::share::find("models.toml");
        let mut table = Table::default();
        let mut is_shipped = false;
        for (file, ours) in own.map(|file| (file, false)).into_iter().chain(shipped.map(|file| (file, true))) {
            let name = file.display().to_string();
            let text = match std::fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                // Without the prices in this file, a limit on the cost would have no effect.
                Err(error) => return Err(Error::invalid(name, format!("cannot be read: {error}"))),
            };
            table.model.extend(read(&name, &text)?.model);
            is_shipped |= ours;
        }
        if !is_shipped {
            let built_in = read("models.toml", include_str!("../../../share/models.toml"))?;
            table.model.extend(built_in.model);
        }
        Ok(table)
    }

    pub(crate) fn model(&self, name: &str) -> Model {
        self.model.iter().find(|model| pattern_matches(&model.name, name)).cloned().unwrap_or_default()
    }
}

fn read(file: &str, text: &str) -> Result<Table, Error> {
    let table: Table = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        Error::invalid(format!("{file}:{line}"), error.message().to_owned())
    })?;
    match table.model.iter().find_map(|model| Some((model, model.fault()?))) {
        Some((model, fault)) => Err(Error::invalid(file, format!("{}: {fault}", model.name))),
        None => Ok(table),
    }
}

impl Model {
    /// Returns the window in which its requests have to fit.
    pub(crate) fn window(&self) -> Window {
        let tokens = self.window.unwrap_or(WINDOW);
        Window { tokens, reserve: self.output().min(tokens / 4) }
    }

    pub(crate) fn output(&self) -> u64 {
        self.output.unwrap_or(OUTPUT)
    }

    /// Returns the error message for the first number that is out of range, or `None`.
    fn fault(&self) -> Option<String> {
        let tokens = [("window", self.window), ("output", self.output)];
        let wrong =
            tokens.into_iter().find(|(_, tokens)| tokens.is_some_and(|tokens| !(1..=MAX_TOKENS).contains(&tokens)));
        if let Some((name, _)) = wrong {
            return Some(format!("{name} is 1 to {MAX_TOKENS}"));
        }
        let Prices { input, output, cache_read, cache_write } = self.price;
        let prices = [("input", input), ("output", output), ("cache_read", cache_read), ("cache_write", cache_write)];
        let (name, _) = prices.into_iter().find(|(_, price)| !(0.0..=MAX_PRICE).contains(price))?;
        Some(format!("price.{name} is 0 to {MAX_PRICE}"))
    }
}

/// Returns the highest prices of a token, cached or not.
pub(crate) fn rates(model: &Model) -> Rates {
    let prices = &model.price;
    Rates { input: prices.input.max(prices.cache_read).max(prices.cache_write) / 1e6, output: prices.output / 1e6 }
}

pub(crate) fn price(model: &Model, usage: &Usage) -> Cost {
    let of = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
    let prices = &model.price;
    let cached = |price: f64| if price > 0.0 { price } else { prices.input };
    let cost = Cost {
        input: of(usage.input, prices.input),
        output: of(usage.output, prices.output),
        cache_read: of(usage.cache_read, cached(prices.cache_read)),
        cache_write: of(usage.cache_write, cached(prices.cache_write)),
        total: 0.0,
    };
    Cost { total: cost.input + cost.output + cost.cache_read + cost.cache_write, ..cost }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_fits_counts() {
        let text = "[[model]]\nname = \"openai/a-*-mini\"\nwindow = 1000\nprice = { input = 2.0, output = 4.0 }\n\
                    [[model]]\nname = \"openai/*\"\noutput = 7";
        let table = read("t", text).unwrap();
        let mini = table.model("openai/a-b-mini");
        assert_eq!(mini.window(), Window { tokens: 1_000, reserve: 250 });
        assert_eq!((mini.output(), table.model("openai/a").output()), (OUTPUT, 7));
        assert_eq!(table.model("anthropic/a").window(), Window { tokens: WINDOW, reserve: OUTPUT });
        let usage = Usage { input: 1_000_000, output: 500_000, ..Usage::default() };
        assert_eq!(price(&mini, &usage).total, 4.0);
        // Cached tokens have their own price, or else that of other input.
        let cached = Usage { cache_read: 1_000_000, ..Usage::default() };
        assert_eq!(price(&mini, &cached).total, 2.0);
        let known = read("t", "[[model]]\nname = \"a/b\"\nprice = { input = 2.0, cache_read = 0.5 }").unwrap();
        assert_eq!(price(&known.model("a/b"), &cached).total, 0.5);
        assert!(read("models.toml", include_str!("../../../share/models.toml")).is_ok());
        for (line, wanted) in [
            ("nme = 1", "(at t:2)"),
            ("name = \"a\"\nprice = { input = -1.0 }", "a: price.input is 0 to 1000000 (at t)"),
            ("name = \"a\"\nprice = { output = nan }", "a: price.output is 0 to 1000000 (at t)"),
            ("name = \"a\"\nwindow = 0", "a: window is 1 to 1000000000 (at t)"),
        ] {
            let error = read("t", &format!("[[model]]\n{line}")).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
