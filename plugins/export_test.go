package plugins

import (
	"encoding/base64"
	"time"
)

// PID is the number of the plug-in's process, or 0 where none runs.
func (s *Sink) PID() int {
	if p := s.current(); p != nil && p.alive() {
		return p.runner.number()
	}
	return 0
}

// Gone is closed when the present process has ended.
func (s *Sink) Gone() <-chan struct{} { return s.current().gone() }

// Home is the private directory of the present process.
func (s *Sink) Home() string { return s.current().home.path }

// Suspects is how many messages are sent alone.
func (s *Sink) Suspects() int { return int(s.suspects.count.Load()) }

// Certificate is one as a plug-in offers it.
func Certificate() string {
	self, err := newIdentity()
	if err != nil {
		return err.Error()
	}
	return base64.RawStdEncoding.EncodeToString(self.config.Certificates[0].Certificate[0])
}

// GoPluginLimit is how long go-plugin lets a plug-in take to start.
func GoPluginLimit(o Options) time.Duration {
	return (&process{options: o, home: &home{}}).clientConfig("", &identity{}).StartTimeout
}

// SocketPathLimit is how many bytes the path of a socket may have.
const SocketPathLimit = socketPathLimit
