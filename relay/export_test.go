package relay

// PassAtMost bounds the rows that pages bring for a sink that is behind before they leave it out.
func (r *Relay) PassAtMost(n int) { r.mostPassed = n }

// KeepBlockedKeys bounds the keys in memory that wait for another attempt.
func (r *Relay) KeepBlockedKeys(n int) { r.mostBlocked = n }
