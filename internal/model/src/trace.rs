//! The replay of traces of the real engine, from the simulation and from chaos runs on databases. A trace is accepted if each of its events is an action that the model allows, with
//! the same result, and if no state violates an invariant.

use crate::explore::violated;
use crate::guard::{Counts, Guard, Guards, take_counts};
use crate::model::*;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A line of a trace (relay/trace_test.go).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    e: String,
    t: i64,
    c: u32,
    began: i64,
    from: Option<i64>,
    r: String,
    lost: bool,
    id: Id,
    lane: u8,
    key: String,
    topic: String,
    due: i64,
    expires: i64,
    by: i64,
    ids: Vec<Id>,
    answers: Vec<String>,
    outage: u8,
    ttl: i64,
    now: i64,
    grants: Vec<Granted>,
    leases: Vec<Lease>,
    kept: Vec<Lease>,
    lanes: Vec<u8>,
    limit: usize,
    asked: Vec<LaneKey>,
    blocks: Vec<Block>,
    ranges: Vec<Range>,
    except: Vec<String>,
    rows: Vec<Seen>,
    page: PageSeen,
    settled: Vec<Outcome>,
    counts: Option<[usize; 3]>,
    drain: i64,
    reuses: bool,
}

impl Event {
    /// The beginning of the interval in which the call took effect. The interval ends at t. In a simulation both are equal.
    fn earliest(&self) -> i64 {
        self.from.unwrap_or(self.t)
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "PascalCase")]
struct Lease {
    lane: u8,
    fence: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Granted {
    #[serde(flatten)]
    lease: Lease,
    main: Id,
    #[serde(default)]
    sinks: BTreeMap<String, Id>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LaneKey {
    lane: u8,
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Block {
    lane: u8,
    key: String,
    id: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Seen {
    id: Id,
    later: bool,
    retrying: bool,
    expires: i64,
    attempts: u32,
    wants: u8,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PageSeen {
    more: bool,
    through: u64,
    late: i64,
    safe: u64,
    last: Id,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Outcome {
    id: Id,
    lane: u8,
    fence: u64,
    state: String,
    attempts: u32,
    holds: bool,
    deferred: bool,
    result: String,
}

/// A position to read from: lane, after, until and key.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
enum Range {
    Lane(u8, i64),
    Key(u8, i64, Id, String),
}

impl Range {
    fn parts(&self) -> (u8, i64, Id, &str) {
        match self {
            Range::Lane(lane, after) => (*lane, *after, 0, ""),
            Range::Key(lane, after, until, key) => (*lane, *after, *until, key),
        }
    }
}

/// Why a trace is rejected.
type Rejection = String;

/// What the replay stores about a message in addition to the model.
struct About {
    topic: String,
    due: i64,
    expires: i64,
    by: i64, // when the message expires according to its route
}

struct Replay {
    model: Model,
    s: State,
    relays: HashMap<String, u16>,
    dead: Vec<bool>,
    keys: HashMap<String, Key>,
    about: HashMap<Id, About>,
    leased: HashMap<(u16, u8), u64>, // the fence of the last lease of a lane that a relay received
    read: HashSet<(u64, Id)>,    // rows that were read, by fence
    appeared: Option<Id>,        // the lowest id that has appeared, minus 1
    until: Vec<i64>,             // the time when each lane's lease ends
    beat: Vec<i64>,              // the time when each relay's last heartbeat began
    stopped: Vec<Option<i64>>,   // the time when each relay was stopped
    safe_until: Vec<i64>,        // the time until which each relay may send
    pages: Vec<[HashSet<Id>; 2]>, // the rows of the last two pages that each relay has received
    dues: Vec<Vec<(Id, u16)>>,   // the deferred rows that each relay has received last, with their changes
    calls: HashMap<u32, Event>,  // calls that took effect, and whose results are on their way
    database: bool,              // a trace of a real database; README.md lists what it allows in addition
    reuses: bool,                // the database assigns the ids of a transaction that rolls back again
    drain: i64,                  // the drain time-out of the relays
    last_page: Vec<Option<Id>>,  // the last id of the page that each relay read last
}

const LANES: usize = 64;

/// The time in microseconds by which the relay's estimate of the database's clock may be wrong. For this time a message that has
/// expired may still be sent, or settled as if it had not expired.
const CLOCK: i64 = 1_000;

/// On a real database a send may begin until this number of microseconds after safeUntil, which is a quarter of the histories' lease:
/// until the lease ends. The relay compares safeUntil with the clock before it passes the batch to a worker, and the trace shows when
/// the worker began the send. On a busy machine this takes a while.
const LATE_SEND: i64 = 750_000;

fn check(condition: bool, why: impl FnOnce() -> String) -> Result<(), Rejection> {
    if condition { Ok(()) } else { Err(why()) }
}

/// The drain time-out of the relays in the simulation, in microseconds.
const DRAIN_TIMEOUT: i64 = 3_000_000;

/// Counts of events by kind.
type Kinds = BTreeMap<String, u64>;

/// Guards that no trace shows, because they are about the positions of readers, or about times between two events.
const UNSEEN: &[Guard] = &[
    Guard::KeysTakeTurns, Guard::MarkCursor, Guard::MarkDropped, Guard::ScanFirst, Guard::PageBegins, Guard::SettledKnown, Guard::DroppedKept,
    Guard::ResumeInOrder, Guard::LossDrops,
];

/// Guards whose conditions fail in traces of an engine that is correct. Others fail in traces of mutants only.
const BOTH: &[Guard] = &[
    Guard::RenewFenced, Guard::SettleFenced, Guard::SettleOnce, Guard::KnownIgnored, Guard::BegunAfterFailure, Guard::EndedBeforeResend,
];

/// Events, answers and decisions that the traces must have.
const EXPECTED: &[&str] = &[
    "assign", "insert", "rollback", "start", "stop", "kill", "heartbeat", "acquire: free", "acquire: expired", "renew", "release", "blocked keys", "read",
    "scan", "due", "send", "answer", "arrive: delivered", "arrive: failed", "arrive: rejected", "arrive: lost", "arrive: unsent", "decide: again",
    "decide: retry", "decide: retry, charged", "decide: park", "decide: park, holds", "decide: expire", "settle: changed", "settle: fenced", "settle: missing",
    "requeue", "skip", "discard", "got", "lost",
];

/// What the traces of databases must have in addition. A store may report lower ids than necessary, but some of its ids must be exact.
const EXPECTED_OF_DATABASES: &[&str] = &["database", "page: safe id exact", "page: safe id lower", "page: late rows exact", "page: late rows lower"];

/// The results of some traces.
#[derive(Default)]
struct Results {
    accepted: u64,
    events: usize,
    rejected: Vec<(PathBuf, Rejection)>,
    kinds: Kinds,
    counts: Vec<Counts>,
}

/// Replays the traces in a folder and those in its folder of databases. All of them must be accepted. It also replays the traces in
/// the folders of mutants, each of which the replay or the history itself must reject. It reports whether one of these checks failed.
pub fn replay_all(folder: &Path) -> bool {
    let mut failed = false;
    if !traces(folder).is_empty() {
        failed |= report(&replay_folder(folder), "of the engine", &[]);
        failed |= mutants(&folder.join("mutants"), 0);
    }
    let databases = folder.join("databases");
    if databases.exists() {
        println!();
        failed |= report(&replay_folder(&databases), "of chaos runs on databases", EXPECTED_OF_DATABASES);
        failed |= mutants(&databases.join("mutants"), 1);
    }
    failed || traces(folder).is_empty() && !databases.exists()
}

/// Prints the results of traces that must be accepted, and reports whether a check failed.
fn report(results: &Results, what: &str, more_kinds: &[&str]) -> bool {
    let mut failed = results.accepted == 0 || !results.rejected.is_empty();
    println!("{} traces {what} with {} events were accepted, {} rejected", results.accepted, results.events, results.rejected.len());
    for (path, why) in results.rejected.iter().take(20) {
        let kept = std::env::temp_dir().join(path.file_name().unwrap_or_default()); // the folder may be deleted after the replay
        match std::fs::copy(path, &kept) {
            Ok(_) => println!("{}: {why}", kept.display()),
            Err(err) => println!("{}: {why}; it was not copied to {}: {err}", path.display(), kept.display()),
        }
    }
    println!("\n| event | how often |\n| --- | --: |");
    for (kind, n) in &results.kinds {
        println!("| {kind} | {n} |");
    }
    for kind in EXPECTED.iter().chain(more_kinds).filter(|kind| !results.kinds.contains_key(**kind)) {
        println!("| {kind} | **never** |");
        failed = true;
    }
    println!("\n| guard | held | did not hold |\n| --- | --: | --: |");
    for guard in Guard::ALL.iter().filter(|guard| !UNSEEN.contains(guard)) {
        let [no, yes] = [0, 1].map(|result| results.counts.iter().map(|counts| counts[*guard as usize][result]).sum::<u64>());
        let vacuous = yes + no == 0 || BOTH.contains(guard) && (yes == 0 || no == 0);
        failed |= vacuous;
        println!("| {} | {yes} | {no}{} |", guard.text(), if vacuous { " **vacuous**" } else { "" });
    }
    failed
}

/// Replays the traces of mutants, and reports whether one of the mutants was detected neither by the model nor by its histories, or
/// whether the model rejected traces of fewer mutants than required.
fn mutants(folder: &Path, required: usize) -> bool {
    let (mut failed, mut by_model) = (false, 0);
    println!("\n| mutant | traces | rejected | the first reason | what the histories report |\n| --- | --: | --: | --- | --- |");
    for path in entries(folder).into_iter().filter(|path| path.is_dir()) {
        let results = replay_folder(&path);
        let notes = entries(&path).into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "txt"));
        let problem = notes.filter_map(|path| std::fs::read_to_string(path).ok()).find(|text| !text.is_empty()).unwrap_or_default();
        let n = results.rejected.len();
        let why = results.rejected.first().map_or("", |(_, why)| why);
        failed |= n == 0 && problem.is_empty();
        by_model += usize::from(n > 0);
        println!("| {} | {} | {n} | {why} | {problem} |", path.file_name().unwrap_or_default().display(), results.accepted as usize + n);
    }
    failed || by_model < required
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// The traces in a folder.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let mut paths = entries(folder);
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "jsonl"));
    paths
}

/// Replays the traces of a folder, in two threads.
fn replay_folder(folder: &Path) -> Results {
    let paths = traces(folder);
    let (some, others) = paths.split_at(paths.len() / 2);
    let (mut results, more) = std::thread::scope(|threads| {
        let more = threads.spawn(|| replay_files(others));
        (replay_files(some), more.join().expect("no panic"))
    });
    results.accepted += more.accepted;
    results.events += more.events;
    results.rejected.extend(more.rejected);
    results.counts.extend(more.counts);
    for (kind, n) in more.kinds {
        *results.kinds.entry(kind).or_default() += n;
    }
    results
}

fn replay_files(paths: &[PathBuf]) -> Results {
    let mut results = Results::default();
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|err| err.to_string());
        match text.and_then(|text| replay(&text, &mut results.kinds)) {
            Ok(events) => {
                results.accepted += 1;
                results.events += events;
            }
            Err(why) => results.rejected.push((path.clone(), why)),
        }
    }
    results.counts.push(take_counts());
    results
}

