//! The guards of rowrelay, which can be taken away one at a time, and the invariants that they protect.

use std::cell::RefCell;

/// Declares an enum whose values have a text.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($value:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($value,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$value,)*];

            pub fn text(self) -> &'static str {
                match self { $($name::$value => $text,)* }
            }
        }
    };
}

named! {
    /// A guard is a condition that the store or the engine checks.
    Guard {
        // Writers.
        KeysTakeTurns = "only one open transaction at a time writes messages of a key",
        // The store.
        SafeBelowOpen = "the safe id is below the ids of all open transactions",
        LateReported = "a page reports the rows that appeared below the cursors",
        MoreReported = "a page that met its limit reports where it ended",
        AcquireFree = "only a free or expired lane is leased",
        FenceGrows = "each lease has a higher fence",
        RenewFenced = "a lease with an old fence can't be renewed",
        SettleFenced = "a settlement with an old fence changes nothing",
        SettleOnce = "a settlement that is repeated changes nothing",
        // The lease.
        StopsBeforeExpiry = "a relay stops sending before its lease expires",
        SendTrusted = "nothing is sent after safeUntil",
        LossDrops = "a lane that was lost is dropped from memory",
        ReleaseIdle = "a lane is released only if none of its messages is in flight or, before the drain time-out, unsettled",
        KeptAfterRenewal = "a relay keeps a lane that it was giving up only after a renewal",
        // Marks.
        MarkSafe = "no mark is above the safe id of the last merged page",
        MarkCursor = "no mark is above the cursor",
        MarkMemory = "no mark is above a pending row in memory",
        MarkDropped = "no mark is above the dropped rows of a blocked key",
        // Reading.
        ScanFirst = "late rows are merged before the page that reports them",
        PageBegins = "a page moves only cursors at or above its beginning",
        KnownIgnored = "a row that is in memory is ignored",
        SettledKnown = "a settled row stays known until the reads in progress have ended",
        DroppedKept = "the position of the dropped rows of a blocked key is kept",
        ResumeInOrder = "no row of an unblocked key is taken before its dropped rows",
        KeysAsked = "the blocked keys are read before a message of a newly leased lane is sent",
        // Sending.
        KeyInOrder = "the messages of a key are sent in the order of their ids",
        OneInFlight = "one batch of a key is in flight at a time",
        RetryBlocks = "a retry blocks its key",
        ParkBlocks = "a message that is being parked blocks its key until the new state is written",
        HoldBlocks = "with HoldKey, a parked message blocks its key until an operator decides",
        // Outcomes.
        DoneDelivered = "only a message that the sink has accepted is marked as done",
        SettleAgain = "a settlement whose result is unknown is repeated",
        // The breaker.
        ChargeRepeated = "a failure is charged only if it repeats after another delivery",
        BegunAfterFailure = "the send of the other delivery began after the first failure",
        EndedBeforeResend = "the send of the other delivery ended before the message was sent again",
        RejectedTwice = "a rejection parks a message only if its previous failure was a rejection",
    }
}

named! {
    /// An invariant is one of the promises in docs/semantics.md, or a rule on which these promises depend.
    Invariant {
        NothingLost = "nothing lost: each unfinished row is in memory, or some read finds it",
        MarkBelowUnfinished = "a mark passes no pending row and no open transaction",
        OrderPerKey = "order per key: a message is sent after the earlier ones of its key were delivered or parked",
        NoWriteWhileFenced = "no relay changes a message after it has lost the lease",
        NoSendWithoutLease = "no send begins without a valid lease",
        DuplicatesInWindows = "duplicates only in the named windows",
        OutageChargesNothing = "an outage charges no attempt and parks no message",
        DoneWasDelivered = "only delivered messages are done",
        DecisionKept = "an operator's decision is never undone",
    }
}

impl Guard {
    /// Returns the name of the scene that shows what the guard is for, and the invariant that the scene violates without the guard.
    /// In other scenes the guard may not be needed. Without SettleOnce, some scenes have infinitely many states and no violation.
    pub fn shown(self) -> (&'static str, Invariant) {
        use Invariant::*;
        match self {
            Guard::SafeBelowOpen | Guard::MarkSafe | Guard::MarkMemory | Guard::ScanFirst => ("failures", MarkBelowUnfinished),
            Guard::LateReported => ("failures", NothingLost),
            Guard::KnownIgnored | Guard::SettledKnown => ("failures", DuplicatesInWindows),
            Guard::DoneDelivered => ("failures", DoneWasDelivered),
            Guard::ChargeRepeated | Guard::BegunAfterFailure | Guard::EndedBeforeResend | Guard::RejectedTwice => ("failures", OutageChargesNothing),
            Guard::KeysTakeTurns | Guard::KeyInOrder | Guard::OneInFlight | Guard::RetryBlocks | Guard::ParkBlocks | Guard::HoldBlocks => ("holds", OrderPerKey),
            Guard::SettleOnce => ("holds", DecisionKept),
            Guard::MarkDropped => ("holds", MarkBelowUnfinished),
            Guard::DroppedKept => ("holds", NothingLost),
            Guard::AcquireFree | Guard::RenewFenced | Guard::StopsBeforeExpiry | Guard::SendTrusted | Guard::KeptAfterRenewal => ("leaving", NoSendWithoutLease),
            Guard::FenceGrows | Guard::SettleFenced => ("leaving", NoWriteWhileFenced),
            Guard::LossDrops => ("leaving", NothingLost),
            Guard::MoreReported => ("late", NothingLost),
            Guard::MarkCursor => ("late", MarkBelowUnfinished),
            Guard::ReleaseIdle => ("takeover", DuplicatesInWindows),
            Guard::SettleAgain => ("holds", NothingLost),
            Guard::PageBegins => ("resuming", NothingLost),
            Guard::ResumeInOrder | Guard::KeysAsked => ("resuming", OrderPerKey),
        }
    }
}

/// The guards that are in force.
#[derive(Clone, Copy, Debug)]
pub struct Guards(u64);

impl Guards {
    pub fn all() -> Self {
        Guards(u64::MAX)
    }

    pub fn without(guard: Guard) -> Self {
        Guards(!(1 << guard as u64))
    }

    pub fn has(self, guard: Guard) -> bool {
        self.0 & (1 << guard as u64) != 0
    }

    /// Reports whether the condition is true or the guard is not in force, and counts the condition's values.
    pub fn pass(self, guard: Guard, condition: bool) -> bool {
        COUNTS.with_borrow_mut(|counts| counts[guard as usize][usize::from(condition)] += 1);
        condition || !self.has(guard)
    }
}

/// How often each guard was evaluated, by its result.
pub type Counts = [[u64; 2]; Guard::ALL.len()];

thread_local! {
    static COUNTS: RefCell<Counts> = const { RefCell::new([[0; 2]; Guard::ALL.len()]) };
}

/// Returns the counts of this thread, and resets them.
pub fn take_counts() -> Counts {
    COUNTS.with_borrow_mut(|counts| std::mem::replace(counts, [[0; 2]; Guard::ALL.len()]))
}

/// A set of invariants that were violated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken(u16);

impl Broken {
    pub fn add(&mut self, invariant: Invariant) {
        self.0 |= 1 << invariant as u16;
    }

    pub fn has(self, invariant: Invariant) -> bool {
        self.0 & (1 << invariant as u16) != 0
    }

    pub fn first(self) -> Option<Invariant> {
        Invariant::ALL.iter().copied().find(|i| self.has(*i))
    }
}
