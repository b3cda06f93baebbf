//! Reservations of model calls that are never settled.

use ken_types::config::Budget;
use ken_types::ops::budget::{BudgetReserve, BudgetSettle, BudgetSpent, OfBudget, Reserve, Reserved, Settle};
use ken_types::{Code, Error, Timestamp};

use crate::kit::*;

const HOUR: i64 = 3_600 * 1_000;

/// Returns a reservation for a request of 100 tokens and an answer of at most 900, in a session that may use 1,000.
fn call(id: &str, session: &str) -> Reserve {
    Reserve {
        id: id.into(),
        session: Some(session.into()),
        input_tokens: 100,
        output_tokens: 900,
        least_output_tokens: 10,
        input_price: 0.0,
        output_price: 0.0,
        caps: Budget { tokens_per_session: 1_000, ..Budget::default() },
    }
}

async fn reserve(kit: &Kit, id: &str, session: &str) -> Result<Reserved, Error> {
    kit.write::<BudgetReserve>(call(id, session)).await
}

/// Returns how many tokens of the session are used, and how many of them are reserved.
async fn spent(kit: &Kit) -> (u64, u64) {
    let args = OfBudget { day: "2027-02-03".into(), session: Some("s".into()) };
    let of_session = kit.read::<BudgetSpent>(args).await.unwrap().session;
    (of_session.tokens, of_session.reserved_tokens)
}

async fn settle(kit: &Kit, id: &str, tokens: u64) {
    let args = Settle { id: id.into(), tokens, cost: 0.0 };
    kit.write::<BudgetSettle>(args).await.unwrap();
}

#[tokio::test]
async fn a_reservation_of_a_call_that_a_crash_has_cut_makes_others_wait_for_an_hour_only() {
    let kit = Kit::new();
    reserve(&kit, "cut", "s").await.unwrap();
    kit.clock.advance(HOUR - 1);
    assert_eq!(reserve(&kit, "next", "s").await.unwrap_err().code, Code::Busy);
    kit.clock.advance(1);
    let error = reserve(&kit, "next", "s").await.unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (Code::Forbidden, Some("/caps")));
    // It still counts as used, and it can be settled until it is a day old.
    kit.clock.advance(22 * HOUR);
    assert!(reserve(&kit, "next", "s").await.is_err());
    assert_eq!(spent(&kit).await.0, 1_000);
    settle(&kit, "cut", 300).await;
    assert_eq!(spent(&kit).await, (300, 0));
}

/// What a session has used counts for ninety days, although the first call of each day looks for what is older.
#[tokio::test]
async fn what_a_session_has_used_counts_for_ninety_days() {
    let kit = Kit::new();
    reserve(&kit, "first", "s").await.unwrap();
    settle(&kit, "first", 1_000).await;
    // After a pause, it is the call of the day after that looks for it.
    for (days, id, is_over) in [(89, "second", true), (2, "third", true), (1, "fourth", false)] {
        kit.clock.advance(days * 24 * HOUR);
        reserve(&kit, &format!("{id} of another"), id).await.unwrap();
        assert_eq!(reserve(&kit, id, "s").await.is_err(), is_over, "after {days} days more");
    }
}

/// The first call of a day is made with a clock that is a century ahead, and so is one of the next day by the right clock.
#[tokio::test]
async fn a_call_under_a_wrong_date_forgets_nothing() {
    const AHEAD_MS: i64 = 36_500 * DAY_MS;
    let mut kit = Kit::new();
    reserve(&kit, "first", "s").await.unwrap();
    settle(&kit, "first", 1_000).await;
    for (id, ahead) in [("wrong", AHEAD_MS), ("right", DAY_MS - AHEAD_MS)] {
        kit.restart_later(ahead);
        reserve(&kit, id, id).await.unwrap();
        assert_eq!(spent(&kit).await.0, 1_000, "{id}");
        assert_eq!(reserve(&kit, "again", "s").await.unwrap_err().code, Code::Forbidden, "{id}");
    }
}

#[tokio::test]
async fn a_reservation_that_nobody_has_settled_for_a_day_is_deleted() {
    // A deleted reservation cannot be settled, so what it reserved stays used.
    for (age, expected) in [(24 * HOUR, 300), (24 * HOUR + 1, 1_000)] {
        let kit = Kit::new();
        reserve(&kit, "cut", "s").await.unwrap();
        kit.clock.advance(age);
        reserve(&kit, "next", "another").await.unwrap();
        settle(&kit, "cut", 300).await;
        assert_eq!(spent(&kit).await, (expected, 0), "after {age} ms");
    }
}

#[tokio::test]
async fn what_is_shown_as_reserved_is_that_of_the_last_hour() {
    let kit = Kit::with_clock(Timestamp::now().plus_millis(-2 * HOUR));
    reserve(&kit, "cut", "s").await.unwrap();
    assert_eq!(spent(&kit).await, (1_000, 0));
    settle(&kit, "cut", 50).await;
    kit.clock.advance(2 * HOUR);
    reserve(&kit, "under way", "s").await.unwrap();
    assert_eq!(spent(&kit).await, (1_000, 950));
}

#[tokio::test]
async fn a_price_and_a_cap_are_amounts_of_money() {
    let kit = Kit::new();
    let mut priced = call("1", "s");
    priced.output_price = -1.0;
    let mut capped = call("2", "s");
    capped.caps.cost_per_session = f64::INFINITY;
    for (args, at) in [(priced, "/output_price"), (capped, "/caps/cost_per_session")] {
        let error = kit.write::<BudgetReserve>(args).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some(at)));
    }
}
