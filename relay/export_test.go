package relay

// PassAtMost sets mostPassed, the number of rows that shared pages may return without effect for a sink that is behind, before
// they exclude its topics.
func (r *Relay) PassAtMost(n int) { r.mostPassed = n }

// KeepBlockedKeys sets the maximum number of blocked keys in memory.
func (r *Relay) KeepBlockedKeys(n int) { r.mostBlocked = n }
