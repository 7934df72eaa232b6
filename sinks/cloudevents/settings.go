package cloudevents

import "github.com/rowrelay/rowrelay/sinks"

// Fields are the settings with which a sink's kind offers CloudEvents.
func Fields() []sinks.Field {
	return []sinks.Field{
		{Name: "cloudevents", Type: sinks.TypeString, Default: string(Off), Choices: []string{string(Off), string(Binary), string(Structured)},
			Help: "Whether messages go out as CloudEvents 1.0, and in which mode. Headers named ce-NAME set attributes."},
		{Name: "cloudevents_source", Type: sinks.TypeString, Help: "The source of events without a ce-source header, a URI reference. Needed for CloudEvents."},
		{Name: "cloudevents_type", Type: sinks.TypeString, Help: "The type of events without a ce-type header. By default it is the message's topic."},
	}
}

// FromSettings returns the options that the settings ask for.
func FromSettings(s sinks.Settings) Options {
	return Options{Mode: Mode(s.Text("cloudevents")), Source: s.Text("cloudevents_source"), Type: s.Text("cloudevents_type")}
}
