//! What a relay does: reading, sending, and deciding about answers.

use crate::guard::{Guard, Invariant};
use crate::model::*;

impl Model {
    /// Reads the blocked keys of a newly leased lane.
    pub(crate) fn keys(&self, s: &mut State, relay: u16, lane: u8) -> Step {
        let held: Vec<Blocked> = s.in_lane(lane).filter(|r| r.key != NO_KEY).filter_map(blocked_by).collect();
        self.view(s, relay, lane)?.keys_known = true;
        for block in held {
            let view = self.view(s, relay, lane)?;
            if view.item(block.by).is_none() && view.blocker(block.key, block.sink).is_none() {
                self.block(view, block);
            }
        }
        Ok(())
    }

    fn view<'a>(&self, s: &'a mut State, relay: u16, lane: u8) -> Step<&'a mut View> {
        s.relays[relay as usize].current(lane).ok_or(Refusal::Absent("a lease"))
    }

    /// Blocks a key: its waiting messages are dropped, and read again later.
    pub(crate) fn block(&self, view: &mut View, block: Blocked) {
        view.blocked.push(block);
        if !self.guards.has(block.why) {
            return;
        }
        let mut left = vec![];
        view.items.retain(|it| {
            let drops = it.key == block.key && it.sink == block.sink && it.id != block.by && it.stage == Stage::InQueue;
            if drops && !it.deferred {
                left.push(it.id);
            }
            !drops
        });
        for id in left {
            self.drop_at(view, block.key, id);
        }
    }

    /// Records that a row of a key was dropped and must be read again.
    fn drop_at(&self, view: &mut View, key: Key, id: Id) {
        if !self.positions || self.guards.pass(Guard::DroppedKept, false) {
            return;
        }
        match view.dropped.iter_mut().find(|(k, _)| *k == key) {
            Some((_, from)) => *from = (*from).min(id - 1),
            None => view.dropped.push((key, id - 1)),
        }
    }

    /// Unblocks a key. Its dropped rows can be read now.
    fn unblock(&self, view: &mut View, key: Key, sink: u8, by: Id) {
        view.blocked.retain(|b| b.key != key || b.sink != sink || b.by != by);
    }

    /// Finds the rows that have appeared late, at or below the cursor.
    pub(crate) fn scan(&self, s: &mut State, relay: u16, lane: u8) -> Step {
        let late = s.relays[relay as usize].late.ok_or(Refusal::Absent("late rows"))?;
        let cursor = self.view(s, relay, lane)?.cursor;
        let found: Vec<Id> = s.in_lane(lane).filter(|r| r.state == RowState::Pending && r.id > late && r.id <= cursor).map(|r| r.id).collect();
        let r = &mut s.relays[relay as usize];
        r.late = None;
        match &mut r.page {
            Some(page) if page.key == NO_KEY => {
                page.rows.splice(0..0, found);
            }
            _ => self.admit_all(s, relay, lane, &found)?,
        }
        Ok(())
    }

    /// Merges a page: moves the cursor, and admits the rows in order.
    pub(crate) fn merge(&self, s: &mut State, relay: u16) -> Step {
        let r = &mut s.relays[relay as usize];
        let page = r.page.take().ok_or(Refusal::Absent("a page"))?;
        let Some(view) = r.views.iter_mut().find(|v| v.lane == page.lane && v.fence == page.fence && !v.lost) else {
            return Ok(()); // the lane was lost meanwhile
        };
        if page.key != NO_KEY {
            return self.merge_key(s, relay, &page);
        }
        let late = r.late.is_some_and(|late| late < view.cursor);
        if self.positions {
            self.require(Guard::ScanFirst, !late)?;
        }
        if !late {
            r.late = None;
        }
        view.safe = page.safe;
        if !view.leaving && self.guards.pass(Guard::PageBegins, view.cursor >= page.after) {
            view.cursor = view.cursor.max(page.through);
        }
        self.admit_all(s, relay, page.lane, &page.rows)?;
        let view = self.view(s, relay, page.lane)?;
        view.items.retain(|it| it.stage != Stage::Written);
        Ok(())
    }

    /// Merges dropped rows of a key, unless the key was blocked meanwhile or the lane is being given up.
    fn merge_key(&self, s: &mut State, relay: u16, page: &Page) -> Step {
        let view = self.view(s, relay, page.lane)?;
        view.items.retain(|it| it.stage != Stage::Written);
        let from = (page.key, page.after);
        let blocked = view.blocked.iter().any(|b| b.key == page.key && self.guards.has(b.why));
        if blocked || view.leaving || !view.dropped.contains(&from) {
            return Ok(());
        }
        view.dropped.retain(|dropped| *dropped != from);
        if page.through < view.cursor {
            view.dropped.push((page.key, page.through));
        }
        self.admit_all(s, relay, page.lane, &page.rows)
    }

    pub(crate) fn admit_all(&self, s: &mut State, relay: u16, lane: u8, ids: &[Id]) -> Step {
        for id in ids {
            let row = s.row(*id).clone();
            let view = self.view(s, relay, lane)?;
            if row.id <= view.cursor {
                self.admit(view, &row, false);
            }
        }
        Ok(())
    }

    /// Admits a row into memory, unless it is there or its key is blocked.
    pub(crate) fn admit(&self, view: &mut View, row: &Row, deferred: bool) {
        let known = view.item(row.id).is_some();
        if !self.guards.pass(Guard::KnownIgnored, !known) {
            return;
        }
        if !deferred {
            if view.leaving && self.positions {
                view.cursor = view.cursor.min(row.id - 1);
                return;
            }
            if view.blocker(row.key, row.sink).is_some_and(|b| self.guards.has(b.why)) {
                self.drop_at(view, row.key, row.id);
                return;
            }
            let behind = view.dropped.iter().any(|(k, from)| *k == row.key && row.id > *from);
            if !self.guards.pass(Guard::ResumeInOrder, !behind) {
                return;
            }
        }
        view.take(row, deferred);
    }

    /// Reads a deferred row that is due.
    pub(crate) fn due(&self, s: &mut State, relay: u16, id: Id) -> Step {
        let row = s.row(id).clone();
        if !matches!(row.state, RowState::Retry | RowState::Scheduled) {
            return Err(Refusal::Absent("a deferred row"));
        }
        let view = self.view(s, relay, row.lane)?;
        if view.item(id).is_some() || view.blocker(row.key, row.sink).is_some_and(|b| b.by != id && self.guards.has(b.why)) {
            return Ok(());
        }
        self.admit(view, &row, true);
        if row.state == RowState::Retry && row.key != NO_KEY && view.blocker(row.key, row.sink).is_none() {
            self.block(view, Blocked { key: row.key, sink: row.sink, by: id, why: Guard::RetryBlocks });
        }
        let to = match row.wants {
            Some(Decision::Skip) => RowState::Parked { holds: false },
            Some(Decision::Discard) => RowState::Gone,
            _ => return Ok(()),
        };
        view.item(id).expect("just admitted").stage = Stage::InSettle { to, charged: 0, executed: false };
        Ok(())
    }

    // Sending.

    pub(crate) fn send(&self, s: &mut State, relay: u16, ids: &[Id]) -> Step {
        let r = &mut s.relays[relay as usize];
        self.require(Guard::SendTrusted, r.trusts)?;
        r.turn += 1;
        for (n, id) in ids.iter().enumerate() {
            let repeats = r.failures.get(id).is_some_and(|f| f.proven);
            let turn = r.turn;
            let view = r.views.iter_mut().filter(|v| !v.lost).find(|v| v.items.iter().any(|it| it.id == *id && it.stage == Stage::InQueue)).ok_or(Refusal::Absent("the message in memory"))?;
            let it = view.waiting(*id).expect("just found").clone();
            self.require(Guard::KeptAfterRenewal, !view.leaving)?;
            if it.key != NO_KEY {
                let same = |other: &&Item| other.key == it.key && other.sink == it.sink && other.id != it.id;
                self.require(Guard::KeysAsked, view.keys_known || it.deferred || view.asked.contains(&it.key))?;
                let flies = view.items.iter().filter(same).any(|o| matches!(o.stage, Stage::InFlight { .. }) && !ids[..n].contains(&o.id));
                self.require(Guard::OneInFlight, !flies)?;
                let first = view.items.iter().filter(same).all(|o| it.deferred || it.loose || o.deferred || o.loose || o.id > it.id || !o.is_unfinished() || ids[..n].contains(&o.id));
                self.require(Guard::KeyInOrder, first)?;
                let by = view.blocker(it.key, it.sink).filter(|b| b.by != it.id);
                for why in [Guard::RetryBlocks, Guard::ParkBlocks, Guard::HoldBlocks] {
                    self.require(why, by.is_none_or(|b| b.why != why))?;
                }
            }
            view.waiting(*id).expect("just found").stage = Stage::InFlight { turn, repeats, answer: None };
            let (lane, term) = (view.lane, view.term);
            let l = &s.lanes[lane as usize];
            if l.owner != Some(relay) || l.term != term || l.expired {
                s.broken.add(Invariant::NoSendWithoutLease);
            }
        }
        Ok(())
    }

    /// A message arrives at the sink, or fails on its way.
    pub(crate) fn arrive(&self, s: &mut State, relay: u16, id: Id, answer: Answer) -> Step {
        let r = &mut s.relays[relay as usize];
        let it = r.in_flight(id, false).ok_or(Refusal::Absent("the message in flight"))?;
        let Stage::InFlight { turn, repeats, .. } = it.stage else { unreachable!() };
        it.stage = Stage::InFlight { turn, repeats, answer: Some(answer) };
        for view in r.views.iter_mut().filter(|v| v.dead) {
            view.items.retain(|it| it.id != id || !matches!(it.stage, Stage::InFlight { answer: Some(_), .. })); // no relay receives the answer
        }
        r.views.retain(|v| !v.lost || !v.items.is_empty());
        if answer == Answer::Unsent {
            return Ok(());
        }
        if overtakes(s, id) {
            s.broken.add(Invariant::OrderPerKey);
        }
        let row = s.row_mut(id);
        row.excuses += u8::from(answer == Answer::Lost);
        if matches!(answer, Answer::Delivered | Answer::Lost) {
            row.copies += 1;
        }
        if u16::from(row.copies) > 1 + u16::from(row.excuses) {
            s.broken.add(Invariant::DuplicatesInWindows);
        }
        Ok(())
    }

    /// The relay receives the answer, and judges a failure (breaker.judge).
    pub(crate) fn answer(&self, s: &mut State, relay: u16, id: Id) -> Step {
        let r = &mut s.relays[relay as usize];
        let it = r.in_flight(id, true).ok_or(Refusal::Absent("an answer"))?;
        let Stage::InFlight { turn, repeats, answer: Some(answer) } = it.stage else { unreachable!() };
        let sink = it.sink;
        let judged = match answer {
            Answer::Unsent => Judged::default(),
            Answer::Delivered => {
                r.failures.remove(&id);
                for f in r.failures.values_mut().filter(|f| f.sink == sink) {
                    f.proven |= self.guards.pass(Guard::BegunAfterFailure, turn > f.turn);
                }
                Judged::default()
            }
            Answer::Lost => self.judge(r, id, sink, repeats, false, 0),
            Answer::Failed { reject, outage } => self.judge(r, id, sink, repeats, reject, outage),
        };
        r.in_flight(id, true).expect("just found").stage = Stage::Answered { answer, judged };
        Ok(())
    }

    /// Judges a failure. A failure that repeats the previous one charges the message, now or after a pause. Any other failure is
    /// recorded.
    fn judge(&self, r: &mut Relay, id: Id, sink: u8, repeats: bool, rejected: bool, outage: u8) -> Judged {
        let last = r.failures.get(&id).cloned();
        let twice = rejected && last.as_ref().is_some_and(|f| f.rejected);
        let repeated = last.as_ref().is_some_and(|f| f.proven) && self.guards.pass(Guard::EndedBeforeResend, repeats);
        if !repeated || rejected && !twice {
            r.failures.insert(id, Failure { sink, turn: r.turn, rejected, proven: false, outage });
        }
        Judged { repeated, twice, outage: outage != 0 && last.is_none_or(|f| f.outage == outage), hasty: outage != 0 && rejected && !twice }
    }

    /// The relay decides what to do after an answer (breaker.decide), or with a message that it need not send.
    pub(crate) fn decide(&self, s: &mut State, relay: u16, fence: u64, id: Id, verdict: Verdict) -> Step {
        let row = s.row(id).clone();
        let r = &mut s.relays[relay as usize];
        let unproven = !self.guards.has(Guard::DoneDelivered);
        let decidable = |it: &Item| {
            it.id == id
                && match verdict {
                    Verdict::Schedule | Verdict::Expire { .. } => it.stage == Stage::InQueue,
                    Verdict::Done => matches!(it.stage, Stage::Answered { answer, .. } if unproven || answer == Answer::Delivered),
                    _ => it.stage.is_answered(),
                }
        };
        let view = r.views.iter_mut().find(|v| v.fence == fence && v.items.iter().any(decidable)).ok_or(Refusal::Absent("an answer"))?;
        let lost = view.lost;
        let it = view.items.iter_mut().find(|it| decidable(it)).expect("just found");
        let (to, charged) = match (verdict, it.stage) {
            (Verdict::Schedule, Stage::InQueue) => (RowState::Scheduled, 0),
            (Verdict::Expire { discard: true }, Stage::InQueue) => (RowState::Gone, 0),
            (Verdict::Expire { discard: false }, Stage::InQueue) => (RowState::Parked { holds: false }, 0),
            (Verdict::Done, Stage::Answered { answer, .. }) => {
                self.require(Guard::DoneDelivered, answer == Answer::Delivered)?;
                (RowState::Done, 1)
            }
            (_, Stage::Answered { answer: Answer::Delivered, .. } | Stage::InQueue) => return Err(Refusal::Absent("an answer that allows this verdict")),
            (Verdict::Again, _) => {
                it.stage = Stage::InQueue;
                if lost || view.leaving && self.positions {
                    view.give_up(id);
                }
                return Ok(());
            }
            (Verdict::Retry { charged: false }, _) => (RowState::Retry, 0),
            (Verdict::Retry { charged: true } | Verdict::Park { .. }, Stage::Answered { answer, judged }) if answer != Answer::Unsent => {
                let parks = matches!(verdict, Verdict::Park { .. });
                self.require(Guard::ChargeRepeated, judged.repeated)?;
                if parks {
                    self.require(Guard::RejectedTwice, judged.twice)?;
                }
                if judged.outage || parks && judged.hasty {
                    s.broken.add(Invariant::OutageChargesNothing);
                }
                r.failures.remove(&id);
                match verdict {
                    Verdict::Park { holds } => (RowState::Parked { holds: holds && row.key != NO_KEY }, 1),
                    _ => (RowState::Retry, 1),
                }
            }
            _ => return Err(Refusal::Absent("an answer that allows this verdict")),
        };
        it.stage = Stage::InSettle { to, charged, executed: false };
        if row.key == NO_KEY || lost || matches!(verdict, Verdict::Expire { .. }) {
            return Ok(()); // an expired message blocks nothing; the later ones of its key wait until it is written
        }
        let why = match to {
            RowState::Done => {
                self.unblock(view, row.key, row.sink, id);
                return Ok(());
            }
            RowState::Retry => Guard::RetryBlocks,
            RowState::Parked { .. } => Guard::ParkBlocks,
            _ => return Ok(()),
        };
        view.blocked.retain(|b| b.by != id);
        self.block(view, Blocked { key: row.key, sink: row.sink, by: id, why });
        Ok(())
    }

    // Settling.

    /// A settlement reaches the table.
    pub(crate) fn settle(&self, s: &mut State, relay: u16, fence: u64, id: Id) -> Step<Written> {
        let r = &mut s.relays[relay as usize];
        let settles = |it: &Item| it.id == id && matches!(it.stage, Stage::InSettle { .. });
        let view = r.views.iter_mut().find(|v| v.fence == fence && v.items.iter().any(settles)).ok_or(Refusal::Absent("an outcome"))?;
        let (lane, term) = (view.lane, view.term);
        let it = view.items.iter_mut().find(|it| settles(it)).expect("just found");
        let Stage::InSettle { to, charged, executed } = it.stage else { unreachable!() };
        let (deferred, attempts, changes) = (it.deferred, it.attempts + charged, it.changes);
        it.stage = Stage::InSettle { to, charged, executed: true };
        if !self.leased(s, Guard::SettleFenced, relay, lane, fence) {
            return Ok(Written::Fenced);
        }
        let owned = s.lanes[lane as usize].owner == Some(relay) && s.lanes[lane as usize].term == term;
        let row = s.row_mut(id);
        let there = match row.state {
            RowState::Pending => !deferred,
            // A repeated retry changes nothing, nor does the settlement of a row that was read before an operator's decision.
            RowState::Retry | RowState::Scheduled => deferred && (changes == row.changes || matches!(to, RowState::Done | RowState::Gone)),
            _ => false,
        };
        if !self.guards.pass(Guard::SettleOnce, there) || row.state == RowState::Open || row.state == RowState::Gone {
            return Ok(Written::Missing);
        }
        if executed && row.loose {
            s.broken.add(Invariant::DecisionKept);
        }
        let row = s.row_mut(id);
        (row.state, row.attempts, row.wants, row.changes) = (to, attempts, None, row.changes + 1);
        row.loose |= to == RowState::Scheduled;
        if to == RowState::Done && row.copies == 0 {
            s.broken.add(Invariant::DoneWasDelivered);
        }
        if !owned {
            s.broken.add(Invariant::NoWriteWhileFenced);
        }
        Ok(Written::Changed)
    }

    /// The relay learns the result of a settlement. If the result is lost, the settlement is repeated.
    pub(crate) fn settled(&self, s: &mut State, relay: u16, fence: u64, id: Id, lost: bool) -> Step {
        let r = &mut s.relays[relay as usize];
        let reading = r.page.is_some();
        let executed = |it: &Item| it.id == id && matches!(it.stage, Stage::InSettle { .. });
        let view = r.views.iter_mut().find(|v| v.fence == fence && v.items.iter().any(executed)).ok_or(Refusal::Absent("a settlement"))?;
        let it = view.items.iter_mut().find(|it| executed(it)).expect("just found");
        let Stage::InSettle { to, .. } = it.stage else { unreachable!() };
        if lost && !self.guards.pass(Guard::SettleAgain, false) {
            return Ok(());
        }
        let (key, sink) = (it.key, it.sink);
        it.stage = Stage::Written;
        let stays = !view.lost && reading && !self.guards.pass(Guard::SettledKnown, false);
        if !stays {
            view.items.retain(|it| it.id != id || it.stage != Stage::Written);
        }
        match to {
            RowState::Parked { holds: true } => {
                for b in view.blocked.iter_mut().filter(|b| b.by == id) {
                    b.why = Guard::HoldBlocks;
                }
            }
            RowState::Parked { holds: false } | RowState::Gone => self.unblock(view, key, sink, id),
            _ => {}
        }
        r.views.retain(|v| !v.lost || !v.items.is_empty());
        Ok(())
    }

    /// An operator decides about a parked message.
    pub(crate) fn decided(&self, s: &mut State, id: Id, decision: Decision) -> Step {
        let row = s.row_mut(id);
        let RowState::Parked { holds } = row.state else { return Err(Refusal::Absent("a parked message")) };
        (row.state, row.wants, row.loose) = match (holds, decision) {
            (true, Decision::Requeue) => (RowState::Retry, None, true),
            (false, Decision::Requeue) => (RowState::Scheduled, None, true),
            (true, _) => (RowState::Retry, Some(decision), true),
            (false, Decision::Skip) => return Err(Refusal::Absent("a parked message that holds its key")),
            (false, Decision::Discard) => (RowState::Gone, None, true),
        };
        row.changes += 1;
        if decision == Decision::Requeue {
            row.attempts = 0;
        }
        Ok(())
    }
}

