package storetest

import "testing"

// check is one check of the suite.
type check struct {
	name string
	run  func(t testing.TB, table Table)

	// manyWriters: the check keeps several writing transactions open, or rows locked.
	manyWriters bool

	// byRows: the check does nothing by lanes.
	byRows bool

	// passesOver: the check requires that a claim skips locked rows.
	passesOver bool
}

// checks returns all checks of the suite.
func checks() []check {
	return []check{
		{name: "acquire shares the lanes out", run: acquireSharesOut},
		{name: "acquire keeps to the count", run: acquireKeepsToTheCount},
		{name: "takeover only after expiry", run: takeoverAfterExpiry},
		{name: "fences grow at random", run: fencesGrowAtRandom},
		{name: "one row under two fences", run: oneRowUnderTwoFences},
		{name: "calm renewal clears crashes", run: calmRenewal},
		{name: "renew extends the lease", run: renewExtends},
		{name: "renew after the end", run: renewAfterTheEnd},
		{name: "renew is for the holder", run: renewIsForTheHolder},
		{name: "release is for the holder", run: releaseIsForTheHolder},
		{name: "a lease ends though its relay lives", run: leaseEndsThoughItsRelayLives},
		{name: "a namesake has no leases", run: namesakeHasNoLeases},
		{name: "leaving keeps leases", run: leavingKeepsLeases},
		{name: "renewal races a takeover", run: renewalRacesTakeover},
		{name: "marks are kept", run: marksAreKept},
		{name: "marks of another epoch are not", run: marksOfAnotherEpoch},
		{name: "journals are kept", run: journalsAreKept},
		{name: "sent batches are kept", run: sentBatchesAreKept},
		{name: "rows are picked wherever they wait", run: picksWaitingRows},

		{name: "old fence changes nothing", run: oldFenceChangesNothing},
		{name: "wrong fence changes nothing", run: wrongFenceChangesNothing},
		{name: "some of a batch fenced", run: someFenced},
		{name: "settle is for the owner", run: settleIsForTheOwner},
		{name: "settle held open across a takeover", run: settleAcrossTakeover, manyWriters: true},
		{name: "settle races a takeover", run: settleRacesTakeover},

		{name: "moves keep the message", run: movesKeepTheMessage},
		{name: "retry waits its delay", run: retryWaitsItsDelay},
		{name: "scheduled keeps its time", run: scheduledKeepsItsTime},
		{name: "done rows are deleted", run: doneRowsAreDeleted},
		{name: "discarded rows are gone", run: discardedRowsAreGone},
		{name: "discard by token", run: discardByToken, byRows: true},
		{name: "settle twice", run: settleTwice},
		{name: "parked is missing", run: parkedIsMissing},
		{name: "settle a mixed batch", run: settleMixedBatch},
		{name: "settle some of a key", run: settleSomeOfAKey},
		{name: "settle nothing", run: settleNothing},
		{name: "settle concurrently", run: settleConcurrently},
		{name: "settle given up", run: settleGivenUp, manyWriters: true},

		{name: "dead letters are written", run: deadLettersAreWritten},
		{name: "dead letters once", run: deadLettersOnce},
		{name: "dead letters in order", run: deadLettersInOrder},
		{name: "dead letters by token", run: deadLettersByToken, byRows: true},
		{name: "dead letters of sinks", run: deadLettersOfSinks},
		{name: "dead letters concurrently", run: deadLettersConcurrently},

		{name: "settle keeps to the message", run: settleKeepsToTheMessage},
		{name: "token keeps to the message", run: tokenKeepsToTheMessage, byRows: true},
		{name: "done meets its id again", run: doneMeetsItsIDAgain},
		{name: "held meets its id again", run: heldMeetsItsIDAgain},
		{name: "return meets its id again", run: returnMeetsItsIDAgain, byRows: true},
		{name: "return brings one of an id", run: returnsOneOfAnID, byRows: true},
		{name: "pick brings all of an id", run: picksAllOfAnID},

		{name: "read keeps to positions", run: readKeepsToPositions},
		{name: "read in order", run: readInOrder},
		{name: "read first positions first", run: readFirstPositionsFirst},
		{name: "read stops at bytes", run: readStopsAtBytes},
		{name: "read after a settle", run: readAfterSettle},
		{name: "readers leave out settled rows", run: readersLeaveOutSettledRows},
		{name: "grants are true above their marks", run: grantsAreTrueAboveTheirMarks},
		{name: "scan asks for each row", run: scanAsksForEachRow},
		{name: "scan in steps", run: scanInSteps},
		{name: "except keeps others", run: exceptKeepsOthers},
		{name: "page tells the epoch", run: pageTellsTheEpoch},

		{name: "late commit", run: lateCommit, manyWriters: true},
		{name: "late within a key", run: lateWithinAKey, manyWriters: true},
		{name: "late told without rows", run: lateToldWithoutRows, manyWriters: true},
		{name: "late beside a slow settle", run: lateBesideASlowSettle, manyWriters: true},
		{name: "failed read tells nothing", run: failedReadTellsNothing, manyWriters: true},
		{name: "every reader hears", run: everyReaderHears, manyWriters: true},
		{name: "gaps by rollbacks", run: gapsByRollbacks},
		{name: "many writers", run: manyWriters},

		{name: "due in order", run: dueInOrder},
		{name: "due tells retries from scheduled", run: dueTellsRetriesFromScheduled},
		{name: "retries hold their keys", run: retriesHoldTheirKeys},
		{name: "held keys are found among others", run: heldAmongOthers},
		{name: "held across a takeover", run: heldAcrossTakeover},
		{name: "parked rows hold their keys", run: parkedHoldTheirKeys},
		{name: "skip lets a key go on", run: skipLetsAKeyGoOn},
		{name: "discard of a held key", run: discardOfAHeldKey},
		{name: "a decision outlives a repeated settlement", run: decisionOutlivesARepeatedSettlement},
		{name: "changes outlive a repeated settlement", run: changesOutliveARepeatedSettlement},

		{name: "what remains is what is due", run: remainingIsWhatIsDue},
		{name: "what remains is unclaimed", run: remainingIsUnclaimed, byRows: true},

		{name: "settle for some sinks", run: settleForSome},
		{name: "settle for some sinks, not kept", run: settleForSomeUnkept},
		{name: "settle for some sinks by lease, message and sinks", run: settleForSomeKeeps},
		{name: "parts are settled apart", run: partsAreSettledApart},
		{name: "settle parts beside whole rows", run: settlePartsBesideWholes},
		{name: "readers tell the sinks", run: readersTellSinks},
		{name: "filter by sink", run: filterBySink},
		{name: "pages keep parts together", run: pagesKeepParts},
		{name: "operate on parts", run: operateOnParts},
		{name: "reclaim brings one part", run: returnsOnePart, byRows: true},

		{name: "claims are distinct", run: claimsAreDistinct, byRows: true},
		{name: "claim passes over locked rows", run: claimPassesOverLockedRows, manyWriters: true, byRows: true, passesOver: true},
		{name: "claim picks", run: claimPicks, byRows: true},
		{name: "claim keeps to topics", run: claimKeepsToTopics, byRows: true},
		{name: "claim returns the message", run: claimReturnsTheMessage, byRows: true},
		{name: "reclaim frees ended claims", run: reclaimFreesEndedClaims, byRows: true},
		{name: "reclaim concurrently", run: reclaimConcurrently, byRows: true},
		{name: "reclaim brings back due rows", run: reclaimBringsBackDueRows, byRows: true},
		{name: "extend keeps the claim", run: extendKeepsTheClaim, byRows: true},
		{name: "settle by token", run: settleByToken, byRows: true},
		{name: "pending gives back", run: pendingGivesBack, byRows: true},
		{name: "claim keeps to bytes", run: claimKeepsToBytes, byRows: true},

		{name: "requeue parked", run: requeueParked},
		{name: "retries are changed", run: retriesAreChanged},
		{name: "retries are changed by rows", run: retriesAreChangedByRows, byRows: true},
		{name: "requeue by rows", run: requeueByRows, byRows: true},
		{name: "requeued never expires", run: requeuedNeverExpires},
		{name: "requeued by rows never expires", run: requeuedByRowsNeverExpires, byRows: true},
		{name: "discard parked", run: discardParked},
		{name: "parked are listed", run: parkedAreListed},
		{name: "overtaken are told", run: overtakenAreTold},
		{name: "redirect requeues to a sink", run: redirectRequeues},
		{name: "redirect of what waits", run: redirectOfWhatWaits},
		{name: "redirect of what waits by rows", run: redirectOfWhatWaitsByRows, byRows: true},
		{name: "redirect keeps to whole messages", run: redirectKeepsToWholeMessages},
		{name: "replay copies in order", run: replayCopiesInOrder},
		{name: "replay selects", run: replaySelects},
		{name: "replay goes on", run: replayGoesOn},
		{name: "replay keeps to sinks", run: replayKeepsToSinks},
		{name: "replay counts what is pending", run: replayCountsPending},

		{name: "controls are kept", run: controlsAreKept},
		{name: "controls end", run: controlsEnd},
		{name: "actions are logged", run: actionsAreLogged},
		{name: "filters select", run: filtersSelect},
		{name: "list pages", run: listPages},
		{name: "changes have no limit", run: changesHaveNoLimit},
		{name: "status counts", run: statusCounts},
		{name: "status counts claims", run: statusCountsClaims, byRows: true},
		{name: "status tells the oldest", run: statusTellsTheOldest},

		{name: "members", run: members, byRows: true},
		{name: "the dead lose their lanes", run: buryByLanes},
		{name: "the dead lose their claims", run: buryByRows, byRows: true},
		{name: "beat tells the time", run: beatTellsTheTime},
		{name: "adoption", run: adoption, byRows: true},
		{name: "adoption forgets", run: adoptionForgets},
		{name: "adoption ends holds", run: adoptionEndsHolds},
		{name: "adoption fences", run: adoptionFences},
		{name: "adoption ends claims", run: adoptionEndsClaims},
		{name: "adoption beside settles by token", run: adoptionBesideSettles},
		{name: "purge keeps to the retention", run: purgeKeepsToRetention},
		{name: "purge counts from the finish", run: purgeCountsFromTheFinish},
		{name: "ended context", run: endedContext},
	}
}
