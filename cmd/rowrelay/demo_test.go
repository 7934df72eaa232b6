package main

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func TestTheDemoKeepsItsPromise(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	got := mustRun(t, "demo", "--orders", "120", "--lasts", "600ms")
	for _, want := range []string{"committed", "The shop committed 90 orders and rolled 30 back", "order        kept for each of 12 customers", "The promise holds.\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%q isn't in\n%s", want, got.stdout)
		}
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTheDemoCanKeepItsDatabase(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	got := mustRun(t, "demo", "--orders", "12", "--lasts", "0s", "--keep")
	_, url, found := strings.Cut(strings.TrimSpace(got.stdout), "The database is ")
	if !found {
		t.Fatalf("got %s", got.stdout)
	}
	if status := mustRun(t, "status", "--database", url); !strings.Contains(status.stdout, "done            9\n") {
		t.Errorf("got %s", status.stdout)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	book := map[string]int{"a": 2, "b": 1}
	at := func(id, customer string, number int) arrival { return arrival{id, order{customer, number, 7}} }
	for name, test := range map[string]struct {
		arrivals   []arrival
		duplicates int
		broken     string
	}{
		"as promised":               {[]arrival{at("1", "a", 1), at("2", "b", 1), at("3", "a", 2)}, 0, ""},
		"with a duplicate":          {[]arrival{at("1", "a", 1), at("1", "a", 1), at("2", "b", 1), at("3", "a", 2)}, 1, ""},
		"with a late duplicate":     {[]arrival{at("1", "a", 1), at("2", "b", 1), at("3", "a", 2), at("1", "a", 1)}, 1, ""},
		"one lost":                  {[]arrival{at("1", "a", 1), at("2", "b", 1)}, 0, "a's last order to arrive is 1 of 2"},
		"a customer's all lost":     {[]arrival{at("1", "a", 1), at("3", "a", 2)}, 0, "b's last order to arrive is 0 of 1"},
		"one skipped":               {[]arrival{at("2", "b", 1), at("3", "a", 2)}, 0, "order 2 of a arrived after order 0"},
		"out of order":              {[]arrival{at("3", "a", 2), at("1", "a", 1), at("2", "b", 1)}, 0, "order 1 of a arrived after order 2"},
		"one that was rolled back":  {[]arrival{at("1", "a", 1), at("2", "b", 1), at("3", "a", 2), at("4", "a", -3)}, 0, "order -3 of a arrived, which was never committed"},
		"one too many":              {[]arrival{at("1", "a", 1), at("2", "b", 1), at("3", "a", 2), at("4", "a", 3)}, 0, "3 orders were committed, and 4 arrived"},
		"a stranger's":              {[]arrival{at("1", "a", 1), at("2", "b", 1), at("3", "a", 2), at("4", "c", 1)}, 0, "order 1 of c arrived, which was never committed"},
		"a duplicate by another id": {[]arrival{at("1", "a", 1), at("9", "a", 1), at("2", "b", 1), at("3", "a", 2)}, 0, "order 1 of a arrived after order 1"},
		"one id for two orders":     {[]arrival{at("1", "a", 1), at("1", "b", 1), at("3", "a", 2)}, 1, "message 1 arrived twice with different orders"},
		"no id":                     {[]arrival{at("", "a", 1), at("2", "b", 1), at("3", "a", 2)}, 0, "an order of a arrived without a message id"},
		"nothing":                   {nil, 0, "3 orders were committed, and 0 arrived"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(book, test.arrivals)
			told := strings.Join(v.broken, "\n")
			if v.duplicates != test.duplicates || (told == "") != (test.broken == "") || !strings.Contains(told, test.broken) {
				t.Errorf("%d duplicates, broken %q; want %d and %q", v.duplicates, told, test.duplicates, test.broken)
			}
		})
	}
}

func TestTheEndpointFailsInEachWay(t *testing.T) {
	t.Parallel()
	now := time.Now()
	e := &endpoint{downFrom: now.Add(time.Hour), downTo: now.Add(2 * time.Hour)}
	codes := map[int]int{}
	for range 200 {
		codes[e.take(arrival{}, now)]++
	}
	arrived, failures := e.counts()
	if codes[http.StatusInternalServerError] != failures || failures != 11+3 || arrived != 200-11 {
		t.Errorf("%v, %d arrived, %d failures", codes, arrived, failures)
	}
	if code := e.take(arrival{}, now.Add(90*time.Minute)); code != http.StatusServiceUnavailable {
		t.Errorf("got %d while it is down", code)
	}
}

// TestABrokenPromiseIsAFailure makes the endpoint lose an order that it has accepted.
func TestABrokenPromiseIsAFailure(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	kinds, err := newKinds(&strings.Builder{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	d := &demo{program: program{stdout: &out, kinds: kinds}, orders: 12, patience: patience}
	if err := d.setUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = d.play(t.Context())
	d.endpoint.arrivals = d.endpoint.arrivals[1:]
	if err := d.conclude(t.Context()); err == nil || !strings.Contains(out.String(), "broken: ") || strings.Contains(out.String(), "holds") {
		t.Errorf("got %v and\n%s", err, &out)
	}
	if tearErr := d.tearDown(); err != nil || tearErr != nil {
		t.Error(err, tearErr)
	}
}
