package main

import (
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func kind() sinks.Kind {
	return sinks.Kind{
		Name:    "pubsub",
		Summary: "Publishes each message to a topic of Google Cloud Pub/Sub.",
		Fields: []settings.Field{
			{Name: "project", Type: settings.TypeString, Required: true, Check: settings.Check(checkProject), Help: "The project that has the topics."},
			{Name: "topic", Type: settings.TypeString, Default: "{topic}", Check: settings.Parses(parseTopic), Help: "The id of the topic. It may contain {topic}, {key}, {id} and {header:NAME}, which each message fills."},
			{Name: "ordering", Type: settings.TypeBool, Default: "true", Help: "Publish the message's key as the ordering key. With false, subscriptions keep no order, and a request can contain messages of many keys."},
			{Name: "endpoint", Type: settings.TypeString, Check: settings.Check(checkEndpoint), Help: "The endpoint, such as europe-west1-pubsub.googleapis.com:443. By default the global endpoint."},
			{Name: "concurrency", Type: settings.TypeInt, Default: "64", Min: "1", Max: "1000", Help: "The maximum number of concurrent requests."},
		},
		New: newSink,
	}
}

func newSink(s settings.Values) (sinks.Sink, error) {
	topic, err := parseTopic(s.Text("topic"))
	if err != nil {
		return nil, err
	}
	return &sink{
		project: s.Text("project"), topic: topic, ordering: s.Bool("ordering"), endpoint: s.Text("endpoint"), fan: sinks.NewFan(s.Int("concurrency")),
	}, nil
}

// The following functions check settings. Their errors complete the sentence "the setting …".

func checkProject(text string) error {
	if strings.ContainsAny(text, "/ ") {
		return errors.New("must be a project's id, such as shop-123456")
	}
	return nil
}

func checkEndpoint(text string) error {
	host, port, err := net.SplitHostPort(text)
	if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || host == "" || strings.ContainsAny(host, "/@") {
		return errors.New("must be a host and a port, such as europe-west1-pubsub.googleapis.com:443")
	}
	return nil
}

var topicCharacters = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._~%+-]{2,254}$`)

// parseTopic parses the template of the topic's id.
func parseTopic(text string) (settings.Template, error) {
	t, err := settings.ParseTemplate(text)
	if err == nil && t.Places() == 0 {
		err = checkTopic(text)
	}
	return t, err
}

func checkTopic(id string) error {
	if !topicCharacters.MatchString(id) || strings.HasPrefix(strings.ToLower(id), "goog") {
		return errors.New("is not a topic's id: it must have 3 to 255 letters, digits and characters of -_.~+%, begin with a letter, and not begin with goog")
	}
	return nil
}