/// Replays a trace. It returns the number of its events, or why and at which event the trace is rejected.
fn replay(text: &str, kinds: &mut Kinds) -> Result<usize, Rejection> {
    let mut replay = Replay {
        model: Model { guards: Guards::all(), positions: false },
        s: State { lanes: vec![Lane::default(); LANES], ..State::default() },
        relays: HashMap::new(), dead: vec![], keys: HashMap::from([(String::new(), NO_KEY)]), about: HashMap::new(), leased: HashMap::new(), read: HashSet::new(), appeared: None,
        until: vec![0; LANES], stopped: vec![], beat: vec![], safe_until: vec![], pages: vec![], dues: vec![], calls: HashMap::new(),
        database: false, reuses: false, drain: DRAIN_TIMEOUT, last_page: vec![],
    };
    let mut n = 0;
    for line in text.lines() {
        let event: Event = serde_json::from_str(line).map_err(|err| format!("line {}: {err}", n + 1))?;
        n += 1;
        *kinds.entry(event.e.clone()).or_default() += 1;
        let (kind, at) = (event.e.clone(), event.t);
        replay.event(event, kinds).map_err(|why| format!("{kind}: {why} (line {n}, at {} ms)", at / 1000))?;
        if let Some(broken) = replay.s.broken.first() {
            return Err(format!("{kind}: violates: {} (line {n}, at {} ms)", broken.text(), at / 1000));
        }
    }
    Ok(n)
}

