//! The exhaustive check: all interleavings of a scene, a bounded configuration of writers, relays and faults.

use crate::guard::{Guard, Guards, Invariant};
use crate::model::*;
use stateright::{Checker, Model as _, Property};

/// How many faults of each kind a scene has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    pub rollbacks: u8,
    pub kills: u8,
    pub suspensions: u8,
    pub expiries: u8,
    pub releases: u8,
    pub leaves: u8, // how often a lane is given up; its release may fail
    pub lost_answers: u8,
    pub lost_results: u8, // settlements whose result is lost
    pub failures: u8,     // failures of a sink that is up
    pub retries: u8,      // retries without a charge, because memory has no room for the message
    pub outages: u8,
    pub decisions: u8,
}

/// A bounded configuration. It has one lane and one sink.
pub struct Scene {
    pub name: &'static str,
    pub about: &'static str,
    pub transactions: &'static [&'static [Key]], // the keys of the messages of each transaction
    pub relays: u16,
    pub page: usize, // how many rows a page may have
    pub holds: bool, // HoldKey
    pub poison: &'static [usize], // the transactions whose messages the sink refuses
    pub faults: Faults,
    pub model: Model,
    pub seeks: Option<Invariant>, // the search ends at a state that violates this invariant; None: it visits all states
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SceneState {
    pub state: State,
    begun: Vec<u8>, // the transactions in the order of their ids
    ended: Vec<u8>,
    left: Faults,
}

const LANE: u8 = 0;

impl Scene {
    /// The ids of a transaction that has begun.
    fn ids(&self, s: &SceneState, tx: u8) -> Vec<Id> {
        let mut first = 1;
        for other in &s.begun {
            let n = self.transactions[*other as usize].len() as Id;
            if *other == tx {
                return (first..first + n).collect();
            }
            first += n;
        }
        vec![]
    }

    fn refuses(&self, s: &SceneState, id: Id) -> bool {
        !s.state.row(id).loose && self.poison.iter().any(|tx| self.ids(s, *tx as u8).contains(&id))
    }

    fn writers(&self, s: &SceneState, actions: &mut Vec<Action>) {
        for (tx, keys) in self.transactions.iter().enumerate() {
            if !s.begun.contains(&(tx as u8)) {
                let first = s.state.rows.last().map_or(1, |r| r.id + 1);
                let row = |(n, key): (usize, &Key)| Row {
                    id: first + n as Id, lane: LANE, key: *key, sink: 0, state: RowState::Open, attempts: 0, wants: None, changes: 0, loose: false, copies: 0, excuses: 0,
                };
                actions.push(Action::Insert { rows: keys.iter().enumerate().map(row).collect() });
            } else if !s.ended.contains(&(tx as u8)) {
                actions.push(Action::Commit { ids: self.ids(s, tx as u8) });
                actions.push(Action::Rollback { ids: self.ids(s, tx as u8) });
            }
        }
    }

