//! Trends in series of numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::answer::Step;
use crate::numbers::{rounded, wilson};
use crate::reading::{Condition, Reading};

/// The minimum number of points for a trend. Two points always lie on a line, so they show nothing.
const MIN_POINTS: usize = 3;

/// The minimum share of the variance that a trend must explain, from 0 to 1.
const MIN_FIT: f64 = 0.5;

/// How much more of the variance an exponential must explain than a line. The line is the simpler explanation.
const MARGIN: f64 = 0.01;

/// How a number in the observations depends on another one, or on the order of the observations.
#[derive(Serialize)]
pub(crate) struct Trend {
    of: String,
    with: String,
    direction: &'static str,
    fit: &'static str,
    /// For a line, the increase per unit; for an exponential, the factor per `step`.
    rate: f64,
    step: f64,
    r_squared: f64,
    points: usize,
    confidence: f64,
    #[serde(skip)]
    places: Vec<usize>,
}

/// Returns the trends of observations with the same wording. Among the remaining ones, returns those of observations
/// that state the same kinds of numbers of different things.
pub(crate) fn find(texts: &[&str]) -> Vec<Trend> {
    let readings: Vec<Reading> = texts
        .iter()
        .enumerate()
        .map(|(place, text)| Reading::of(place, text))
        .filter(|reading| !reading.numbers.is_empty())
        .collect();
    let (alike, others) = grouped(readings.iter(), Reading::wording);
    let (framed, _) = grouped(others.into_iter(), Reading::frame);
    let of_alike = alike.iter().flat_map(|points| of_series(points, true));
    // The order of observations about different things has no meaning.
    let of_framed = framed.iter().flat_map(|points| of_series(points, false));
    let mut trends: Vec<Trend> = of_alike.chain(of_framed).collect();
    trends.sort_by_key(|trend| trend.places.first().copied());
    trends
}

/// Groups readings by a key. Returns the groups that are large enough for a trend, and all other readings in their
/// order.
fn grouped<'r>(
    readings: impl Iterator<Item = &'r Reading>,
    form: impl Fn(&'r Reading) -> Vec<&'r str>,
) -> (Vec<Vec<&'r Reading>>, Vec<&'r Reading>) {
    let mut groups: BTreeMap<Vec<&str>, Vec<&Reading>> = BTreeMap::new();
    for reading in readings {
        groups.entry(form(reading)).or_default().push(reading);
    }
    let (series, few): (Vec<_>, Vec<_>) = groups.into_values().partition(|group| group.len() >= MIN_POINTS);
    let mut others: Vec<&Reading> = few.into_iter().flatten().collect();
    others.sort_by_key(|reading| reading.place);
    (series, others)
}

/// Returns the trends of each varying number as a function of the number that is the condition. If there is only one
/// number and `by_order` is set, they are functions of the order of the observations.
fn of_series(points: &[&Reading], by_order: bool) -> Vec<Trend> {
    let Some(first) = points.first() else {
        return Vec::new();
    };
    let places: Vec<usize> = points.iter().map(|reading| reading.place).collect();
    let column = |slot: usize| -> Vec<f64> {
        let numbers = points.iter().filter_map(|reading| reading.numbers.get(slot));
        numbers.map(|number| number.value).collect()
    };
    let varying: Vec<usize> = (0..first.numbers.len()).filter(|&slot| varies(points, slot)).collect();
    let condition = condition(first, &varying);
    let against: Vec<f64> = match condition {
        Some(slot) => column(slot),
        None if by_order => (0..points.len()).map(|place| place as f64).collect(),
        None => return Vec::new(),
    };
    let with = condition.and_then(|slot| first.numbers.get(slot)).map_or("order", |number| number.name.as_str());
    let others = varying.iter().filter(|&&slot| Some(slot) != condition);
    others.filter_map(|&slot| fit(&against, &column(slot), &name(first, slot, &varying), with, &places)).collect()
}

fn varies(points: &[&Reading], slot: usize) -> bool {
    let mut values = points.iter().filter_map(|reading| reading.numbers.get(slot)).map(|number| number.value);
    let first = values.next();
    values.any(|value| Some(value) != first)
}

/// Returns the index of the varying number that is the condition for the others.
fn condition(reading: &Reading, varying: &[usize]) -> Option<usize> {
    let stated = |condition: Condition| {
        let is_stated = |slot: &&usize| {
            let number = reading.numbers.get(**slot);
            number.is_some_and(|number| number.condition == condition)
        };
        varying.iter().find(is_stated)
    };
    let stated = || stated(Condition::Plain).or_else(|| stated(Condition::Named));
    match varying {
        [] | [_] => None,
        [first, ..] => Some(*stated().unwrap_or(first)),
    }
}

/// Returns the name of a number. If the number before it never changes, that number is included.
fn name(reading: &Reading, slot: usize, varying: &[usize]) -> String {
    let constant = slot.checked_sub(1).filter(|before| varying.binary_search(before).is_err());
    let own = || reading.numbers.get(slot).map_or_else(String::new, |number| number.name.clone());
    constant.and_then(|constant| reading.name_after(constant, slot)).unwrap_or_else(own)
}

