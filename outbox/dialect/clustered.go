package dialect

// Clustered is implemented by a dialect in whose tables the rows of one lane lie
// together, in the order of ids, and whose Read goes from lane to lane in one
// walk. It takes no share of each position: the store gives all positions the
// same end, and has their lanes ascend.
type Clustered interface{ ByLane() }
