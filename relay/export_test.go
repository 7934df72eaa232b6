package relay

// KeepHeldKeys bounds the keys in memory that wait for another attempt.
func (r *Relay) KeepHeldKeys(n int) { r.held = n }