fn fit(x: &[f64], y: &[f64], of: &str, with: &str, places: &[usize]) -> Option<Trend> {
    let mut points: Vec<(f64, f64)> = x.iter().copied().zip(y.iter().copied()).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let line = Line::fit_line(&points)?;
    let linear = r_squared(&points, |x| line.at(x))?;
    let logs: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x, y.ln())).collect();
    let curve = if points.iter().all(|point| point.1 > 0.0) { Line::fit_line(&logs) } else { None };
    let exponential = curve.as_ref().and_then(|curve| r_squared(&points, |x| curve.at(x).exp())).unwrap_or(0.0);
    let step = typical_step(&points)?;
    let (fit, slope, rate, r_squared) = match curve {
        Some(curve) if exponential > linear + MARGIN => {
            ("exponential", curve.slope, (curve.slope * step).exp(), exponential)
        }
        _ => ("linear", line.slope, line.slope, linear),
    };
    let (agreeing, steps) = agreement(&points, slope);
    let is_trend = r_squared >= MIN_FIT && slope != 0.0 && agreeing * 2 > steps;
    is_trend.then(|| Trend {
        of: of.to_owned(),
        with: with.to_owned(),
        direction: if slope > 0.0 { "rising" } else { "falling" },
        fit,
        rate: rounded(rate),
        step: rounded(step),
        r_squared: rounded(r_squared),
        points: points.len(),
        confidence: rounded(r_squared * wilson(agreeing, steps)),
        places: places.to_vec(),
    })
}

struct Line {
    slope: f64,
    start: f64,
}

impl Line {
    /// Fits a line by least squares; `None` if all points have the same x.
    fn fit_line(points: &[(f64, f64)]) -> Option<Line> {
        let n = points.len() as f64;
        let (mean_x, mean_y) =
            (mean(points.iter().map(|point| point.0), n), mean(points.iter().map(|point| point.1), n));
        let spread: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
        let common: f64 = points.iter().map(|point| (point.0 - mean_x) * (point.1 - mean_y)).sum();
        let slope = common / spread;
        (spread > 0.0 && slope.is_finite()).then_some(Line { slope, start: mean_y - slope * mean_x })
    }

    fn at(&self, x: f64) -> f64 {
        self.start + self.slope * x
    }
}

fn mean(values: impl Iterator<Item = f64>, n: f64) -> f64 {
    values.sum::<f64>() / n
}

/// Returns the share of the variance of y that the fit explains; `None` if y does not vary.
fn r_squared(points: &[(f64, f64)], fit: impl Fn(f64) -> f64) -> Option<f64> {
    let mean_y = mean(points.iter().map(|point| point.1), points.len() as f64);
    let total: f64 = points.iter().map(|point| (point.1 - mean_y).powi(2)).sum();
    let left: f64 = points.iter().map(|point| (point.1 - fit(point.0)).powi(2)).sum();
    let share = 1.0 - left / total;
    (total > 0.0 && share.is_finite()).then_some(share.max(0.0))
}

/// Returns the median distance between neighbouring values of x. Equal values are left out.
fn typical_step(points: &[(f64, f64)]) -> Option<f64> {
    let pairs = points.iter().zip(points.iter().skip(1));
    let mut steps: Vec<f64> = pairs.map(|(a, b)| b.0 - a.0).filter(|&step| step > 0.0).collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied()
}

/// Returns how many steps between neighbouring points have the direction of the slope, and how many steps there are.
fn agreement(points: &[(f64, f64)], slope: f64) -> (usize, usize) {
    let pairs = points.iter().zip(points.iter().skip(1));
    let agreeing = pairs.filter(|(a, b)| (b.1 - a.1) * slope > 0.0).count();
    (agreeing, points.len() - 1)
}

impl Trend {
    /// Returns the indices of the observations that the trend is based on.
    pub(crate) fn places(&self) -> &[usize] {
        &self.places
    }

    pub(crate) fn step(&self, texts: &[&str]) -> Step {
        let Trend { of, with, direction, fit, rate, step, r_squared, points, confidence, .. } = self;
        let how = match *fit {
            "linear" => format!("{rate:+} per 1"),
            _ if (rate - 2.0).abs() < 0.05 => format!("doubles every {step}"),
            _ if (rate - 0.5).abs() < 0.02 => format!("halves every {step}"),
            _ => format!("times {rate} every {step}"),
        };
        let conclusion = format!("\"{of}\" is {direction} with \"{with}\": {how}");
        let premises = self.places.iter().filter_map(|&place| texts.get(place));
        Step {
            kind: "trend",
            rule: None,
            premises: premises.map(|&text| text.to_owned()).collect(),
            explanation: format!("{conclusion}; {fit} fit, R² {r_squared:.3} over {points} points"),
            conclusion,
            confidence: *confidence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_is_exponential() {
        let trends = find(&["the rate is 1.5 at 10 C", "the rate is 3 at 20 C", "the rate is 6 at 30 C"]);
        assert_eq!(trends.len(), 1);
        let trend = &trends[0];
        assert_eq!((trend.of.as_str(), trend.direction, trend.fit), ("rate", "rising", "exponential"));
        assert_eq!((trend.rate, trend.step, trend.r_squared), (2.0, 10.0, 1.0));
    }

    #[test]
    fn a_line_falls_with_the_order() {
        let trends = find(&["level 30", "level 20", "level 10", "level -5"]);
        assert_eq!((trends[0].direction, trends[0].fit, trends[0].with.as_str()), ("falling", "linear", "order"));
    }

    #[test]
    fn noise_two_points_and_constants_are_not_a_trend() {
        assert!(find(&["a 1", "a 9", "a 2", "a 8", "a 1"]).is_empty());
        assert!(find(&["a 1", "a 2"]).is_empty());
        assert!(find(&["a 1", "a 1", "a 1"]).is_empty());
    }
}
