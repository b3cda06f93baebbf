//! Random operations compared with a model in memory: the order of claims, the holders, and the content of streams.

use std::collections::{BTreeMap, VecDeque};

use ken_types::event::Outcome;
use ken_types::ops::store::*;
use ken_types::{Code, Offset};
use proptest::prelude::*;

use crate::kit::*;

const INSTANCES: usize = 3;
const HOLDERS: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Prompt {
        instance: usize,
        policy: Policy,
    },
    Claim {
        holder: usize,
        max: u32,
    },
    Append {
        instance: usize,
        count: u64,
        overlap: u64,
    },
    Settle {
        instance: usize,
        outcome: Outcome,
    },
    /// A holder writes although another one has replaced it.
    WriteLate,
    Disconnect {
        holder: usize,
    },
    Renew {
        holder: usize,
        instance: usize,
    },
    Cancel {
        instance: usize,
        /// Whether to cancel the last queued submission by its id.
        last: bool,
    },
    Abort {
        instance: usize,
    },
    Restart,
    Pass {
        ms: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let policy = prop_oneof![6 => Just(Policy::Queue), 1 => Just(Policy::Reject), 1 => Just(Policy::Interrupt)];
    let outcome = prop_oneof![Just(Outcome::Completed), Just(Outcome::Failed), Just(Outcome::Aborted)];
    let (instance, holder) = (0..INSTANCES, 0..HOLDERS);
    prop_oneof![
        8 => (instance.clone(), policy).prop_map(|(instance, policy)| Step::Prompt { instance, policy }),
        8 => (holder.clone(), 1..4u32).prop_map(|(holder, max)| Step::Claim { holder, max }),
        6 => (instance.clone(), 1..5u64, 0..3u64).prop_map(|(instance, count, overlap)| Step::Append { instance, count, overlap }),
        6 => (instance.clone(), outcome).prop_map(|(instance, outcome)| Step::Settle { instance, outcome }),
        2 => Just(Step::WriteLate),
        3 => holder.clone().prop_map(|holder| Step::Disconnect { holder }),
        2 => (holder, instance.clone()).prop_map(|(holder, instance)| Step::Renew { holder, instance }),
        2 => (instance.clone(), any::<bool>()).prop_map(|(instance, last)| Step::Cancel { instance, last }),
        1 => instance.prop_map(|instance| Step::Abort { instance }),
        1 => Just(Step::Restart),
        2 => prop_oneof![Just(100i64), Just(12_000), Just(31_000)].prop_map(|ms| Step::Pass { ms }),
    ]
}

/// An unsettled submission in the model.
#[derive(Debug, Clone)]
struct Live {
    id: String,
    lease: u64,
    attempts: u32,
    next_index: u64,
    aborting: bool,
    /// The number of claims to end it.
    closings: u32,
    /// The connection of the holder and the end of the lease; `None` if the submission can be claimed. Connection 0 is that of a holder
    /// from before a restart.
    held: Option<(u64, i64)>,
}

#[derive(Debug, Default)]
struct Instance {
    /// The submission that runs: it has been claimed at least once.
    running: Option<Live>,
    queue: VecDeque<Live>,
    /// The entries of the stream: submission and index.
    stream: Vec<(String, u64)>,
}

struct Model {
    now: i64,
    made: u64,
    instances: [Instance; INSTANCES],
    /// The connection of each holder. If a connection ends, its holder gets a new one. Connections are never used again.
    connections: [u64; HOLDERS],
    settled: BTreeMap<String, State>,
    /// Leases that are no longer the newest.
    late: Vec<Lease>,
    /// The order in which submissions were accepted. Submissions of different instances are claimed in this order.
    admitted: BTreeMap<String, u64>,
}

fn name(instance: usize) -> String {
    format!("tui-{instance}")
}

impl Model {
    /// Advances the clock, and ends leases that were not renewed in time.
    fn pass(&mut self, ms: i64) {
        self.now += ms;
        let now = self.now;
        let mut leases: Vec<_> =
            self.instances.iter_mut().filter_map(|instance| Some(&mut instance.running.as_mut()?.held)).collect();
        // A store that looks at a lease far too late stood still itself, and gives all holders some time.
        if leases.iter().any(|held| held.is_some_and(|(_, until)| until + 2_000 < now)) {
            leases
                .iter_mut()
                .filter_map(|held| held.as_mut())
                .for_each(|(_, until)| *until = (*until).max(now + 5_000));
        }
        for held in leases {
            *held = held.filter(|(_, until)| *until > now);
        }
    }

