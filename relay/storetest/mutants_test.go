package storetest

import (
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// mutant is a store with one mistake, and the checks that find it.
type mutant struct {
	mistake string
	found   []string // the names of the checks that must fail
	bend    func(s Store, f *facts) Store
}

func mutants() []mutant {
	return slices.Concat(laneMutants(), fenceMutants(), settleMutants(), messageMutants(), readMutants(), lateMutants(),
		heldMutants(), remainingMutants(), claimMutants(), reclaimMutants(), operatorMutants(), holdMutants(), bulkMutants(), replayMutants(), controlMutants(), filterMutants(), statusMutants(), relayMutants(), burialMutants(), identityMutants(), severalMutants(), deadLetterMutants())
}

// Each mutant fails each check that is listed in its field found.
func TestMutantsAreFound(t *testing.T) {
	if underRace {
		t.Skip("the mutants run without the race detector")
	}
	t.Parallel()
	for _, m := range mutants() {
		for _, name := range m.found {
			t.Run(m.mistake+"/"+name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t testing.TB) { m.wantFound(t, checkNamed(t, name)) })
			})
		}
	}
}

func (m mutant) wantFound(t testing.TB, check check) {
	failures := record(t, func(t testing.TB) { check.run(t, m.table()) })
	if len(failures) == 0 {
		t.Error("the check passes on a store with this mistake")
	}
	for _, failure := range failures[:min(3, len(failures))] {
		t.Logf("found: %s", failure)
	}
}

// table returns a table whose stores have the mistake.
func (m mutant) table() Table {
	db := memstore.New()
	f := newFacts(memory{DB: db})
	bent := func(s *memstore.Store) Store {
		bent := m.bend(f.observed(s), f)
		if picks, bendsPick := bent.(onPick); bendsPick {
			return journaling{picks.Store, badPick{s, picks.pick}}
		}
		return journaling{bent, s}
	}
	return mutantTable{memory{db, bent}, f}
}

// journaling is a store whose journal methods are another store's.
type journaling struct {
	Store
	storage.Journaler
}

func checkNamed(t testing.TB, name string) check {
	all := checks()
	i := slices.IndexFunc(all, func(c check) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no check named %q", name)
	}
	return all[i]
}

// For each check at least one mutant exists that fails it. TestMemstore runs the same checks on a
// correct store, so no check always fails.
func TestEveryCheckCanFail(t *testing.T) {
	t.Parallel()
	find := map[string]bool{}
	for _, m := range mutants() {
		for _, name := range m.found {
			find[name] = true
		}
	}
	for _, check := range checks() {
		if !find[check.name] {
			t.Errorf("no mutant shows that %q can fail", check.name)
		}
	}
}

// A recorder records failures, ends the check where a test would end, and fails no other test.
func TestRecorderRecordsFailures(t *testing.T) {
	t.Parallel()
	got := record(t, func(t testing.TB) {
		t.Errorf("one")
		t.Fatalf("two")
		t.Errorf("three")
	})
	if want := []string{"one", "two"}; !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
	if got := record(t, func(testing.TB) {}); len(got) != 0 {
		t.Errorf("recorded %q of a check that passes", got)
	}
}
