//! GET /metrics and /metrics/prometheus: the same metrics in two formats.

use std::collections::HashSet;
use std::sync::Arc;

use ken_http::http::header::HeaderValue;
use ken_http::{Failure, Request, Response};
use serde_json::{Map, Value, json};

use crate::app::Cognitive;
use crate::gate::Caller;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// GET /metrics/prometheus
pub(crate) async fn prometheus(app: Arc<Cognitive>, _: Caller, request: Request) -> Result<Response, Failure> {
    let text = app.metrics_text()?;
    let wants_open = request.header("accept").is_some_and(|accept| accept.contains("application/openmetrics-text"));
    if wants_open {
        return Ok(Response::bytes(200, OPEN_METRICS, text));
    }
    Ok(Response::bytes(200, PROMETHEUS, as_prometheus(&text)))
}

/// Converts OpenMetrics to the older text format. There the name of a counter in `# HELP` and `# TYPE` is the name of its
/// samples, which ends with `_total`, and there are no units and no mark at the end.
/// <https://prometheus.io/docs/instrumenting/exposition_formats/>
fn as_prometheus(text: &str) -> String {
    let counters: HashSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut converted = String::with_capacity(text.len());
    for line in text.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let mut words = line.splitn(4, ' ');
        let comment = (words.next(), words.next(), words.next(), words.next());
        if let (Some("#"), Some(keyword), Some(name), Some(rest)) = comment
            && counters.contains(name)
        {
            converted.extend(["# ", keyword, " ", name, "_total ", rest, "\n"]);
        } else {
            converted.extend([line, "\n"]);
        }
    }
    converted
}

/// GET /metrics
pub(crate) async fn metrics(app: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
    Response::json(200, &as_json(&app.metrics_text()?))
}

/// Converts the text to an object by name. A sample is a number or, if it has labels, a list of labels and values.
fn as_json(text: &str) -> Value {
    let mut all = Map::new();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    for (sample, value) in samples.filter_map(|line| line.rsplit_once(' ')) {
        let value: Value = serde_json::from_str(value).unwrap_or(Value::Null);
        match sample.split_once('{') {
            None => drop(all.insert(sample.to_owned(), value)),
            Some((name, labels)) => {
                let entry = all.entry(name).or_insert_with(|| json!([]));
                if let Value::Array(entries) = entry {
                    entries.push(json!({"labels": read_labels(labels), "value": value}));
                }
            }
        }
    }
    Value::Object(all)
}

/// Parses `a="x",b="y"}`. No value contains a quote or a comma, because none is text from a caller.
fn read_labels(text: &str) -> Map<String, Value> {
    let pairs = text.trim_end_matches('}').split("\",");
    let pair = |pair: &str| {
        let (name, value) = pair.split_once("=\"")?;
        Some((name.to_owned(), Value::from(value.trim_end_matches('"'))))
    };
    pairs.filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use ken_http::http::StatusCode;
    use std::time::Duration;

    fn filled() -> Metrics {
        let metrics = Metrics::new();
        metrics.request("execute", StatusCode::OK, Duration::from_millis(3));
        metrics.request("execute", StatusCode::NOT_FOUND, Duration::from_millis(3));
        metrics.limited("quota");
        metrics.audited(2, &Ok(()));
        metrics.set_state(3, 4, &[]);
        metrics
    }

    #[test]
    fn a_real_parser_reads_every_sample_of_the_text() {
        let text = as_prometheus(&filled().text().unwrap());
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        let scrape = prometheus_parse::Scrape::parse(lines).unwrap();
        let find = |name: &str, label: (&str, &str)| {
            let found = scrape
                .samples
                .iter()
                .find(|sample| sample.metric == name && sample.labels.get(label.0).unwrap_or_default() == label.1);
            found.unwrap_or_else(|| panic!("no {name} in {text}")).value.clone()
        };
        use prometheus_parse::Value::{Counter, Gauge, Histogram};
        assert_eq!(find("ken_requests_total", ("status", "404")), Counter(1.0));
        assert_eq!(find("ken_audit_records_total", ("", "")), Counter(2.0));
        assert!(text.contains("# HELP ken_requests_total Requests answered"), "{text}");
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
        assert_eq!(find("ken_queue_length", ("queue", "audit")), Gauge(3.0));
        let Histogram(buckets) = find("ken_request_duration_seconds", ("route", "execute")) else {
            panic!("no histogram in {text}");
        };
        assert_eq!(buckets.iter().map(|bucket| bucket.count).fold(0.0, f64::max), 2.0);
    }

    #[test]
    fn the_json_has_the_same_numbers() {
        let json = as_json(&filled().text().unwrap());
        assert_eq!(json["ken_audit_records_total"], 2);
        let requests = json["ken_requests_total"].as_array().unwrap();
        assert!(requests.contains(&json!({"labels": {"route": "execute", "status": "404"}, "value": 1})));
        assert_eq!(json["ken_sessions"], 4);
    }
}