    fn relay(&self, s: &SceneState, relay: u16, actions: &mut Vec<Action>) {
        let (r, lane) = (&s.state.relays[relay as usize], LANE);
        if r.suspended {
            actions.push(Action::Resume { relay });
            return;
        }
        let l = &s.state.lanes[LANE as usize];
        match r.views.iter().position(|v| !v.lost) {
            None => {
                let fence = if self.model.guards.has(Guard::FenceGrows) { l.fence + 1 } else { l.fence.max(1) };
                actions.push(Action::Acquire { relay, lane, fence });
            }
            Some(at) if r.views[at].leaving => {
                let view = &r.views[at];
                let marks = Marks { main: self.model.mark(&s.state, relay, at), sinks: vec![] };
                actions.push(Action::Release { relay, lane, fence: view.fence, marks: marks.clone(), leaves: false });
                actions.push(Action::Keep { relay, lane });
                actions.push(Action::Renew { relay, lane, fence: view.fence, marks });
            }
            Some(at) => {
                let view = &r.views[at];
                let fence = view.fence;
                let main = self.model.mark(&s.state, relay, at);
                let marks = Marks { main, sinks: vec![] };
                if l.marks != marks || !r.trusts || l.expired || l.owner != Some(relay) || l.fence != fence {
                    actions.push(Action::Renew { relay, lane, fence, marks: marks.clone() });
                }
                if l.owner.is_none() || l.expired {
                    let fence = if self.model.guards.has(Guard::FenceGrows) { l.fence + 1 } else { l.fence.max(1) };
                    actions.push(Action::Acquire { relay, lane, fence });
                }
                actions.push(Action::Release { relay, lane, fence, marks: marks.clone(), leaves: false });
                actions.push(Action::Leave { relay, lane });
                if view.items.iter().any(|it| matches!(it.stage, Stage::Answered { .. } | Stage::InSettle { .. })) {
                    actions.push(Action::Release { relay, lane, fence, marks, leaves: true });
                }
                if !view.keys_known {
                    actions.push(Action::Keys { relay, lane });
                }
                if r.page.is_none() {
                    let (page, late) = (self.model.page(&s.state, view, self.page), self.model.late(&s.state, relay));
                    if !page.rows.is_empty() || late.is_some() || page.through > view.cursor || page.safe != view.safe {
                        actions.push(Action::Read { relay, page, late });
                    }
                    let unblocked = view.dropped.iter().filter(|(key, _)| !view.blocked.iter().any(|b| b.key == *key && self.model.guards.has(b.why)));
                    actions.extend(unblocked.map(|from| Action::Read { relay, page: self.model.key_page(&s.state, view, *from, self.page), late }));
                }
                if r.late.is_some_and(|late| late < view.cursor) {
                    actions.push(Action::Scan { relay, lane });
                }
                let deferred = s.state.rows.iter().filter(|row| matches!(row.state, RowState::Retry | RowState::Scheduled));
                actions.extend(deferred.map(|row| Action::Due { relay, id: row.id }));
                let waiting = view.items.iter().filter(|it| it.stage == Stage::InQueue);
                actions.extend(waiting.map(|it| Action::Send { relay, ids: vec![it.id] }));
            }
        }
        if r.page.is_some() {
            actions.push(Action::Merge { relay });
        }
        if r.trusts {
            actions.push(Action::Doubt { relay });
        }
        for (fence, it) in r.views.iter().filter(|v| !v.dead).flat_map(|v| v.items.iter().map(|it| (v.fence, it))) {
            let id = it.id;
            match it.stage {
                Stage::InFlight { answer: Some(_), .. } => actions.push(Action::Answer { relay, id }),
                Stage::Answered { .. } => {
                    let verdicts = [Verdict::Done, Verdict::Again, Verdict::Retry { charged: false }, Verdict::Retry { charged: true }, Verdict::Park { holds: self.holds }];
                    actions.extend(verdicts.map(|verdict| Action::Decide { relay, fence, id, verdict }));
                }
                Stage::InSettle { executed, .. } => {
                    if executed {
                        actions.push(Action::Settled { relay, fence, id, lost: false });
                    }
                    actions.push(Action::Settled { relay, fence, id, lost: true });
                }
                _ => {}
            }
        }
        actions.push(Action::Suspend { relay });
        actions.push(Action::Kill { relay });
    }

    /// Messages in flight and running settlements arrive, even if their relay is suspended or dead.
    fn arrivals(&self, s: &SceneState, relay: u16, actions: &mut Vec<Action>) {
        for (fence, it) in s.state.relays[relay as usize].views.iter().flat_map(|v| v.items.iter().map(|it| (v.fence, it))) {
            let id = it.id;
            let failed = |reject, outage| Action::Arrive { relay, id, answer: Answer::Failed { reject, outage } };
            match it.stage {
                Stage::InFlight { answer: None, .. } if s.state.down => actions.extend([failed(false, s.state.outages), failed(true, s.state.outages)]),
                Stage::InFlight { answer: None, .. } if self.refuses(s, id) => actions.push(failed(true, 0)),
                Stage::InFlight { answer: None, .. } => {
                    actions.push(Action::Arrive { relay, id, answer: Answer::Delivered });
                    actions.push(Action::Arrive { relay, id, answer: Answer::Lost });
                    actions.push(failed(false, 0));
                }
                Stage::InSettle { .. } => actions.push(Action::Settle { relay, fence, id }),
                _ => {}
            }
        }
    }

    /// Subtracts the action's fault from the scene's faults, and reports whether one was left.
    fn afford(&self, s: &SceneState, left: &mut Faults, action: &Action) -> bool {
        let fault = match action {
            Action::Rollback { .. } => &mut left.rollbacks,
            Action::Kill { .. } => &mut left.kills,
            Action::Suspend { .. } => &mut left.suspensions,
            Action::Expire { .. } => &mut left.expiries,
            Action::Leave { .. } => &mut left.leaves,
            Action::Release { relay, .. } if s.state.relays[*relay as usize].views.iter().any(|v| v.leaving) => return true, // it was counted when the relay began to give the lane up
            Action::Release { .. } => &mut left.releases,
            Action::Arrive { answer: Answer::Lost, .. } => &mut left.lost_answers,
            Action::Arrive { answer: Answer::Failed { reject: false, outage: 0 }, .. } => &mut left.failures,
            Action::Settled { lost: true, .. } => &mut left.lost_results,
            Action::Decide { verdict: Verdict::Retry { charged: false }, .. } => &mut left.retries,
            Action::Down => &mut left.outages,
            Action::Decided { .. } => &mut left.decisions,
            _ => return true,
        };
        let more = *fault > 0;
        *fault = fault.saturating_sub(1);
        more
    }
}