impl Replay {
    fn step(&mut self, action: Action) -> Result<(), Rejection> {
        self.model.step(&mut self.s, &action).map_err(|refusal| match refusal {
            Refusal::Guard(guard) => format!("guard: {}", guard.text()),
            Refusal::Absent(what) => format!("not enabled: without {what}"),
        })
    }

    fn relay(&self, name: &str) -> Result<u16, Rejection> {
        self.relays.get(name).copied().ok_or_else(|| format!("unknown relay {name}"))
    }

    fn key(&mut self, name: &str) -> Key {
        let next = self.keys.len() as Key;
        *self.keys.entry(name.to_string()).or_insert(next)
    }

    fn knows(&self, id: Id) -> Result<(), Rejection> {
        check(self.about.contains_key(&id), || format!("row {id} does not exist"))
    }

    fn event(&mut self, e: Event, kinds: &mut Kinds) -> Result<(), Rejection> {
        match e.e.as_str() {
            "database" => {
                check(self.s.rows.is_empty() && self.relays.is_empty(), || "not the first event".into())?;
                (self.database, self.reuses, self.drain) = (true, e.reuses, e.drain);
                Ok(())
            }
            "start" => {
                if !self.relays.contains_key(&e.r) {
                    self.relays.insert(e.r.clone(), self.s.relays.len() as u16);
                    self.s.relays.push(Relay { unreported: self.appeared, ..Relay::default() });
                    self.last_page.push(None);
                    self.dead.push(false);
                    self.stopped.push(None);
                    self.beat.push(0);
                    self.safe_until.push(0);
                    self.pages.push(Default::default());
                    self.dues.push(vec![]);
                }
                Ok(())
            }
            "assign" => {
                let key = self.key(&e.key);
                check(self.s.rows.last().is_none_or(|r| r.id < e.id), || format!("id {} is not new", e.id))?;
                self.about.insert(e.id, About { topic: e.topic.clone(), due: e.due, expires: e.expires, by: e.by });
                self.s.rows.push(Row {
                    id: e.id, lane: e.lane, key, sink: sink_of(&e.topic), state: RowState::Open, attempts: 0, wants: None, changes: 0,
                    loose: key == NO_KEY || e.due > 0, copies: 0, excuses: 0,
                });
                Ok(())
            }
            "insert" if e.ids.is_empty() => Ok(()),
            "insert" => {
                self.appeared = lowest(self.appeared, e.ids.iter().min().map(|id| id - 1));
                self.step(Action::Commit { ids: e.ids.clone() })?;
                e.ids.iter().try_for_each(|id| self.marks_hold(self.s.row(*id).lane))
            }
            "rollback" => {
                self.step(Action::Rollback { ids: e.ids.clone() })?;
                if self.reuses {
                    let kept = self.s.rows.len().saturating_sub(e.ids.len());
                    check(self.s.rows[kept..].iter().all(|r| e.ids.contains(&r.id)), || "later ids are assigned".into())?;
                    self.s.rows.truncate(kept);
                    self.about.retain(|id, _| !e.ids.contains(id));
                }
                Ok(())
            }
            "requeue" | "skip" | "discard" => self.operator(&e),
            "stop" => {
                let relay = self.relay(&e.r)?;
                self.stopped[relay as usize] = Some(e.t);
                Ok(())
            }
            "kill" => {
                let relay = self.relay(&e.r)?;
                self.dead[relay as usize] = true;
                self.step(Action::Kill { relay })
            }
            "send" | "arrive" | "answer" => self.sink(&e, kinds),
            "got" | "lost" => match self.calls.remove(&e.c) {
                Some(call) => self.returned(call, e.e == "got"),
                None => Ok(()),
            },
            _ => {
                self.takes_effect(&e, kinds)?;
                self.calls.insert(e.c, e);
                Ok(())
            }
        }
    }

