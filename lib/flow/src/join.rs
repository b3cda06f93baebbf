//! Waiting for several futures at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Runs futures concurrently in the caller's task, so that dropping the caller drops them. It polls every future each time,
/// which is fine for the few branches of a workflow.
pub(crate) async fn join_all<T, F: Future<Output = T>>(futures: impl Iterator<Item = F>) -> Vec<T> {
    let mut open: Vec<Option<Pin<Box<F>>>> = futures.map(|future| Some(Box::pin(future))).collect();
    let mut done: Vec<Option<T>> = open.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_ready = true;
        for (future, done) in open.iter_mut().zip(&mut done) {
            match future.as_mut().map(|future| future.as_mut().poll(context)) {
                None => {}
                Some(Poll::Pending) => is_ready = false,
                Some(Poll::Ready(result)) => {
                    *done = Some(result);
                    *future = None;
                }
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
