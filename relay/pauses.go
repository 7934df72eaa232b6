package relay

import (
	"hash/maphash"
	"math"
	"slices"
	"sync"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// control holds the operators' controls (pauses and limits) that the engine has read last.
type control struct {
	heard      bool // false until the first read
	inForce    []storage.Control
	pauses     *pauses // nil if no topic and no key is paused
	standsDown bool    // this relay leaves its lanes or rows to other relays, if any are active
}

// pauses contains the paused topics and keys. A value of this type never changes, so scans may use it concurrently.
type pauses struct{ topics, keys map[string]bool }

// equal reports whether p and `other` contain the same topics and keys. Either may be nil.
func (p *pauses) equal(other *pauses) bool { return p.within(other) && other.within(p) }

// within reports whether everything that p pauses is also paused by `others`.
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

// cover reports whether a row is paused in this queue. A row is paused if its topic or its key is paused, or if its key is in the
// set `passed`: an earlier row of the key is paused and was left out of memory.
func (p *pauses) cover(topic, key string, queue int, passed *keySet) bool {
	return p != nil && (p.topics[topic] || key != "" && (p.keys[key] || len(p.topics) > 0 && passed.has(queue, key)))
}

// keySet is the set of a lane's keys with rows that were left out of memory because of a pause. It is a list of
// Bloom filters, each twice as large as the one before it; a million keys take about 2 MiB. Bloom filters have false positives:
// has() also returns true for fewer than one in a hundred of the other keys, and the rows of these keys wait until the pause ends.
// Once a lane's set has 2 million keys, it gets no more filters (mostKeyBits), so false positives become more frequent. The loop and
// the reader's scans may use a keySet concurrently.
type keySet struct {
	seed    maphash.Seed
	mu      sync.Mutex
	filters [][]uint64
	room    int // the last filter has room for this many more keys
}

const (
	leastKeyBits = 1 << 15 // the size of the first filter
	mostKeyBits  = 1 << 24 // the size of the largest filter
	bitsPerKey   = 16
	hashesPerKey = 6
)

func newKeySet() *keySet { return &keySet{seed: maphash.MakeSeed()} }

// places returns the hashes of a key. Each hash, modulo a filter's size in bits, is the index of one of the key's bits in the filter.
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

// hasPlaces reports whether at least one filter has the bits for all of these hashes set.
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