    fn operator(&mut self, e: &Event) -> Result<(), Rejection> {
        let decision = match e.e.as_str() {
            "requeue" => Decision::Requeue,
            "skip" => Decision::Skip,
            _ => Decision::Discard,
        };
        for id in &e.ids {
            self.knows(*id)?;
            if matches!(self.s.row(*id).state, RowState::Parked { .. }) {
                self.step(Action::Decided { id: *id, decision })?;
                continue;
            }
            // A writer cancels its scheduled message.
            self.s.row_mut(*id).state = RowState::Gone;
            for view in self.s.relays.iter_mut().flat_map(|r| &mut r.views) {
                view.items.retain(|it| it.id != *id || it.stage != Stage::InQueue);
            }
        }
        Ok(())
    }

    fn sink(&mut self, e: &Event, kinds: &mut Kinds) -> Result<(), Rejection> {
        let relay = self.relay(&e.r)?;
        let dead = self.dead[relay as usize];
        match e.e.as_str() {
            "send" if dead => Ok(()),
            "send" => {
                let late = if self.database { LATE_SEND } else { 0 };
                self.s.relays[relay as usize].trusts = e.t < self.safe_until[relay as usize] + late;
                for id in &e.ids {
                    self.knows(*id)?;
                    if let Some(fence) = self.answered(relay, *id, false) {
                        self.step(Action::Decide { relay, fence, id: *id, verdict: Verdict::Again })?;
                        *kinds.entry("decide: again".into()).or_default() += 1;
                    }
                    let lane = self.s.row(*id).lane;
                    self.lapse(lane, e.t);
                }
                self.merge_pages(relay);
                self.step(Action::Send { relay, ids: e.ids.clone() }).map_err(|why| format!("{why}: messages {:?}", e.ids))
            }
            "arrive" => {
                let answer = answer_of(&e.answers[0], e.outage);
                *kinds.entry(format!("arrive: {}", e.answers[0])).or_default() += 1;
                match self.step(Action::Arrive { relay, id: e.id, answer }) {
                    Err(_) if dead => Ok(()),
                    result => result,
                }
            }
            _ if dead => Ok(()),
            _ => {
                for (id, answer) in e.ids.iter().zip(&e.answers) {
                    let id = *id;
                    let given = self.s.relays[relay as usize].views.iter().flat_map(|v| &v.items).find_map(|it| match it.stage {
                        Stage::InFlight { answer, .. } if it.id == id => Some(answer),
                        _ => None,
                    });
                    if given == Some(None) {
                        self.step(Action::Arrive { relay, id, answer: answer_of(answer, 0) })?;
                    }
                    self.step(Action::Answer { relay, id })?;
                    if let Some(fence) = self.answered(relay, id, true) {
                        self.step(Action::Decide { relay, fence, id, verdict: Verdict::Done })?;
                    }
                }
                self.merge_pages(relay);
                Ok(())
            }
        }
    }

    /// The fence under which a message was answered. If delivered is true, the answer is a delivery; otherwise it is another answer, after
    /// which the relay may have decided to send the message again.
    fn answered(&self, relay: u16, id: Id, delivered: bool) -> Option<u64> {
        let views = self.s.relays[relay as usize].views.iter().filter(|v| delivered || !v.lost);
        let wanted = |it: &Item| it.id == id && matches!(it.stage, Stage::Answered { answer, .. } if delivered == (answer == Answer::Delivered));
        views.into_iter().find(|v| v.items.iter().any(wanted)).map(|v| v.fence)
    }