impl stateright::Model for Scene {
    type State = SceneState;
    type Action = Action;

    fn init_states(&self) -> Vec<SceneState> {
        let relay = Relay { unreported: Some(0), ..Relay::default() };
        let state = State { lanes: vec![Lane::default()], relays: vec![relay; self.relays as usize], ..State::default() };
        vec![SceneState { state, begun: vec![], ended: vec![], left: self.faults }]
    }

    fn actions(&self, s: &SceneState, actions: &mut Vec<Action>) {
        self.writers(s, actions);
        for relay in 0..self.relays {
            self.relay(s, relay, actions);
            self.arrivals(s, relay, actions);
        }
        let l = &s.state.lanes[LANE as usize];
        if l.owner.is_some() && !l.expired {
            actions.push(Action::Expire { lane: LANE });
        }
        actions.push(if s.state.down { Action::Up } else { Action::Down });
        for row in s.state.rows.iter().filter(|r| matches!(r.state, RowState::Parked { .. })) {
            actions.extend([Decision::Requeue, Decision::Skip, Decision::Discard].map(|decision| Action::Decided { id: row.id, decision }));
        }
    }

    fn next_state(&self, s: &SceneState, action: Action) -> Option<SceneState> {
        let mut left = s.left;
        if !self.afford(s, &mut left, &action) {
            return None;
        }
        let mut next = SceneState { left, ..s.clone() };
        self.model.step(&mut next.state, &action).ok()?;
        match &action {
            Action::Insert { rows } => {
                let tx = self.transactions.iter().enumerate().position(|(tx, keys)| !s.begun.contains(&(tx as u8)) && keys.iter().eq(rows.iter().map(|r| &r.key)));
                next.begun.push(tx? as u8);
            }
            Action::Commit { ids } | Action::Rollback { ids } => {
                let tx = s.begun.iter().find(|tx| self.ids(s, **tx) == *ids);
                next.ended.push(*tx?);
                next.ended.sort_unstable();
            }
            _ => {}
        }
        normalize(&mut next.state);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if self.seeks.is_some() {
            return vec![Property::always("the promise", |scene: &Scene, s: &SceneState| !scene.seeks.is_some_and(|i| violates(&s.state, LANE, true, i)))];
        }
        vec![
            Property::always("the promise", |_: &Scene, s: &SceneState| violated(&s.state, LANE, true).is_none()),
            Property::sometimes("all is delivered", |scene: &Scene, s: &SceneState| {
                s.ended.len() == scene.transactions.len() && s.state.rows.iter().all(|r| matches!(r.state, RowState::Done | RowState::Parked { .. }))
            }),
        ]
    }
}

/// Replaces the numbers of sends by their ranks, and sorts the relays, whose names don't matter. So states that differ only in these
/// numbers or in the order of relays are equal. A relay may have another number after each action of a path.
fn normalize(s: &mut State) {
    for r in &mut s.relays {
        let mut used: Vec<u32> = r.failures.values().map(|f| f.turn).collect();
        for it in r.views.iter().flat_map(|v| &v.items) {
            if let Stage::InFlight { turn, .. } = it.stage {
                used.push(turn);
            }
        }
        used.sort_unstable();
        used.dedup();
        let rank = |turn: u32| used.binary_search(&turn).map_or(used.len(), |at| at) as u32 + 1;
        let last = if used.last() == Some(&r.turn) { used.len() as u32 } else { used.len() as u32 + 1 };
        for f in r.failures.values_mut() {
            f.turn = rank(f.turn);
        }
        for it in r.views.iter_mut().flat_map(|v| &mut v.items) {
            if let Stage::InFlight { turn, .. } = &mut it.stage {
                *turn = rank(*turn);
            }
        }
        r.turn = if used.is_empty() { 0 } else { last };
    }
    if !s.relays.is_sorted() {
        s.relays.reverse(); // a scene has at most two
        for l in &mut s.lanes {
            l.owner = l.owner.map(|owner| 1 - owner);
        }
    }
}

