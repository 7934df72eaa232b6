package plugins

import (
	"encoding/base64"
	"time"
)

// PID returns the plug-in's process id, or 0 if the plug-in doesn't run.
func (s *Sink) PID() int {
	if p := s.current(); p != nil && p.alive() {
		return p.runner.number()
	}
	return 0
}

// Gone returns a channel that is closed when the current process has exited.
func (s *Sink) Gone() <-chan struct{} { return s.current().gone() }

// Home returns the private directory of the current process.
func (s *Sink) Home() string { return s.current().home.path }

// Suspects returns how many messages are sent alone.
func (s *Sink) Suspects() int { return int(s.suspects.count.Load()) }

// Certificate returns a certificate in the form in which a plug-in sends it.
func Certificate() string {
	self, err := newIdentity()
	if err != nil {
		return err.Error()
	}
	return base64.RawStdEncoding.EncodeToString(self.config.Certificates[0].Certificate[0])
}

// GoPluginLimit returns how long go-plugin lets a plug-in take to start.
func GoPluginLimit(o Options) time.Duration {
	return (&process{options: o, home: &home{}}).clientConfig("", &identity{}).StartTimeout
}

// SocketPathLimit is the longest path of a socket in bytes.
const SocketPathLimit = socketPathLimit