    /// The lease of a lane expires when its time has passed.
    fn lapse(&mut self, lane: u8, now: i64) {
        let l = &self.s.lanes[lane as usize];
        if let (Some(owner), false) = (l.owner, l.expired || self.until[lane as usize] >= now) {
            if now >= self.safe_until[owner as usize] {
                self.s.relays[owner as usize].trusts = false;
            }
            let _ = self.step(Action::Expire { lane });
        }
    }

    fn marks_hold(&self, lane: u8) -> Result<(), Rejection> {
        violated(&self.s, lane, false).map_or(Ok(()), |broken| Err(format!("violates: {}", broken.text())))
    }

    /// A call takes effect in the table.
    fn takes_effect(&mut self, e: &Event, kinds: &mut Kinds) -> Result<(), Rejection> {
        let relay = self.relay(&e.r)?;
        match e.e.as_str() {
            "heartbeat" => Ok(()),
            "bury" => check(self.s.lanes.iter().all(|l| l.owner != Some(relay)), || "a relay with this name has leases".into()),
            "acquire" => {
                for lease in &e.leases {
                    let lane = lease.lane;
                    self.lapse(lane, e.t);
                    let marks = self.s.lanes[lane as usize].marks.clone();
                    *kinds.entry(if self.s.lanes[lane as usize].expired { "acquire: expired" } else { "acquire: free" }.into()).or_default() += 1;
                    self.step(Action::Acquire { relay, lane, fence: lease.fence }).map_err(|why| format!("lane {lane}: {why}"))?;
                    self.until[lane as usize] = e.earliest() + e.ttl;
                    if let Some(granted) = e.grants.iter().find(|g| g.lease.lane == lane) {
                        check(granted.lease == *lease && marks_of(granted) == marks, || format!("lane {lane}: granted {granted:?}, in the table {lease:?} with {marks:?}"))?;
                    }
                }
                Ok(())
            }
            "renew" | "release" => {
                if e.e == "renew" {
                    for view in &mut self.s.relays[relay as usize].views {
                        view.leaving = !e.grants.iter().any(|g| g.lease == Lease { lane: view.lane, fence: view.fence });
                    }
                }
                let leaves = self.stopped[relay as usize].is_some_and(|at| e.t >= at + self.drain);
                for granted in &e.grants {
                    let Lease { lane, fence } = granted.lease;
                    let marks = marks_of(granted);
                    let leased = self.model.leased(&self.s, Guard::RenewFenced, relay, lane, fence);
                    check(leased == e.leases.contains(&granted.lease), || format!("lane {lane}: leased {leased}"))?;
                    if !leased {
                        continue; // the relay learns it from the result
                    }
                    if e.e == "renew" {
                        self.step(Action::Renew { relay, lane, fence, marks }).map_err(|why| format!("lane {lane}: {why}"))?;
                        self.until[lane as usize] = e.earliest() + e.ttl;
                    } else {
                        if !leaves {
                            self.forget_failures(relay, lane, fence)?;
                        }
                        self.step(Action::Release { relay, lane, fence, marks, leaves }).map_err(|why| format!("lane {lane}: {why}"))?;
                    }
                    self.marks_hold(lane)?;
                }
                Ok(())
            }
            "blocked keys" => self.blocked_keys(e),
            "read" => self.read(e, relay, kinds),
            "due" => {
                for seen in &e.rows {
                    self.knows(seen.id)?;
                    let row = self.s.row(seen.id);
                    let wants = match (row.state, row.wants) {
                        (RowState::Retry, Some(Decision::Skip)) => 2,
                        (RowState::Retry, Some(Decision::Discard)) => 3,
                        _ => 0,
                    };
                    let there = if seen.retrying { row.state == RowState::Retry } else { row.state == RowState::Scheduled };
                    check(there && wants == seen.wants && row.attempts == seen.attempts, || format!("{seen:?}, in the table {row:?}"))?;
                    self.expiry(seen)?;
                }
                Ok(())
            }
            "scan" => e.rows.iter().try_for_each(|seen| {
                self.knows(seen.id)?;
                check(self.s.row(seen.id).state == RowState::Pending, || format!("row {} is not pending", seen.id))
            }),
            "settle" => {
                for outcome in &e.settled {
                    self.settle(e, relay, outcome, kinds).map_err(|why| format!("message {}: {why}", outcome.id))?;
                }
                Ok(())
            }
            other => Err(format!("unknown event {other}")),
        }
    }

