package relay

import (
	"context"
	"time"
)

// Pick says which rows a claim by rows takes first.
type Pick string

// The orders of claiming by rows.
const (
	Oldest   Pick = "oldest"
	Newest   Pick = "newest"
	Priority Pick = "priority" // the highest; the oldest of these
)

// ClaimRequest asks for rows.
type ClaimRequest struct {
	Relay string
	Token string // unique to this run of the relay, or to this claim
	TTL   time.Duration
	Limit int

	// MaxBytes bounds the payload of what is claimed, if it is positive: no row is
	// claimed after the one that reaches it. So one row is claimed at least.
	MaxBytes int

	Pick   Pick
	Topics []string // only these; none means all
	Except []string // none of these

	// Unprompted says that it is only time for another look. A store that can look
	// for free rows for less than it claims does so first.
	Unprompted bool
}

// RowStore is the part of a Store that claims by rows. Its methods, and a
// settlement by token, change nothing of a table that has been changed to lanes
// meanwhile: a relay may have been stopped while others did so. They return
// [ErrOtherClaim] then, where there would have been something to do; a settlement
// counts as fenced.
type RowStore interface {
	// Claim stamps up to Limit free rows with the token and returns them. Rows
	// that another has locked are passed over.
	Claim(ctx context.Context, request ClaimRequest) ([]Row, error)

	// Extend lets the claim of these rows end ttl from now, and returns the ids
	// of those that were still claimed with the token.
	Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error)

	// Reclaim frees up to limit rows whose claim has ended, and counts a crash
	// for each; and it brings back up to limit held rows that are due. It says
	// how many rows it made free.
	Reclaim(ctx context.Context, limit int) (int, error)
}
