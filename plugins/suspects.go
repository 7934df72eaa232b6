package plugins

import (
	"sync"
	"sync/atomic"
)

// suspects are the messages that a plug-in had when it died: one of them may
// have killed it. Until the plug-in has answered for it, each goes alone, so that
// only the culprit is charged again.
type suspects struct {
	count atomic.Int64 // without a lock, for the usual case of none
	mu    sync.Mutex
	ids   map[string]struct{}
}

// maxSuspects bounds the memory of suspects.
const maxSuspects = 10_000

func (s *suspects) add(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]struct{}{}
	}
	for _, id := range ids {
		if len(s.ids) < maxSuspects {
			s.ids[id] = struct{}{}
		}
	}
	s.count.Store(int64(len(s.ids)))
}

func (s *suspects) any() bool { return s.count.Load() > 0 }

func (s *suspects) has(id string) bool {
	if !s.any() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}

func (s *suspects) clear(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.ids, id)
	}
	s.count.Store(int64(len(s.ids)))
}