    /// When a lane is released, its failed messages that wait in memory are dropped.
    fn forget_failures(&mut self, relay: u16, lane: u8, fence: u64) -> Result<(), Rejection> {
        let views = &self.s.relays[relay as usize].views;
        let items = views.iter().filter(|v| v.lane == lane && v.fence == fence).flat_map(|v| &v.items);
        let failed: Vec<Id> = items.filter(|it| matches!(it.stage, Stage::Answered { .. })).map(|it| it.id).collect();
        failed.into_iter().try_for_each(|id| self.step(Action::Decide { relay, fence, id, verdict: Verdict::Again }))
    }

    fn expiry(&self, seen: &Seen) -> Result<(), Rejection> {
        let expires = self.about[&seen.id].expires;
        check(seen.expires == expires || seen.expires == 0 && self.s.row(seen.id).loose, || format!("row {}: expires at {}, in the table at {expires}", seen.id, seen.expires))
    }

    fn blocked_keys(&mut self, e: &Event) -> Result<(), Rejection> {
        if e.lost {
            return Ok(());
        }
        let asked: Vec<(u8, Key)> = e.asked.iter().map(|a| (a.lane, self.key(&a.key))).collect();
        let told: Vec<(u8, Key, u64)> = e.blocks.iter().map(|b| (b.lane, self.key(&b.key), b.id)).collect();
        let mut expected = vec![];
        for row in self.s.rows.iter().filter(|r| r.key != NO_KEY && matches!(r.state, RowState::Retry | RowState::Parked { holds: true })) {
            if e.lanes.contains(&row.lane) || asked.contains(&(row.lane, row.key)) {
                expected.push((row.lane, row.key, u64::from(row.id)));
            }
        }
        let wrong = told.iter().find(|t| !expected.contains(t));
        check(wrong.is_none(), || format!("reports {wrong:?}, which blocks nothing"))?;
        let complete = if asked.is_empty() { told.len() < e.limit } else { true };
        let missing = expected.iter().find(|(lane, key, id)| match asked.is_empty() {
            true => !told.contains(&(*lane, *key, *id)),
            false => !told.iter().any(|(l, k, t)| l == lane && k == key && t <= id), // one row for each topic of a key
        });
        check(!complete || missing.is_none(), || format!("does not report {missing:?}"))
    }

    fn read(&mut self, e: &Event, relay: u16, kinds: &mut Kinds) -> Result<(), Rejection> {
        if e.lost {
            return Ok(()); // the store does not count it as a read
        }
        let (page, late) = (&e.page, self.model.late(&self.s, relay));
        let reported = (page.late >= 0).then_some(page.late as Id);
        let exact = !self.database;
        let told = match (reported, late) {
            _ if exact => reported == late,
            (Some(reported), late) => late.is_none_or(|late| reported <= late),
            // Rows above the last id of the previous page are not late. Before the first page nothing was read.
            (None, late) => late.is_none_or(|late| self.last_page[relay as usize].is_none_or(|last| late >= last)),
        };
        check(told, || format!("late rows above {reported:?}, in the table above {late:?}"))?;
        let safe = self.model.safe_id(&self.s);
        check(page.safe == u64::from(safe) || !exact && page.safe < u64::from(safe), || format!("safe id {}, in the table {safe}", page.safe))?;
        if !exact {
            *kinds.entry(format!("page: safe id {}", if page.safe == u64::from(safe) { "exact" } else { "lower" })).or_default() += 1;
            if late.is_some() && reported.is_some() {
                *kinds.entry(format!("page: late rows {}", if reported == late { "exact" } else { "lower" })).or_default() += 1;
            }
        }
        let (last, read) = (self.s.rows.last().map_or(0, |r| r.id), e.rows.iter().map(|seen| seen.id).max().unwrap_or(0));
        check(page.last == last || !exact && page.last >= read && page.last < last, || format!("last id {}, in the table {last}", page.last))?;
        self.last_page[relay as usize] = Some(page.last);
        let mut left: HashSet<Id> = e.rows.iter().map(|seen| seen.id).collect();
        for (n, range) in e.ranges.iter().enumerate() {
            let (lane, after, until, key) = range.parts();
            if e.ranges[..n].contains(&e.ranges[n]) {
                continue;
            }
            let key = (!key.is_empty()).then(|| self.key(key));
            let after = Id::try_from(after).unwrap_or(0);
            let within = |r: &&Row| r.lane == lane && r.id > after && (until == 0 || r.id <= until) && key.is_none_or(|k| k == r.key);
            let excepted = |r: &&Row| e.except.contains(&self.about[&r.id].topic);
            let mut twice = HashSet::new();
            let mut told = e.rows.iter().filter(|seen| twice.insert(seen.id)).filter(|seen| self.s.rows.binary_search_by_key(&seen.id, |r| r.id).is_ok_and(|at| within(&&self.s.rows[at])));
            let from = self.s.rows.partition_point(|r| r.id <= after);
            for row in self.s.rows[from..].iter().filter(within).filter(|r| r.state == RowState::Pending && !excepted(r)) {
                match told.next() {
                    Some(seen) => {
                        check(seen.id == row.id, || format!("row {} instead of {}", seen.id, row.id))?;
                        let (due, clock) = (self.about[&row.id].due, if exact { 0 } else { CLOCK });
                        check(if seen.later { due > e.earliest() - clock } else { due <= e.t + clock }, || format!("row {}: later {}", row.id, seen.later))?;
                        self.expiry(seen)?;
                        left.remove(&row.id);
                    }
                    None => {
                        check(self.model.guards.pass(Guard::MoreReported, page.more) && page.through < u64::from(row.id), || format!("row {} is missing, more {}, through {}", row.id, page.more, page.through))?;
                        break;
                    }
                }
            }
        }
        check(left.is_empty(), || "rows that were not asked for".into())?;
        self.s.relays[relay as usize].unreported = None;
        Ok(())
    }

