// Natssink is a plug-in that publishes each message to NATS JetStream, which
// recognises a duplicate by the message's id:
//
//	go build -C plugins/examples/natssink -o natssink .
//	rowrelay plugin describe ./natssink
//	rowrelay run --database URL --sink 'plugin:./natssink?config.url=nats://localhost:4222'
//
// The subject is the message's topic; a stream has to take it. Within the
// stream's duplicate window a message that comes twice is stored once.
package main

import (
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func main() { plugins.ServeKind(kind()) }

func kind() sinks.Kind {
	return sinks.Kind{
		Name:    "nats",
		Summary: "Publishes each message to NATS JetStream.",
		Fields: []settings.Field{
			{Name: "url", Type: settings.TypeString, Default: "nats://localhost:4222", Help: "The server's address, or several with commas between them."},
			{Name: "subject_prefix", Type: settings.TypeString, Help: "What comes before the topic in the subject."},
			{Name: "credentials_file", Type: settings.TypeString, Help: "A file with the credentials to log in with."},
			{Name: "token", Type: settings.TypeSecret, Help: "A token to log in with."},
		},
		New: func(s settings.Values) (sinks.Sink, error) {
			return &sink{
				url: s.Text("url"), prefix: s.Text("subject_prefix"),
				credentials: s.Text("credentials_file"), token: s.Secret("token").Reveal(),
			}, nil
		},
	}
}
