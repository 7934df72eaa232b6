package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// State holds the page's jobs, and the logins that a log-out has ended. A Handler that gets the State of an earlier Handler
// shows that Handler's jobs, which continue to run. The daemon passes the State to a new Handler when it loads a new
// configuration.
type State struct {
	jobs jobs
	stop context.CancelFunc // stops the jobs

	mu      sync.Mutex
	revoked map[[sha256.Size]byte]time.Time // the hashes of revoked cookies, and when each of them expires
}

// mostRevoked bounds the number of revoked logins in memory.
const mostRevoked = 10_000

var notOfHost = regexp.MustCompile(`[^A-Za-z0-9-]+`)

// NewState returns a State without jobs.
func NewState() *State {
	s := &State{revoked: map[[sha256.Size]byte]time.Time{}}
	s.jobs.ctx, s.stop = context.WithCancel(context.Background())
	host, _ := os.Hostname()
	s.jobs.process = notOfHost.ReplaceAllString(host, "-") + "-" + strings.ToLower(rand.Text()[:6])
	return s
}

// Close stops the jobs, and waits for them.
func (s *State) Close() {
	s.jobs.mu.Lock() // a job that starts concurrently is either stopped, too, or refused
	s.stop()
	s.jobs.mu.Unlock()
	s.jobs.working.Wait()
}

// StopJobs stops the jobs of a source, and waits for them.
func (s *State) StopJobs(source string) {
	for _, each := range s.jobs.shown("") {
		if each.Source == source {
			each.stop()
			<-each.ended
		}
	}
}

// revoke ends a login before its cookie expires.
func (s *State) revoke(cookie string, ends time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for known, until := range s.revoked {
		if until.Before(now) || len(s.revoked) >= mostRevoked {
			delete(s.revoked, known)
		}
	}
	s.revoked[sha256.Sum256([]byte(cookie))] = ends
}

func (s *State) isRevoked(cookie string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, revoked := s.revoked[sha256.Sum256([]byte(cookie))]
	return revoked
}