    fn abort_running(&mut self, instance: usize) -> Option<String> {
        let live = self.instances[instance].running.as_mut()?;
        live.aborting = true;
        Some(live.id.clone())
    }

    fn abort_queued(&mut self, instance: usize, live: &Live) {
        self.instances[instance].stream.extend([0, 1].map(|index| (live.id.clone(), index)));
        self.settled.insert(live.id.clone(), State::Aborted);
    }

    /// Returns the submissions that a claim must get, oldest first. One that two holders could not end is ended by the store, which
    /// leaves room for another.
    fn claim(&mut self, connection: u64, max: usize) -> Vec<(String, u64, u64)> {
        let mut claims = Vec::new();
        loop {
            let wanted = max - claims.len();
            let open = self.open(wanted);
            let all_there_is = open.len() < wanted;
            claims.extend(open.into_iter().filter_map(|number| self.hand_out(connection, number)));
            if all_there_is || claims.len() == max {
                return claims;
            }
        }
    }

    /// The instances whose next submission can be claimed, oldest submission first.
    fn open(&self, max: usize) -> Vec<usize> {
        let mut open: Vec<(u64, usize)> = Vec::new();
        for (number, instance) in self.instances.iter().enumerate() {
            let next = match &instance.running {
                Some(live) if live.held.is_none() => Some(live),
                Some(_) => None,
                None => instance.queue.front(),
            };
            open.extend(next.map(|live| (self.admitted[&live.id], number)));
        }
        open.sort();
        open.into_iter().take(max).map(|(_, number)| number).collect()
    }

    fn hand_out(&mut self, connection: u64, number: usize) -> Option<(String, u64, u64)> {
        let instance = &mut self.instances[number];
        let mut live = instance.running.take().or_else(|| instance.queue.pop_front()).unwrap();
        if live.aborting && live.closings == 2 {
            instance.stream.extend([live.next_index, live.next_index + 1].map(|index| (live.id.clone(), index)));
            self.late.retain(|lease| lease.submission_id.0 != live.id);
            self.settled.insert(live.id, State::Aborted);
            return None;
        }
        if live.lease > 0 {
            self.late.push(Lease { submission_id: sub(&live.id), number: live.lease });
        }
        live.lease += 1;
        live.attempts += 1;
        live.closings += u32::from(live.aborting);
        live.held = Some((connection, self.now + 30_000));
        let claim = (live.id.clone(), live.lease, live.next_index);
        self.instances[number].running = Some(live);
        Some(claim)
    }
}

async fn run(steps: Vec<Step>) {
    let mut kit = Kit::new();
    for instance in 0..INSTANCES {
        kit.session(&name(instance), "a").await;
    }
    let mut model = Model {
        now: 0,
        made: 0,
        instances: Default::default(),
        connections: [1, 2, 3],
        settled: BTreeMap::new(),
        late: Vec::new(),
        admitted: BTreeMap::new(),
    };
    for step in steps {
        take(&mut kit, &mut model, step).await;
    }
    for (number, instance) in model.instances.iter().enumerate() {
        let log = kit.log(&name(number)).await;
        let found: Vec<(String, u64)> = log
            .iter()
            .map(|event| (event["submissionId"].as_str().unwrap().to_owned(), event["eventIndex"].as_u64().unwrap()))
            .collect();
        assert_eq!(found, instance.stream, "stream of {number}");
    }
    for (id, state) in &model.settled {
        assert_eq!(kit.state(id).await, *state, "{id}");
    }
}

