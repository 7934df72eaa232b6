package httpsink

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	tests := []struct {
		text, date string
		want       time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"1", "", time.Second},
		{"300", "", 5 * time.Minute},
		{"301", "", 5 * time.Minute},
		{"1.5", "", 1500 * time.Millisecond},
		{"999999999999999999999999", "", 5 * time.Minute},
		{"Inf", "", 5 * time.Minute},
		{"NaN", "", 0},
		{"-1", "", 0},
		{"soon", "", 0},
		{at(time.Minute), "", time.Minute},
		{at(time.Hour), "", 5 * time.Minute},
		{at(-time.Minute), "", 0},
		{at(time.Minute), at(30 * time.Second), 30 * time.Second}, // the server's clock is ahead
		{at(-time.Hour), at(-time.Hour - time.Minute), time.Minute},
		{at(time.Minute), "nonsense", time.Minute},
	}
	for _, test := range tests {
		header := http.Header{"Retry-After": {test.text}, "Date": {test.date}}
		if got := retryAfter(header, now); got != test.want {
			t.Errorf("Retry-After %q, Date %q: %v, want %v", test.text, test.date, got, test.want)
		}
	}
}
