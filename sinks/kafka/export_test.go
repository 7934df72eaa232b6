package kafka

// StickTo makes the next batch without keys go to this partition, if it has a
// leader.
func StickTo(s *Sink, partition int) { s.cluster.turns.Store(uint32(partition) - 1) }