async fn take(kit: &mut Kit, model: &mut Model, step: Step) {
    match step {
        Step::Prompt { instance, policy } => prompt(kit, model, instance, policy).await,
        Step::Claim { holder, max } => claim(kit, model, model.connections[holder], max).await,
        Step::Append { instance, count, overlap } => append(kit, model, instance, count, overlap).await,
        Step::Settle { instance, outcome } => settle(kit, model, instance, outcome).await,
        Step::WriteLate => {
            if let Some(lease) = model.late.last() {
                let error = kit.add_events(lease, 0, deltas(lease.submission_id.as_str(), 0, 1)).await.unwrap_err();
                assert_eq!(error.code, Code::Conflict);
            }
        }
        Step::Disconnect { holder } => {
            let connection = model.connections[holder];
            model.connections[holder] += HOLDERS as u64;
            kit.disconnected(connection);
            for live in model.instances.iter_mut().filter_map(|instance| instance.running.as_mut()) {
                if live.held.is_some_and(|(holder, _)| holder == connection) {
                    live.held = None;
                }
            }
        }
        Step::Renew { holder, instance } => {
            let connection = model.connections[holder];
            if let Some(live) = &mut model.instances[instance].running {
                let lease = Lease { submission_id: sub(&live.id), number: live.lease };
                let args = RenewLeases { holder: "t".into(), leases: vec![lease] };
                assert!(kit.renew(connection, args).await.unwrap().lost.is_empty());
                live.held = Some((connection, model.now + 30_000));
            }
        }
        Step::Cancel { instance, last } => cancel(kit, model, instance, last).await,
        Step::Abort { instance } => abort(kit, model, instance).await,
        Step::Restart => {
            kit.restart();
            for live in model.instances.iter_mut().filter_map(|instance| instance.running.as_mut()) {
                live.held = live.held.map(|_| (0, model.now + 500));
            }
        }
        Step::Pass { ms } => {
            kit.turn_clock(ms).await;
            model.pass(ms);
        }
    }
}

async fn prompt(kit: &Kit, model: &mut Model, number: usize, policy: Policy) {
    model.made += 1;
    let id = format!("s{}", model.made);
    let accepted = kit.prompt_with(&name(number), &id, "q", policy).await;
    let instance = &model.instances[number];
    let busy = instance.running.is_some() || !instance.queue.is_empty();
    if policy == Policy::Reject && busy {
        assert_eq!(accepted.refused.unwrap().code, Code::Conflict);
        return;
    }
    assert_eq!(accepted.submission.unwrap().offset, Offset::end(instance.stream.len() as u64));
    model.admitted.insert(id.clone(), model.made);
    let live = Live { id, lease: 0, attempts: 0, next_index: 0, aborting: false, closings: 0, held: None };
    if policy == Policy::Interrupt {
        model.abort_running(number);
        model.instances[number].queue.push_front(live);
    } else {
        model.instances[number].queue.push_back(live);
    }
}

async fn claim(kit: &Kit, model: &mut Model, connection: u64, max: u32) {
    let claims = kit.claims(connection, max).await.claims;
    let found: Vec<(String, u64, u64)> = claims
        .iter()
        .map(|claim| (claim.lease.submission_id.0.clone(), claim.lease.number, claim.next_event_index))
        .collect();
    assert_eq!(found, model.claim(connection, max as usize));
    for claim in claims {
        let live = model.instances.iter().filter_map(|instance| instance.running.as_ref());
        let live = live.clone().find(|live| live.id == claim.lease.submission_id.0).unwrap();
        assert_eq!(claim.attempt, live.attempts);
        assert_eq!(claim.verdict == Some(EndReason::Abort), live.aborting, "{claim:?}");
    }
}

async fn append(kit: &Kit, model: &mut Model, number: usize, count: u64, overlap: u64) {
    let instance = &mut model.instances[number];
    let Some(live) = &mut instance.running else {
        return;
    };
    let first = live.next_index.saturating_sub(overlap);
    let lease = Lease { submission_id: sub(&live.id), number: live.lease };
    kit.add_events(&lease, first, deltas(&live.id, first, count)).await.unwrap();
    let next = live.next_index.max(first + count);
    instance.stream.extend((live.next_index..next).map(|index| (live.id.clone(), index)));
    live.next_index = next;
}

async fn settle(kit: &Kit, model: &mut Model, number: usize, outcome: Outcome) {
    let instance = &mut model.instances[number];
    let Some(live) = instance.running.take() else {
        return;
    };
    let lease = Lease { submission_id: sub(&live.id), number: live.lease };
    let args = Kit::settle_of(&lease, live.next_index, outcome, "answer");
    let first = kit.write::<SubmissionsSettle>(args.clone()).await.unwrap();
    assert_eq!(kit.write::<SubmissionsSettle>(args).await.unwrap().offset, first.offset);
    instance.stream.extend([live.next_index, live.next_index + 1].map(|index| (live.id.clone(), index)));
    let state = match outcome {
        Outcome::Completed => State::Completed,
        Outcome::Failed => State::Failed,
        Outcome::Aborted => State::Aborted,
    };
    model.late.retain(|lease| lease.submission_id.0 != live.id);
    model.settled.insert(live.id, state);
}