/// Returns the first invariant that a state violates.
pub fn violated(s: &State, lane: u8, positions: bool) -> Option<Invariant> {
    Invariant::ALL.iter().copied().find(|i| violates(s, lane, positions, *i))
}

/// Reports whether a state violates an invariant. Without the positions of readers, NothingLost can't be checked.
fn violates(s: &State, lane: u8, positions: bool, invariant: Invariant) -> bool {
    s.broken.has(invariant)
        || match invariant {
            Invariant::MarkBelowUnfinished => mark_passes(s, lane),
            Invariant::NothingLost => positions && loses(s, lane),
            _ => false,
        }
}

fn mark_passes(s: &State, lane: u8) -> bool {
    let marks = &s.lanes[lane as usize].marks;
    s.in_lane(lane).any(|r| matches!(r.state, RowState::Open | RowState::Pending) && r.id <= marks.of(r.sink))
}

/// Reports a pending row that its lane's holder would never read.
fn loses(s: &State, lane: u8) -> bool {
    let l = &s.lanes[lane as usize];
    let Some(owner) = l.owner else { return false };
    let r = &s.relays[owner as usize];
    let Some(view) = r.views.iter().find(|v| v.lane == lane && !v.lost && v.term == l.term) else { return false };
    let found = |row: &Row| {
        row.id > view.cursor
            || view.items.iter().any(|it| it.id == row.id && it.stage != Stage::Written)
            || view.dropped.iter().any(|(key, from)| *key == row.key && row.id > *from)
            || r.late.is_some_and(|late| row.id > late)
            || r.unreported.is_some_and(|late| row.id > late)
            || r.page.as_ref().is_some_and(|page| page.fence == view.fence && page.rows.contains(&row.id))
    };
    s.in_lane(lane).any(|row| row.state == RowState::Pending && !found(row))
}

/// The result of a check.
pub struct Found {
    pub states: usize,
    pub complete: bool, // all states were visited
    pub delivers: bool, // in some state all messages are delivered
    pub violation: Option<(Invariant, Vec<Action>)>,
}

/// Checks all states of a scene or, if it seeks a violation, finds a shortest path to it, which is the same in each run.
pub fn check(scene: Scene) -> Found {
    let threads = if scene.seeks.is_some() { 1 } else { 2 };
    let checker = scene.checker().threads(threads).spawn_bfs().join();
    let violation = checker.discovery("the promise").map(|path| {
        let broken = violated(&path.last_state().state, LANE, true).expect("a violated invariant");
        (broken, path.into_actions())
    });
    Found {
        states: checker.unique_state_count(),
        complete: checker.is_done(),
        delivers: checker.discovery("all is delivered").is_some(),
        violation,
    }
}

/// Returns all scenes, with these guards.
pub fn scenes(guards: Guards) -> Vec<Scene> {
    let scene = |name, about, transactions, relays, page, faults| Scene {
        name, about, transactions, relays, page, holds: false, poison: &[], faults, model: Model { guards, positions: true }, seeks: None,
    };
    vec![
        scene("failures", "an outage, failures, lost answers", &[&[1], &[2]], 1, 2, Faults { failures: 1, lost_answers: 1, outages: 1, ..Faults::default() }),
        Scene { holds: true, poison: &[0], ..scene("holds", "parked messages that hold their keys, operators, lost results", &[&[1], &[1], &[2]], 1, 3, Faults { lost_results: 1, decisions: 1, ..Faults::default() }) },
        scene("resuming", "a retry without a charge, a key that is unblocked, a lane that is given up, kept, or released and leased again", &[&[1], &[1], &[1]], 1, 2, Faults { failures: 1, retries: 1, releases: 1, leaves: 1, ..Faults::default() }),
        scene("leaving", "two relays, a lane that is given up, a lease that expires", &[&[1]], 2, 1, Faults { leaves: 1, expiries: 1, ..Faults::default() }),
        scene("late", "commits that are late, small pages, a retry", &[&[1], &[2], &[1]], 1, 1, Faults { rollbacks: 1, failures: 1, ..Faults::default() }),
        scene("suspended", "two relays, suspended processes, leases that expire twice", &[&[1], &[1]], 2, 2, Faults { suspensions: 1, expiries: 2, ..Faults::default() }),
        scene("takeover", "two relays, a kill, leases that expire or are released", &[&[1], &[1]], 2, 2, Faults { kills: 1, expiries: 1, releases: 1, ..Faults::default() }),
    ]
}