/// The block of a row that blocks its key in the table.
fn blocked_by(row: &Row) -> Option<Blocked> {
    let why = match row.state {
        RowState::Retry => Guard::RetryBlocks,
        RowState::Parked { holds: true } => Guard::HoldBlocks,
        _ => return None,
    };
    Some(Blocked { key: row.key, sink: row.sink, by: row.id, why })
}

/// Reports whether a message that is sent now overtakes an earlier one of its key.
fn overtakes(s: &State, id: Id) -> bool {
    let row = s.row(id);
    let waits = |state| matches!(state, RowState::Pending | RowState::Retry | RowState::Parked { holds: true });
    row.key != NO_KEY
        && !row.loose
        && s.rows.iter().any(|r| r.id < id && r.key == row.key && r.sink == row.sink && waits(r.state) && r.copies == 0 && !(r.loose && r.state != RowState::Retry) && !matches!(r.wants, Some(Decision::Skip | Decision::Discard)))
}

impl Item {
    /// Reports whether later messages of the key must wait for this one.
    fn is_unfinished(&self) -> bool {
        match self.stage {
            Stage::InQueue => true,
            Stage::Answered { answer, .. } => answer != Answer::Delivered,
            _ => false,
        }
    }
}

impl Stage {
    fn is_answered(self) -> bool {
        matches!(self, Stage::Answered { .. })
    }
}

impl Relay {
    fn in_flight(&mut self, id: Id, answered: bool) -> Option<&mut Item> {
        let wanted = |it: &&mut Item| it.id == id && matches!(it.stage, Stage::InFlight { answer, .. } if answer.is_some() == answered);
        self.views.iter_mut().flat_map(|v| &mut v.items).find(wanted)
    }
}

impl View {
    /// The message that blocks a key.
    pub fn blocker(&self, key: Key, sink: u8) -> Option<Blocked> {
        self.blocked.iter().find(|b| key != NO_KEY && b.key == key && b.sink == sink).copied()
    }

    /// Takes a row into memory.
    pub fn take(&mut self, row: &Row, deferred: bool) {
        let item = Item { id: row.id, key: row.key, sink: row.sink, deferred, loose: row.loose, changes: row.changes, attempts: row.attempts, stage: Stage::InQueue };
        let at = self.items.partition_point(|it| it.id < item.id);
        self.items.insert(at, item);
    }

    /// A message that may be sent: it waits, or is to be sent again.
    fn waiting(&mut self, id: Id) -> Option<&mut Item> {
        self.items.iter_mut().find(|it| it.id == id && it.stage == Stage::InQueue)
    }
}