    fn settle(&mut self, e: &Event, relay: u16, o: &Outcome, kinds: &mut Kinds) -> Result<(), Rejection> {
        self.knows(o.id)?;
        let id = o.id;
        // A row that is scheduled or has expired is settled even if its key is blocked, or its lane was lost since it was read.
        let about = &self.about[&id];
        let due = about.due;
        let expired = [about.expires, about.by].iter().any(|by| *by > 0 && *by <= e.t + CLOCK);
        if (o.state == "scheduled" && about.due > 0 || expired && o.attempts == self.s.row(id).attempts) && self.read.contains(&(o.fence, id)) {
            let row = self.s.row(id).clone();
            self.hold(relay, o, &row);
        }
        let views = &self.s.relays[relay as usize].views;
        let item = views.iter().filter(|v| v.lane == o.lane && v.fence == o.fence).flat_map(|v| &v.items).find(|it| it.id == id).cloned();
        let item = item.ok_or_else(|| "not enabled: the message is not in memory".to_string())?;
        check(item.deferred == o.deferred, || format!("deferred {}", o.deferred))?;
        let charged = o.attempts.saturating_sub(item.attempts);
        let has_answer = matches!(item.stage, Stage::Answered { .. });
        if !matches!(item.stage, Stage::InSettle { .. }) {
            let verdict = match o.state.as_str() {
                "done" => return Err("guard: ".to_string() + Guard::DoneDelivered.text()),
                "retry" => Verdict::Retry { charged: charged > 0 },
                "error" if expired && !o.holds => Verdict::Expire { discard: false },
                "error" => Verdict::Park { holds: o.holds },
                "discarded" if expired => Verdict::Expire { discard: true },
                                "scheduled" if due > 0 => Verdict::Schedule,
                other => return Err(format!("not enabled: {other}")),
            };
            if has_answer && matches!(verdict, Verdict::Expire { .. }) {
                self.step(Action::Decide { relay, fence: o.fence, id, verdict: Verdict::Again })?;
                let row = self.s.row(id).clone();
                self.hold(relay, o, &row);
            }
            self.step(Action::Decide { relay, fence: o.fence, id, verdict })?;
            let name = match verdict {
                Verdict::Retry { charged: true } => "decide: retry, charged",
                Verdict::Retry { charged: false } => "decide: retry",
                Verdict::Park { holds: true } => "decide: park, holds",
                Verdict::Park { holds: false } => "decide: park",
                Verdict::Schedule => "decide: schedule",
                _ => "decide: expire",
            };
            *kinds.entry(name.into()).or_default() += 1;
        }
        let written = self.model.settle(&mut self.s, relay, o.fence, id).map_err(|_| "not enabled: without an outcome")?;
        let name = match written {
            Written::Changed => "changed",
            Written::Fenced => "fenced",
            Written::Missing => "missing",
        };
        *kinds.entry(format!("settle: {name}")).or_default() += 1;
        check(name == o.result, || format!("{}, in the model {name}", o.result))
    }

    /// Puts a row into memory that the relay has read under a lease, if it isn't there. The relay may have lost the lease since.
    fn hold(&mut self, relay: u16, o: &Outcome, row: &Row) {
        let views = &mut self.s.relays[relay as usize].views;
        if views.iter().any(|v| v.fence == o.fence && v.items.iter().any(|it| it.id == row.id)) {
            return;
        }
        let at = views.iter().position(|v| v.lane == o.lane && v.fence == o.fence).unwrap_or_else(|| {
            let term = 0; // the term of a lease that has ended
            views.push(View { lane: o.lane, fence: o.fence, lost: true, term, ..View::default() });
            views.len() - 1
        });
        views[at].take(row, o.deferred);
    }

