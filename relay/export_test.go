package relay

// LookBeyond sets how many ids are worth a scan that leaves out what waits for sinks
// that lag.
func (r *Relay) LookBeyond(ids int64) { r.far = ids }

// KeepBlockedKeys bounds the keys in memory that wait for another attempt.
func (r *Relay) KeepBlockedKeys(n int) { r.mostBlocked = n }
