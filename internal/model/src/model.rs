//! The model: the table, its relays, and the actions that change them. The names are those of relay/README.md.
//!
//! A state is changed by [`Model::step`] alone, in the exhaustive check and in the replay of traces. Fields that only the
//! invariants use are marked as ghosts: no guard reads them.

use crate::guard::{Broken, Guard, Guards};
use std::collections::BTreeMap;

pub type Id = u32;
pub type Key = u16;

/// The key of messages without a key, which have no order.
pub const NO_KEY: Key = 0;

/// Stands for all sinks without a mark of their own.
pub const MAIN: u8 = u8::MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub rows: Vec<Row>, // in the order of ids
    pub lanes: Vec<Lane>,
    pub relays: Vec<Relay>,
    pub outages: u8,   // ghost: how many outages of the sink have begun
    pub down: bool,    // the sink is down
    pub broken: Broken, // ghost: the invariants that an action has violated
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub id: Id,
    pub lane: u8,
    pub key: Key,
    pub sink: u8,
    pub state: RowState,
    pub attempts: u32,
    pub wants: Option<Decision>, // an operator's decision that a relay must carry out
    pub changes: u16,             // how often the row was settled or changed by an operator; in the table, its time shows this
    pub loose: bool,             // the row was requeued or scheduled, so it has lost its place in the order
    pub copies: u8,              // ghost: how often the sink has accepted the message
    pub excuses: u8,             // ghost: how many further copies the windows of docs/semantics.md allow
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowState {
    Open, // its transaction is open
    Pending,
    Scheduled,
    Retry,
    Parked { holds: bool },
    Done,
    Gone, // rolled back, discarded or cancelled
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    Requeue,
    Skip,
    Discard,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lane {
    pub owner: Option<u16>,
    pub fence: u64,
    pub expired: bool,
    pub marks: Marks,
    pub term: u32, // ghost: the number of the lease, even where fences don't grow
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    pub main: Id,
    pub sinks: Vec<(u8, Id)>,
}

impl Marks {
    pub fn of(&self, sink: u8) -> Id {
        self.sinks.iter().find(|(s, _)| *s == sink).map_or(self.main, |(_, id)| *id)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relay {
    pub suspended: bool,                  // its process is suspended
    pub trusts: bool,                     // safeUntil has not passed
    pub views: Vec<View>,                 // its leases, also those that it has lost while messages were in flight
    pub page: Option<Page>,               // a page that was read and is not merged
    pub late: Option<Id>,                 // above this id rows may have appeared that are not merged yet
    pub unreported: Option<Id>,           // the store: rows have appeared above this id since the last page
    pub turn: u32,                        // the number of the last send that began
    pub failures: BTreeMap<Id, Failure>,  // the uncharged failures of messages
}

/// What a relay has in memory about a lane that it leased.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View {
    pub lane: u8,
    pub fence: u64,
    pub lost: bool, // the lease is lost; messages may still be in flight
    pub leaving: bool, // the relay gives the lane up: it sends nothing of it, and doesn't renew the lease
    pub dead: bool, // the relay was killed; what it has sent may still arrive, at the sink and at the table
    pub cursor: Id,
    pub safe: Id, // the safe id of the last merged page
    pub keys_known: bool,
    pub asked: Vec<Key>, // while not all blocked keys are known: the keys about which the relay has asked the database
    pub items: Vec<Item>,
    pub blocked: Vec<Blocked>,
    pub dropped: Vec<(Key, Id)>, // by key: the id above which its dropped rows are read again (resumeFrom)
    pub term: u32,               // ghost
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    pub id: Id,
    pub key: Key,
    pub sink: u8,
    pub deferred: bool,
    pub loose: bool,
    pub changes: u16, // the row's changes when it was read
    pub attempts: u32,
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    InQueue,
    InFlight { turn: u32, repeats: bool, answer: Option<Answer> },
    Answered { answer: Answer, judged: Judged },
    InSettle { to: RowState, charged: u32, executed: bool },
    Written,
}

/// What the breaker finds about a failure when its answer arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Judged {
    pub repeated: bool, // the message failed before, and another message was delivered in between
    pub twice: bool,    // this failure and the previous one are rejections
    pub outage: bool,   // ghost: only an outage has caused the failure
    pub hasty: bool,    // ghost: the answer is the message's first rejection, and an outage has caused it
}

/// A sink's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    Delivered,
    Lost,                                  // the sink has accepted the message, but its answer was lost
    Failed { reject: bool, outage: u8 },   // outage is a ghost; 0: the sink was up
    Unsent,                                // the message wasn't sent, or was postponed or cancelled
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Failure {
    pub sink: u8,
    pub turn: u32, // the number of the last send that had begun
    pub rejected: bool,
    pub proven: bool, // another message was delivered after this failure
    pub outage: u8,   // ghost
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocked {
    pub key: Key,
    pub sink: u8,
    pub by: Id,
    pub why: Guard,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    pub lane: u8,
    pub fence: u64,
    pub key: Key, // the key of the dropped rows that were read; NO_KEY: the page has new rows of all keys
    pub after: Id,
    pub through: Id, // every row up to this id was read
    pub rows: Vec<Id>,
    pub safe: Id,
}

/// What a relay decides about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Done,
    Again, // the message stays in memory and is sent again
    Retry { charged: bool },
    Park { holds: bool },
    Schedule, // the row's time has not come
    Expire { discard: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Insert { rows: Vec<Row> },
    Commit { ids: Vec<Id> },
    Rollback { ids: Vec<Id> },
    Down,
    Up,
    Acquire { relay: u16, lane: u8, fence: u64 },
    Renew { relay: u16, lane: u8, fence: u64, marks: Marks },
    Release { relay: u16, lane: u8, fence: u64, marks: Marks, leaves: bool }, // leaves: at a stop whose drain time-out has passed
    Leave { relay: u16, lane: u8 }, // begins to give the lane up
    Keep { relay: u16, lane: u8 },  // keeps the lane after all, without a renewal
    Expire { lane: u8 },
    Doubt { relay: u16 },   // safeUntil has passed
    Suspend { relay: u16 }, // the process is suspended
    Resume { relay: u16 },
    Kill { relay: u16 },
    Keys { relay: u16, lane: u8 }, // reads the blocked keys
    Read { relay: u16, page: Page, late: Option<Id> },
    Scan { relay: u16, lane: u8 },
    Merge { relay: u16 },
    Due { relay: u16, id: Id },
    Send { relay: u16, ids: Vec<Id> },
    Arrive { relay: u16, id: Id, answer: Answer },
    Answer { relay: u16, id: Id },
    Decide { relay: u16, fence: u64, id: Id, verdict: Verdict },
    Settle { relay: u16, fence: u64, id: Id },
    Settled { relay: u16, fence: u64, id: Id, lost: bool },
    Decided { id: Id, decision: Decision }, // by an operator
}

/// Why an action is not enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Guard(Guard),
    Absent(&'static str), // the relay, lane or row of the action does not exist
}

pub type Step<T = ()> = Result<T, Refusal>;

/// What a settlement has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Changed,
    Fenced,
    Missing,
}

pub struct Model {
    pub guards: Guards,

    /// Whether the positions of readers are known. In traces they aren't: a sink without room moves its cursor back.
    pub positions: bool,
}

impl Model {
    pub(crate) fn require(&self, guard: Guard, condition: bool) -> Step {
        if self.guards.pass(guard, condition) { Ok(()) } else { Err(Refusal::Guard(guard)) }
    }

    /// Carries out an action, or returns why it is not enabled. In this case the state must not be used any more.
    pub fn step(&self, s: &mut State, action: &Action) -> Step {
        match action {
            Action::Insert { rows } => {
                for row in rows {
                    let turn = row.key == NO_KEY || !s.rows.iter().any(|r| r.state == RowState::Open && r.key == row.key);
                    self.require(Guard::KeysTakeTurns, turn)?;
                }
                s.rows.extend(rows.iter().cloned());
                Ok(())
            }
            Action::Commit { ids } => {
                self.end(s, ids, RowState::Pending);
                let appeared = ids.iter().min().map(|id| id - 1);
                for relay in &mut s.relays {
                    relay.unreported = lowest(relay.unreported, appeared);
                }
                Ok(())
            }
            Action::Rollback { ids } => {
                self.end(s, ids, RowState::Gone);
                Ok(())
            }
            Action::Down => {
                s.down = true;
                s.outages += 1;
                Ok(())
            }
            Action::Up => {
                s.down = false;
                Ok(())
            }
            Action::Acquire { relay, lane, fence } => self.acquire(s, *relay, *lane, *fence),
            Action::Renew { relay, lane, fence, marks } => self.renew(s, *relay, *lane, *fence, marks),
            Action::Release { relay, lane, fence, marks, leaves } => self.release(s, *relay, *lane, *fence, marks, *leaves),
            Action::Leave { relay, lane } => {
                let view = s.relays[*relay as usize].current(*lane).ok_or(Refusal::Absent("a lease"))?;
                view.leaving = true;
                let waiting: Vec<Id> = view.items.iter().filter(|it| it.stage == Stage::InQueue).map(|it| it.id).collect();
                waiting.into_iter().for_each(|id| view.give_up(id));
                Ok(())
            }
            Action::Keep { relay, lane } => {
                let view = s.relays[*relay as usize].current(*lane).ok_or(Refusal::Absent("a lease"))?;
                self.require(Guard::KeptAfterRenewal, !view.leaving)?;
                view.leaving = false;
                Ok(())
            }
            Action::Expire { lane } => self.expire(s, *lane),
            Action::Doubt { relay } => {
                s.relays[*relay as usize].trusts = false;
                Ok(())
            }
            Action::Suspend { relay } => {
                s.relays[*relay as usize].suspended = true;
                Ok(())
            }
            Action::Resume { relay } => {
                let relay = &mut s.relays[*relay as usize];
                relay.suspended = false;
                if self.guards.has(Guard::SendTrusted) {
                    relay.trusts = false; // the first thing that the loop does is to compare safeUntil with the clock
                }
                Ok(())
            }
            Action::Kill { relay } => {
                self.kill(s, *relay);
                Ok(())
            }
            Action::Keys { relay, lane } => self.keys(s, *relay, *lane),
            Action::Read { relay, page, late } => {
                let relay = &mut s.relays[*relay as usize];
                relay.page = Some(page.clone());
                relay.late = lowest(relay.late, *late);
                relay.unreported = None;
                Ok(())
            }
            Action::Scan { relay, lane } => self.scan(s, *relay, *lane),
            Action::Merge { relay } => self.merge(s, *relay),
            Action::Due { relay, id } => self.due(s, *relay, *id),
            Action::Send { relay, ids } => self.send(s, *relay, ids),
            Action::Arrive { relay, id, answer } => self.arrive(s, *relay, *id, *answer),
            Action::Answer { relay, id } => self.answer(s, *relay, *id),
            Action::Decide { relay, fence, id, verdict } => self.decide(s, *relay, *fence, *id, *verdict),
            Action::Settle { relay, fence, id } => self.settle(s, *relay, *fence, *id).map(|_| ()),
            Action::Settled { relay, fence, id, lost } => self.settled(s, *relay, *fence, *id, *lost),
            Action::Decided { id, decision } => self.decided(s, *id, *decision),
        }
    }

    fn end(&self, s: &mut State, ids: &[Id], state: RowState) {
        for id in ids {
            s.row_mut(*id).state = state;
        }
    }

    // The store.

    /// The highest id at or below which no new row can appear.
    pub fn safe_id(&self, s: &State) -> Id {
        let last = s.rows.last().map_or(0, |r| r.id);
        let open = s.rows.iter().find(|r| r.state == RowState::Open).map(|r| r.id);
        match open {
            Some(id) if !self.guards.pass(Guard::SafeBelowOpen, false) => id - 1,
            _ => last,
        }
    }

    /// What a page reports about rows that have appeared late.
    pub fn late(&self, s: &State, relay: u16) -> Option<Id> {
        s.relays[relay as usize].unreported.filter(|_| !self.guards.pass(Guard::LateReported, false))
    }

    /// Reads the pending rows of a view's lane above its cursor.
    pub fn page(&self, s: &State, view: &View, limit: usize) -> Page {
        let mut page = self.rows(s, view, view.cursor, limit, |_| true);
        if page.through == Id::MAX {
            page.through = page.safe.max(page.rows.last().copied().unwrap_or(0));
        }
        page
    }

    /// Reads the dropped rows of a key, which are above an id.
    pub fn key_page(&self, s: &State, view: &View, (key, after): (Key, Id), limit: usize) -> Page {
        let page = self.rows(s, view, after, limit, |r| r.key == key && r.id <= view.cursor);
        Page { key, through: page.through.min(view.cursor), ..page }
    }

    /// Reads the pending rows of a view's lane above an id. If these are all, the page goes through Id::MAX.
    fn rows(&self, s: &State, view: &View, after: Id, limit: usize, wanted: impl Fn(&Row) -> bool) -> Page {
        let mut rows: Vec<Id> = s.in_lane(view.lane).filter(|r| r.state == RowState::Pending && r.id > after && wanted(r)).map(|r| r.id).collect();
        let more = rows.len() > limit;
        rows.truncate(limit);
        let through = if more && !self.guards.pass(Guard::MoreReported, false) { rows[limit - 1] } else { Id::MAX };
        Page { lane: view.lane, fence: view.fence, key: NO_KEY, after, through, rows, safe: self.safe_id(s) }
    }

    fn acquire(&self, s: &mut State, relay: u16, lane: u8, fence: u64) -> Step {
        let old = &s.lanes[lane as usize];
        self.require(Guard::AcquireFree, old.owner.is_none() || old.expired)?;
        self.require(Guard::FenceGrows, fence > old.fence)?;
        let (term, marks) = (old.term, old.marks.clone());
        if old.owner.is_some() {
            excuse(s, lane, term);
        }
        let l = &mut s.lanes[lane as usize];
        (l.owner, l.fence, l.expired, l.term) = (Some(relay), fence, false, term + 1);
        let mark = marks.main.min(marks.sinks.iter().map(|(_, id)| *id).min().unwrap_or(Id::MAX));
        let cursor = if self.positions { mark } else { Id::MAX };
        let r = &mut s.relays[relay as usize];
        r.trusts = true;
        let mut view = View {
            lane, fence, lost: false, leaving: false, dead: false, cursor, safe: marks.main, keys_known: false, asked: vec![], items: vec![], blocked: vec![], dropped: vec![], term: term + 1,
        };
        for old in r.views.iter_mut().filter(|v| v.lane == lane && !v.lost) {
            if !self.guards.pass(Guard::LossDrops, old.items.is_empty()) {
                old.lose();
            } else {
                view.items.append(&mut old.items);
                old.lose();
            }
        }
        r.views.retain(|v| !v.lost || !v.items.is_empty());
        r.views.push(view);
        Ok(())
    }

    /// Reports whether a relay has a lease of a lane.
    pub fn leased(&self, s: &State, guard: Guard, relay: u16, lane: u8, fence: u64) -> bool {
        let l = &s.lanes[lane as usize];
        self.guards.pass(guard, l.owner == Some(relay) && l.fence == fence)
    }

    fn renew(&self, s: &mut State, relay: u16, lane: u8, fence: u64, marks: &Marks) -> Step {
        let at = s.view_at(relay, lane, fence)?;
        self.check_marks(s, relay, at, marks)?;
        if !self.leased(s, Guard::RenewFenced, relay, lane, fence) {
            let r = &mut s.relays[relay as usize];
            r.views[at].lose();
            r.views.retain(|v| !v.lost || !v.items.is_empty());
            return Ok(());
        }
        let r = &mut s.relays[relay as usize];
        r.trusts = true;
        r.views[at].leaving = false; // the relay keeps the lane, if it was to be given up
        let l = &mut s.lanes[lane as usize];
        (l.owner, l.expired, l.marks) = (Some(relay), false, marks.clone());
        Ok(())
    }

    fn release(&self, s: &mut State, relay: u16, lane: u8, fence: u64, marks: &Marks, leaves: bool) -> Step {
        let at = s.view_at(relay, lane, fence)?;
        self.check_marks(s, relay, at, marks)?;
        let view = &s.relays[relay as usize].views[at];
        let idle = view.items.iter().all(|it| match it.stage {
            Stage::InQueue | Stage::Written => true,
            Stage::InFlight { .. } => false,
            Stage::Answered { .. } => leaves,
            // A trace doesn't show whether the relay has taken the row of an operator's decision.
            Stage::InSettle { executed, .. } => leaves || !self.positions && !executed,
        });
        self.require(Guard::ReleaseIdle, idle)?;
        if leaves {
            let term = view.term;
            excuse(s, lane, term);
        }
        if self.leased(s, Guard::RenewFenced, relay, lane, fence) {
            let l = &mut s.lanes[lane as usize];
            (l.owner, l.expired, l.marks) = (None, false, marks.clone());
        }
        let r = &mut s.relays[relay as usize];
        r.views[at].lose();
        r.views.retain(|v| !v.lost || !v.items.is_empty());
        Ok(())
    }

    fn check_marks(&self, s: &State, relay: u16, at: usize, marks: &Marks) -> Step {
        for (guard, limit) in self.mark_limits(s, relay, at, |sink| sink) {
            let (sink, id) = limit;
            self.require(guard, marks.of(sink) <= id)?;
        }
        Ok(())
    }

    /// The limits of the marks, by sink.
    fn mark_limits<T>(&self, s: &State, relay: u16, at: usize, of: impl Fn(u8) -> T) -> Vec<(Guard, (T, Id))> {
        let view = &s.relays[relay as usize].views[at];
        let mut limits = vec![(Guard::MarkSafe, (of(MAIN), view.safe))];
        for it in view.items.iter().filter(|it| !it.deferred && it.stage != Stage::Written) {
            limits.push((Guard::MarkMemory, (of(s.row(it.id).sink), it.id - 1)));
        }
        if self.positions {
            limits.push((Guard::MarkCursor, (of(MAIN), view.cursor)));
        }
        for (_, id) in &view.dropped {
            limits.push((Guard::MarkDropped, (of(MAIN), *id)));
        }
        limits
    }

    /// The highest mark that the guards in force allow.
    pub fn mark(&self, s: &State, relay: u16, at: usize) -> Id {
        let limits = self.mark_limits(s, relay, at, |_| ());
        let last = s.rows.last().map_or(0, |r| r.id);
        limits.into_iter().filter(|(guard, _)| self.guards.has(*guard)).map(|(_, (_, id))| id).min().unwrap_or(last).min(last)
    }

    fn expire(&self, s: &mut State, lane: u8) -> Step {
        let l = &s.lanes[lane as usize];
        let Some(owner) = l.owner else { return Err(Refusal::Absent("a lease")) };
        let r = &s.relays[owner as usize];
        let stopped = r.suspended || !r.trusts || r.views.iter().all(|v| v.lane != lane || v.term != l.term || v.lost || v.leaving);
        self.require(Guard::StopsBeforeExpiry, stopped)?;
        s.lanes[lane as usize].expired = true;
        Ok(())
    }

    fn kill(&self, s: &mut State, relay: u16) {
        let terms: Vec<_> = s.relays[relay as usize].views.iter().map(|v| (v.lane, v.term)).collect();
        for (lane, term) in terms {
            excuse(s, lane, term);
        }
        let r = &mut s.relays[relay as usize];
        for v in &mut r.views {
            v.lose();
            v.dead = true;
            v.items.retain(|it| matches!(it.stage, Stage::InFlight { answer: None, .. } | Stage::InSettle { .. }));
        }
        r.views.retain(|v| !v.items.is_empty());
        (r.suspended, r.trusts, r.page, r.late, r.unreported) = (false, false, None, None, Some(0));
        r.failures.clear();
    }
}

/// The lower of two ids, of which either may be absent.
pub fn lowest(a: Option<Id>, b: Option<Id>) -> Option<Id> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Allows one more copy of each message that a relay has in flight, or has delivered and not marked, under this lease.
fn excuse(s: &mut State, lane: u8, term: u32) {
    let mut ids = vec![];
    for view in s.relays.iter().flat_map(|r| &r.views).filter(|v| v.lane == lane && v.term == term && !v.dead) {
        ids.extend(view.items.iter().filter(|it| it.stage.may_be_delivered()).map(|it| it.id));
    }
    for id in ids {
        s.row_mut(id).excuses += 1;
    }
}

impl Stage {
    fn may_be_delivered(self) -> bool {
        match self {
            Stage::InFlight { .. } => true,
            Stage::Answered { answer, .. } => answer == Answer::Delivered,
            Stage::InSettle { to, .. } => to == RowState::Done,
            Stage::InQueue | Stage::Written => false,
        }
    }
}

impl State {
    pub fn row(&self, id: Id) -> &Row {
        &self.rows[self.index(id)]
    }

    pub fn row_mut(&mut self, id: Id) -> &mut Row {
        let at = self.index(id);
        &mut self.rows[at]
    }

    fn index(&self, id: Id) -> usize {
        self.rows.binary_search_by_key(&id, |r| r.id).expect("a known row")
    }

    pub fn in_lane(&self, lane: u8) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| r.lane == lane)
    }

    /// The index of the relay's view with this fence, unless the relay knows that it has lost the lease.
    pub fn view_at(&self, relay: u16, lane: u8, fence: u64) -> Step<usize> {
        let views = &self.relays[relay as usize].views;
        views.iter().position(|v| v.lane == lane && v.fence == fence && !v.lost).ok_or(Refusal::Absent("the lease"))
    }
}

impl Relay {
    /// The view of a lane that the relay has leased, as far as it knows.
    pub fn current(&mut self, lane: u8) -> Option<&mut View> {
        self.views.iter_mut().find(|v| v.lane == lane && !v.lost)
    }
}

impl View {
    pub fn item(&mut self, id: Id) -> Option<&mut Item> {
        self.items.iter_mut().find(|it| it.id == id)
    }

    /// Drops a waiting message, so that it is read again. A deferred row is found again by its time.
    pub fn give_up(&mut self, id: Id) {
        if self.items.iter().any(|it| it.id == id && !it.deferred) {
            self.cursor = self.cursor.min(id - 1);
        }
        self.items.retain(|it| it.id != id);
    }

    /// Drops the messages that wait in memory. Messages in flight and outcomes remain; the outcomes are written with the old fence.
    pub fn lose(&mut self) {
        self.lost = true;
        self.items.retain(|it| !matches!(it.stage, Stage::InQueue | Stage::Written));
        self.blocked.clear();
        self.dropped.clear();
    }
}
