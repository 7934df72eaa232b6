package dialect

// Walking is implemented by a dialect whose Read and Candidates take one walk
// along an index for all positions that have no key, in the place of one walk for
// each of them. It takes no share of each position.
type Walking interface{ Walk() Walk }

// Walk says along which index.
type Walk int

const (
	// WalkByLane is along (lane, id), where the rows of one lane lie together. The
	// store gives all positions the same end, and has their lanes ascend.
	WalkByLane Walk = iota + 1

	// WalkByID is along the ids: the rows come in the order of ids, of whatever
	// lane they are.
	WalkByID
)
