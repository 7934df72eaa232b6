package storetest

import "testing"

// check is one check of the suite.
type check struct {
	name string
	run  func(t testing.TB, table Table)

	// manyWriters: the check keeps several writing transactions open, or it keeps rows locked.
	manyWriters bool

	// byRows: the check doesn't claim by lanes.
	byRows bool

	// passesOver: the check requires that a claim skips locked rows.
	passesOver bool
}

// checks returns all checks of the suite.
func checks() []check {
	return []check{
		{name: "acquire gives each lane to one relay", run: acquireGivesEachLaneToOneRelay},
		{name: "acquire grants at most the requested lanes", run: acquireGrantsAtMostTheRequest},
		{name: "takeover only after expiry", run: takeoverAfterExpiry},
		{name: "fences grow by random steps", run: fencesGrowByRandomSteps},
		{name: "batch with an old and the current lease", run: batchWithOldAndCurrentLease},
		{name: "calm renewal clears crashes", run: calmRenewal},
		{name: "renew extends the lease", run: renewExtends},
		{name: "renew after expiry", run: renewAfterExpiry},
		{name: "only the holder renews", run: onlyTheHolderRenews},
		{name: "only the holder releases", run: onlyTheHolderReleases},
		{name: "a lease expires while its relay is alive", run: leaseExpiresWhileItsRelayIsAlive},
		{name: "a restarted relay has no leases of its predecessor", run: restartedRelayHasNoLeases},
		{name: "deregistering keeps leases", run: deregisteringKeepsLeases},
		{name: "renewal races a takeover", run: renewalRacesTakeover},
		{name: "marks are kept", run: marksAreKept},
		{name: "marks of another epoch are not stored", run: marksOfAnotherEpoch},
		{name: "journals are kept", run: journalsAreKept},
		{name: "sent batches are kept", run: sentBatchesAreKept},
		{name: "pick returns pending and deferred rows", run: picksWaitingRows},

		{name: "old fence changes nothing", run: oldFenceChangesNothing},
		{name: "wrong fence changes nothing", run: wrongFenceChangesNothing},
		{name: "batch with current and lost leases", run: batchWithCurrentAndLostLeases},
		{name: "only the owner settles", run: onlyTheOwnerSettles},
		{name: "settle that waits during a takeover", run: settleDuringTakeover, manyWriters: true},
		{name: "settle races a takeover", run: settleRacesTakeover},

		{name: "moves keep the message", run: movesKeepTheMessage},
		{name: "retry is due after its delay", run: retryIsDueAfterItsDelay},
		{name: "scheduled keeps its time", run: scheduledKeepsItsTime},
		{name: "done rows are deleted", run: doneRowsAreDeleted},
		{name: "discarded rows are deleted", run: discardedRowsAreDeleted},
		{name: "discard by token", run: discardByToken, byRows: true},
		{name: "settle twice", run: settleTwice},
		{name: "parked rows can't be settled", run: parkedRowsCannotBeSettled},
		{name: "settle a mixed batch", run: settleMixedBatch},
		{name: "settle some rows of a key", run: settleSomeRowsOfAKey},
		{name: "settle an empty batch", run: settleAnEmptyBatch},
		{name: "settle concurrently", run: settleConcurrently},
		{name: "cancelled settle writes all or nothing", run: cancelledSettleWritesAllOrNothing, manyWriters: true},

		{name: "failed attempts are kept", run: attemptsAreKept},
		{name: "failed attempts of a batch", run: attemptsOfABatch},
		{name: "failed attempts of each sink", run: attemptsOfEachSink},
		{name: "failed attempts when claiming by rows", run: attemptsByRows, byRows: true},
		{name: "logs of failed attempts are limited", run: attemptLogsAreLimited},

		{name: "dead letters are written", run: deadLettersAreWritten},
		{name: "dead letters are written once", run: deadLettersAreWrittenOnce},
		{name: "dead letters in order", run: deadLettersInOrder},
		{name: "dead letters require the claim's token", run: deadLettersRequireTheToken, byRows: true},
		{name: "a dead letter is written for each sink", run: deadLettersOfEachSink},
		{name: "dead letters concurrently", run: deadLettersConcurrently},

		{name: "settle changes only its message", run: settleChangesOnlyItsMessage},
		{name: "settle by token changes only its message", run: tokenChangesOnlyItsMessage, byRows: true},
		{name: "done row whose id is reused", run: doneRowWhoseIDIsReused},
		{name: "deferred row whose id is reused", run: deferredRowWhoseIDIsReused},
		{name: "reclaim leaves a row deferred while another row with its id is pending", run: reclaimWaitsForAPendingID, byRows: true},
		{name: "reclaim moves rows with the same id one at a time", run: reclaimMovesOneRowOfAnID, byRows: true},
		{name: "pick returns all rows with an id", run: picksAllRowsOfAnID},

		{name: "read obeys positions", run: readObeysPositions},
		{name: "read in order", run: readInOrder},
		{name: "a full page begins with the first position or the oldest row", run: readFirstPositionsFirst},
		{name: "read obeys the byte limit", run: readObeysTheByteLimit},
		{name: "read after a settle", run: readAfterSettle},
		{name: "reads leave out settled rows", run: readsLeaveOutSettledRows},
		{name: "next holder finds the unsettled rows above the mark", run: nextHolderFindsUnsettledRows},
		{name: "scan calls its callback once for each row", run: scanCallsKeepOncePerRow},
		{name: "scan in steps", run: scanInSteps},
		{name: "reads leave out only the excepted topics", run: exceptLeavesOutOnlyItsTopics},
		{name: "page has the epoch and the last id", run: pageHasTheEpoch},

		{name: "late commit", run: lateCommit, manyWriters: true},
		{name: "late commit within a key", run: lateCommitWithinAKey, manyWriters: true},
		{name: "read without positions reports late rows", run: lateRowsWithoutPositions, manyWriters: true},
		{name: "late commit during a slow settle", run: lateCommitDuringASlowSettle, manyWriters: true},
		{name: "late rows are reported after a failed read", run: failedReadKeepsTheReport, manyWriters: true},
		{name: "every reader gets the report of late rows", run: everyReaderGetsTheReport, manyWriters: true},
		{name: "ids of rollbacks don't stop the safe id", run: gapsByRollbacks},
		{name: "many writers", run: manyWriters},

		{name: "due in order", run: dueInOrder},
		{name: "due distinguishes retries from scheduled rows", run: dueDistinguishesRetries},
		{name: "retries block their keys", run: retriesBlockTheirKeys},
		{name: "blocked keys are found among others", run: blockedAmongOthers},
		{name: "next holder finds deferred rows and blocked keys", run: deferredAcrossTakeover},
		{name: "parked rows hold their keys", run: parkedHoldTheirKeys},
		{name: "skip unblocks a held key", run: skipUnblocksAHeldKey},
		{name: "discard unblocks a held key", run: discardUnblocksAHeldKey},
		{name: "a repeated settlement keeps an operator's decision", run: repeatedSettlementKeepsADecision},
		{name: "a repeated settlement keeps an operator's change", run: repeatedSettlementKeepsAChange},

		{name: "remaining returns the due rows", run: remainingReturnsTheDueRows},
		{name: "remaining leaves out claimed rows", run: remainingLeavesOutClaimedRows, byRows: true},

		{name: "settle for some sinks", run: settleForSome},
		{name: "settle for some sinks without done rows", run: settleForSomeWithoutDoneRows},
		{name: "settle for some sinks requires lease, message and sinks", run: settleForSomeRequires},
		{name: "rows of a message are settled separately", run: partsAreSettledSeparately},
		{name: "settle rows for some or all sinks in one batch", run: settlePartsAndWholeRows},
		{name: "reads return the sinks", run: readsReturnTheSinks},
		{name: "filter by sink", run: filterBySink},
		{name: "a list page has all rows of its last message", run: listPageHasAllParts},
		{name: "operators change a message for one sink", run: operatorsChangeOnePart},
		{name: "reclaim moves rows of a message one at a time", run: reclaimMovesOnePart, byRows: true},

		{name: "claims are distinct", run: claimsAreDistinct, byRows: true},
		{name: "claim skips locked rows", run: claimSkipsLockedRows, manyWriters: true, byRows: true, passesOver: true},
		{name: "claim obeys the pick", run: claimObeysThePick, byRows: true},
		{name: "claim obeys topics", run: claimObeysTopics, byRows: true},
		{name: "claim returns the message", run: claimReturnsTheMessage, byRows: true},
		{name: "reclaim frees expired claims", run: reclaimFreesExpiredClaims, byRows: true},
		{name: "reclaim concurrently", run: reclaimConcurrently, byRows: true},
		{name: "reclaim moves due rows back", run: reclaimMovesDueRowsBack, byRows: true},
		{name: "extend keeps the claim", run: extendKeepsTheClaim, byRows: true},
		{name: "settle by token", run: settleByToken, byRows: true},
		{name: "settle as pending frees the row", run: settleAsPendingFreesTheRow, byRows: true},
		{name: "claim obeys the byte limit", run: claimObeysTheByteLimit, byRows: true},

		{name: "requeue parked", run: requeueParked},
		{name: "operators change retries", run: operatorsChangeRetries},
		{name: "operators change retries when claiming by rows", run: operatorsChangeRetriesByRows, byRows: true},
		{name: "requeue when claiming by rows", run: requeueByRows, byRows: true},
		{name: "an expired message never expires after a requeue", run: requeuedNeverExpires},
		{name: "an expired message never expires after a requeue when claiming by rows", run: requeuedByRowsNeverExpires, byRows: true},
		{name: "discard parked", run: discardParked},
		{name: "parked messages are listed", run: parkedMessagesAreListed},
		{name: "overtaken messages are marked in the list", run: overtakenMessagesAreMarked},
		{name: "redirect requeues to a sink", run: redirectRequeues},
		{name: "redirect waiting rows", run: redirectOfWaitingRows},
		{name: "redirect waiting rows when claiming by rows", run: redirectOfWaitingRowsByRows, byRows: true},
		{name: "redirect leaves out messages with a pending row", run: redirectLeavesOutParts},
		{name: "replay copies in order", run: replayCopiesInOrder},
		{name: "replay selects", run: replaySelects},
		{name: "replay continues from its stored position", run: replayContinues},
		{name: "replay obeys sinks", run: replayObeysSinks},
		{name: "replay counts pending copies", run: replayCountsPendingCopies},

		{name: "controls are kept", run: controlsAreKept},
		{name: "controls end", run: controlsEnd},
		{name: "actions are logged", run: actionsAreLogged},
		{name: "filters select", run: filtersSelect},
		{name: "list pages", run: listPages},
		{name: "requeue and discard change all rows", run: requeueAndDiscardChangeAllRows},
		{name: "status counts", run: statusCounts},
		{name: "status counts claims", run: statusCountsClaims, byRows: true},
		{name: "status shows the oldest pending row", run: statusShowsTheOldest},

		{name: "relays are members while they are alive", run: membersAreAlive, byRows: true},
		{name: "fencing a relay ends its leases", run: fencingARelayEndsItsLeases},
		{name: "fencing a relay ends its claims", run: fencingARelayEndsItsClaims, byRows: true},
		{name: "heartbeat returns the database's time", run: heartbeatReturnsTheTime},
		{name: "claim mode can't change while relays use it", run: claimModeChanges, byRows: true},
		{name: "claim mode change resets marks and claims", run: claimModeChangeResetsMarks},
		{name: "claim mode change ends holds", run: claimModeChangeEndsHolds},
		{name: "claim mode change fences old relays", run: claimModeChangeFences},
		{name: "claim mode change ends claims", run: claimModeChangeEndsClaims},
		{name: "claim mode change during settles by token", run: claimModeChangeDuringSettles},
		{name: "purge obeys the retention", run: purgeObeysTheRetention},
		{name: "retention begins when a row finishes", run: retentionBeginsAtTheFinish},
		{name: "calls in an ended context change nothing", run: endedContextChangesNothing},
	}
}