async fn cancel(kit: &Kit, model: &mut Model, number: usize, last: bool) {
    let queue = &mut model.instances[number].queue;
    let named = last.then(|| queue.pop_back()).flatten();
    let args = CancelSession {
        scope: scope("a"),
        id: ken_types::id::SessionId(name(number)),
        submission_id: named.as_ref().map(|live| sub(&live.id)),
    };
    let found = kit.write::<SessionsCancel>(args).await.unwrap().submission_id;
    if let Some(live) = named {
        model.abort_queued(number, &live);
        assert_eq!(found, Some(sub(&live.id)));
        return;
    }
    let wanted = match model.abort_running(number) {
        Some(id) => Some(id),
        None => model.instances[number].queue.pop_front().map(|live| {
            model.abort_queued(number, &live);
            live.id
        }),
    };
    assert_eq!(found.map(|id| id.0), wanted);
}

async fn abort(kit: &Kit, model: &mut Model, number: usize) {
    let found = kit.write::<SubmissionsAbort>(OfInstance { instance: name(number) }).await.unwrap().submission_ids;
    let mut wanted: Vec<String> = model.abort_running(number).into_iter().collect();
    while let Some(live) = model.instances[number].queue.pop_front() {
        model.abort_queued(number, &live);
        wanted.push(live.id);
    }
    assert_eq!(found.into_iter().map(|id| id.0).collect::<Vec<_>>(), wanted);
}

/// Returns whether the model can predict the result of these steps. It supports neither the time limit of ten seconds for an abort, nor
/// more than ten lost claims.
fn is_modelled(steps: &[Step]) -> bool {
    let long = |step: &&Step| matches!(step, Step::Pass { ms } if *ms > 1_000);
    let stop = |step: &&Step| {
        matches!(step, Step::Cancel { .. } | Step::Abort { .. } | Step::Prompt { policy: Policy::Interrupt, .. })
    };
    let lost = |step: &&Step| matches!(step, Step::Disconnect { .. } | Step::Restart | Step::Pass { .. });
    (steps.iter().filter(long).count() == 0 || steps.iter().filter(stop).count() == 0)
        && steps.iter().filter(lost).count() < 10
}

#[test]
fn what_two_holders_could_not_end_is_ended_by_the_store() {
    let prompt = |policy| Step::Prompt { instance: 2, policy };
    let lost = |holder| [Step::Claim { holder, max: 1 }, Step::Disconnect { holder }];
    let steps = [prompt(Policy::Queue)].into_iter().chain(lost(2)).chain([prompt(Policy::Interrupt)]);
    let steps: Vec<Step> = steps.chain(lost(0)).chain(lost(2)).chain([Step::Claim { holder: 0, max: 1 }]).collect();
    run_alone(steps);
}

/// Its leases are looked at far too late.
#[test]
fn a_store_that_stood_still_gives_the_holders_some_time() {
    let claim = || Step::Claim { holder: 0, max: 1 };
    for late in
        [vec![Step::Restart, Step::Pass { ms: 12_000 }], vec![Step::Pass { ms: 12_000 }, Step::Pass { ms: 31_000 }]]
    {
        let begin = [Step::Prompt { instance: 0, policy: Policy::Queue }, claim()];
        let end = [claim(), Step::Pass { ms: 12_000 }, claim()];
        run_alone(begin.into_iter().chain(late).chain(end).collect());
    }
}

/// Runs the steps in a runtime of their own.
fn run_alone(steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(steps));
}

// Two halves, which run side by side.
proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..60)) {
        prop_assume!(is_modelled(&steps));
        run_alone(steps);
    }

    #[test]
    fn the_store_does_what_the_model_does_again(steps in proptest::collection::vec(step(), 1..60)) {
        prop_assume!(is_modelled(&steps));
        run_alone(steps);
    }
}
