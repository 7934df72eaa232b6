package plugins

import "time"

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// millis are rounded up, so that what is short doesn't become no limit.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// fromMillis takes no more than a day from the other side.
func fromMillis(ms int64) time.Duration {
	const day = 24 * time.Hour
	if ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, day.Milliseconds())) * time.Millisecond
}
