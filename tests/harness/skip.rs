//! Tests that cannot run everywhere.

/// Says why a test does not run here. `KEN_SKIPS` has the reasons that are accepted, separated by commas, and all are accepted without it.
/// CI sets it, because a test that stops running without anybody's notice is worth nothing.
#[allow(clippy::print_stdout)]
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
    if let Ok(accepted) = std::env::var("KEN_SKIPS") {
        let is_accepted = accepted.split(',').any(|one| one.trim() == reason);
        assert!(is_accepted, "this test must not be skipped here: {reason} (KEN_SKIPS accepts: {accepted:?})");
    }
}
