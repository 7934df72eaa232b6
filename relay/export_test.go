package relay

// PassAtMost sets mostPassed: how many rows pages may return for a sink that is behind before they exclude its topics.
func (r *Relay) PassAtMost(n int) { r.mostPassed = n }

// KeepBlockedKeys sets the most blocked keys in memory.
func (r *Relay) KeepBlockedKeys(n int) { r.mostBlocked = n }
