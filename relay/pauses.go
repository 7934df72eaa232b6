package relay

import (
	"hash/maphash"
	"math"
	"slices"
	"sync"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// control is what the engine has heard last.
type control struct {
	heard      bool // else nobody knows yet
	inForce    []storage.Control
	pauses     *pauses // nil: no topic and no key
	standsDown bool    // this relay is to leave its part to others, if others live
}

// pauses are the topics and keys that are paused. They are never changed, so that a scan may
// have them.
type pauses struct{ topics, keys map[string]bool }

// equal says whether the same is paused. Either may be nil.
func (p *pauses) equal(other *pauses) bool { return p.within(other) && other.within(p) }

// within says whether all that is paused is also paused by others.
func (p *pauses) within(others *pauses) bool {
	if p == nil {
		return true
	}
	all := func(names, others map[string]bool) bool {
		for name := range names {
			if !others[name] {
				return false
			}
		}
		return true
	}
	return others != nil && all(p.topics, others.topics) && all(p.keys, others.keys)
}

// cover says whether a row that needs a sink is paused, or follows one that is in its key.
func (p *pauses) cover(topic, key string, queue int, passed *keySet) bool {
	return p != nil && (p.topics[topic] || key != "" && (p.keys[key] || len(p.topics) > 0 && passed.has(queue, key)))
}

// keySet knows keys of a lane of which a row was passed over. It takes less than one of a hundred keys for others, which then
// wait until the pause ends. It is a list of Bloom filters, each twice as large as the one before: a million keys take
// about 4 MiB. Filters of more than mostKeyBits aren't added: beyond 2 million keys of a lane more are taken for others. The
// loop and the scans of the reader use it concurrently.
type keySet struct {
	seed    maphash.Seed
	mu      sync.Mutex
	filters [][]uint64
	room    int // the last filter has bits for this many more keys
}

const (
	leastKeyBits = 1 << 15 // of the first filter
	mostKeyBits  = 1 << 24 // of the last one
	bitsPerKey   = 16
	hashesPerKey = 6
)

func newKeySet() *keySet { return &keySet{seed: maphash.MakeSeed()} }

// places are the bits of a key; a filter takes their remainders.
func (s *keySet) places(queue int, key string) (places [hashesPerKey]uint64) {
	hash := maphash.String(s.seed, key) + uint64(queue)*0x9e3779b97f4a7c15
	for i := range places {
		places[i] = hash&math.MaxUint32 + uint64(i)*(hash>>32|1)
	}
	return places
}

func (s *keySet) add(queue int, key string) {
	places := s.places(queue, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasPlaces(&places) {
		return
	}
	if bits := leastKeyBits << len(s.filters); s.room <= 0 && bits <= mostKeyBits {
		s.filters, s.room = append(s.filters, make([]uint64, bits/64)), bits/bitsPerKey
	}
	s.room--
	last := s.filters[len(s.filters)-1]
	for _, place := range places {
		place %= 64 * uint64(len(last))
		last[place/64] |= 1 << (place % 64)
	}
}

func (s *keySet) has(queue int, key string) bool {
	if s == nil {
		return false
	}
	places := s.places(queue, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasPlaces(&places)
}

// hasPlaces says whether a filter has all of the bits.
func (s *keySet) hasPlaces(places *[hashesPerKey]uint64) bool {
	return slices.ContainsFunc(s.filters, func(filter []uint64) bool {
		for _, place := range places {
			if place %= 64 * uint64(len(filter)); filter[place/64]&(1<<(place%64)) == 0 {
				return false
			}
		}
		return true
	})
}