    /// The relay receives the result of a call, or learns that it is lost.
    fn returned(&mut self, call: Event, got: bool) -> Result<(), Rejection> {
        let relay = self.relay(&call.r)?;
        let at = relay as usize;
        if self.dead[at] {
            return Ok(());
        }
        match call.e.as_str() {
            "heartbeat" if got => {
                let right = call.earliest() - CLOCK <= call.now && call.now <= call.t + CLOCK;
                check(right, || format!("the database's time is {}, not {} to {}", call.now, call.earliest(), call.t))?;
                self.beat[at] = call.began;
            }
            "renew" if got => {
                self.safe_until[at] = self.beat[at] + call.ttl * 3 / 4;
                let sorted = |leases: &[Lease]| BTreeSet::from_iter(leases.iter().copied());
                check(sorted(&call.kept) == sorted(&call.leases), || format!("kept {:?}, in the table {:?}", call.kept, call.leases))?;
                for granted in call.grants.iter().filter(|g| !call.kept.contains(&g.lease)) {
                    let Lease { lane, fence } = granted.lease;
                    if self.s.view_at(relay, lane, fence).is_ok() {
                        self.step(Action::Renew { relay, lane, fence, marks: Marks::default() })?;
                    }
                }
            }
            "acquire" if !got => {
                for view in &mut self.s.relays[at].views {
                    if call.leases.contains(&Lease { lane: view.lane, fence: view.fence }) {
                        view.lose(); // the relay doesn't know that it has the lane
                    }
                }
            }
            "acquire" => {
                check(call.grants.len() == call.leases.len(), || "other lanes were granted than in the table".into())?;
                self.leased.extend(call.leases.iter().map(|lease| ((relay, lease.lane), lease.fence)));
                self.safe_until[at] = self.beat[at] + call.ttl * 3 / 4;
            }
            "blocked keys" if got => {
                for lane in call.lanes.iter().filter(|_| call.blocks.len() < call.limit) {
                    let _ = self.step(Action::Keys { relay, lane: *lane });
                }
                for asked in &call.asked {
                    let key = self.key(&asked.key);
                    if let Some(view) = self.s.relays[at].current(asked.lane) {
                        view.asked.push(key);
                    }
                }
            }
            "read" => {
                if got {
                    if !call.ranges.is_empty() {
                        self.pages[at][0] = std::mem::take(&mut self.pages[at][1]);
                    }
                    for view in &mut self.s.relays[at].views {
                        view.safe = view.safe.max(call.page.safe as Id);
                    }
                    self.admit(relay, &call.rows);
                }
            }
            "scan" if got => self.admit(relay, &call.rows),
            "due" if got => {
                self.dues[at].clear();
                for seen in &call.rows {
                    let (lane, changes) = (self.s.row(seen.id).lane, self.s.row(seen.id).changes);
                    self.dues[at].push((seen.id, changes));
                    self.receive(relay, lane, seen.id);
                    let _ = self.step(Action::Due { relay, id: seen.id });
                }
            }
            "settle" => {
                let mut counts = [0; 3];
                for o in &call.settled {
                    counts[["changed", "fenced", "missing"].iter().position(|name| *name == o.result).unwrap_or(0)] += 1;
                    self.step(Action::Settled { relay, fence: o.fence, id: o.id, lost: !got })?;
                }
                self.merge_pages(relay);
                check(!got || call.counts == Some(counts), || format!("counts {:?}, in the table {counts:?}", call.counts))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The loop merges a page, and deferred rows, later than the relay receives them. Meanwhile a key of the rows may have been
    /// unblocked.
    fn merge_pages(&mut self, relay: u16) {
        let ids: Vec<Id> = self.pages[relay as usize].iter().flatten().copied().collect();
        for id in ids {
            let row = self.s.row(id).clone();
            if let Some(view) = self.s.relays[relay as usize].current(row.lane).filter(|_| row.state == RowState::Pending) {
                if view.item(id).is_none() {
                    self.model.admit(view, &row, false);
                }
            }
        }
        for (id, changes) in self.dues[relay as usize].clone() {
            if self.s.row(id).changes == changes {
                let _ = self.step(Action::Due { relay, id });
            }
        }
    }

    /// A relay receives a row. It may have lost the lane since it read the row, and may merge the row before it learns that.
    fn receive(&mut self, relay: u16, lane: u8, id: Id) {
        if let Some(fence) = self.leased.get(&(relay, lane)) {
            self.read.insert((*fence, id));
        }
    }

    fn admit(&mut self, relay: u16, rows: &[Seen]) {
        self.pages[relay as usize][1].extend(rows.iter().map(|seen| seen.id));
        for seen in rows {
            let row = self.s.row(seen.id).clone();
            self.receive(relay, row.lane, row.id);
            if let Some(view) = self.s.relays[relay as usize].current(row.lane).filter(|_| row.state == RowState::Pending) {
                if !seen.later {
                    self.model.admit(view, &row, false);
                }
            }
        }
    }
}

fn sink_of(topic: &str) -> u8 {
    topic.as_bytes().first().map_or(0, |c| c - b'a')
}

fn marks_of(granted: &Granted) -> Marks {
    Marks { main: granted.main, sinks: granted.sinks.iter().filter(|(name, _)| name.len() == 1).map(|(name, id)| (sink_of(name), *id)).collect() }
}

fn answer_of(name: &str, outage: u8) -> Answer {
    match name {
        "delivered" => Answer::Delivered,
        "lost" => Answer::Lost,
        "failed" => Answer::Failed { reject: false, outage },
        "rejected" => Answer::Failed { reject: true, outage },
        _ => Answer::Unsent,
    }
}
