package kafka

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// SchemaOptions configure the frame that Confluent's deserializers expect before a record's value: a zero byte, the id
// of the value's schema, and for Protobuf the position of the message in its .proto file. Set either ID or Registry. With
// the zero value, the sink writes values without a frame. The sink encodes nothing: the payload must already be JSON, Avro
// or Protobuf. A NULL payload gets no frame.
type SchemaOptions struct {
	// ID is the id of the schema. It is a template, like Options.Topic: for example 42, or {header:schema-id}.
	ID string

	// Registry is the URL of a schema registry with Confluent's REST API. The sink uses the id of the subject's latest
	// version, which must be a JSON or Protobuf schema. It looks up the id again after 5 minutes, and keeps the known id
	// while the registry doesn't answer.
	Registry string
	Username string
	Password settings.Secret

	// Subject is the registry's name for the schema. It is a template. Defaults to the record's topic followed by
	// "-value".
	Subject string

	// Message is the position of a Protobuf message in its .proto file, counted from 0. For a nested message it is a
	// list: 1,0 is the first message that is nested in the second message. It is a template. With Registry it
	// defaults to 0.
	Message string
}

func (o SchemaOptions) on() bool { return o.ID != "" || o.Registry != "" }

func (o SchemaOptions) check(events cloudevents.Mode) error {
	problems := []error{checkSchemaID(o.ID), checkRegistry(o.Registry), checkSubject(o.Subject), checkPosition(o.Message)}
	switch {
	case o.ID != "" && o.Registry != "":
		problems = append(problems, errors.New("the id of the schema and the schema registry are mutually exclusive: set one of them"))
	case !o.on() && o != SchemaOptions{}:
		problems = append(problems, errors.New("the other settings of the schema need its id or a schema registry"))
	case o.Registry == "" && (o.Subject != "" || o.Username != "" || o.Password != ""):
		problems = append(problems, errors.New("the schema's subject and login need a schema registry"))
	case (o.Username == "") != (o.Password == ""):
		problems = append(problems, errors.New("the login of the schema registry needs a user name and a password"))
	case o.on() && events == cloudevents.Structured:
		problems = append(problems, errors.New("structured CloudEvents have no schema: use cloudevents binary"))
	}
	return errors.Join(problems...)
}

// schemas adds the schema's frame to the values of records. It may be used concurrently.
type schemas struct {
	id, subject, message settings.Template
	registry             *registry // nil if the template id is set
}

// newSchemas returns nil if values get no frame.
func newSchemas(o Options) *schemas {
	if !o.Schema.on() {
		return nil
	}
	s := &schemas{}
	for to, text := range map[*settings.Template]string{&s.id: o.Schema.ID, &s.subject: o.Schema.Subject, &s.message: o.Schema.Message} {
		*to, _ = settings.ParseTemplate(text) // Options.check has parsed it already
	}
	if o.Schema.Registry != "" {
		s.registry = newRegistry(o)
	}
	return s
}

// frame returns the frame followed by the value. The argument topic is the record's topic. The error is a schemaError if the
// schema's id can't be looked up; with any other error, the message is the cause.
func (s *schemas) frame(ctx context.Context, m *sinks.Message, topic string, value []byte) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	known, err := s.schemaOf(ctx, m, topic)
	if err != nil {
		return nil, err
	}
	if known.format == formatJSON && !json.Valid(value) {
		return nil, errors.New("the payload is not JSON, but its schema is a JSON Schema")
	}
	positions, err := s.positions(m, known.format)
	if err != nil {
		return nil, fmt.Errorf("the position of the Protobuf message %w", err)
	}
	const magic = 0
	framed := make([]byte, 0, 1+4+binary.MaxVarintLen32*(len(positions)+1)+len(value))
	framed = binary.BigEndian.AppendUint32(append(framed, magic), known.id)
	return append(appendPositions(framed, positions), value...), nil
}

// appendPositions appends the position of a Protobuf message as a list: its length, then its elements. As Confluent specifies,
// a list whose only element is 0 is written as an empty list.
func appendPositions(to []byte, positions []int) []byte {
	switch {
	case len(positions) == 0: // not Protobuf
		return to
	case len(positions) == 1 && positions[0] == 0:
		return binary.AppendVarint(to, 0)
	}
	to = binary.AppendVarint(to, int64(len(positions)))
	for _, position := range positions {
		to = binary.AppendVarint(to, int64(position))
	}
	return to
}

// schemaOf returns the schema of a message. Without a registry, the format is unknown.
func (s *schemas) schemaOf(ctx context.Context, m *sinks.Message, topic string) (schema, error) {
	if s.registry == nil {
		text, err := s.id.Fill(&m.Message, nil)
		if err != nil {
			return schema{}, fmt.Errorf("the id of the schema %w", err)
		}
		id, err := parseSchemaID(text)
		return schema{id: id}, err
	}
	subject, err := s.subjectOf(m, topic)
	if err != nil {
		return schema{}, fmt.Errorf("the subject of the schema %w", err)
	}
	return s.registry.get(ctx, subject)
}

func (s *schemas) subjectOf(m *sinks.Message, topic string) (string, error) {
	if text := s.subject.Texts(); s.subject.Places() == 0 {
		return cmp.Or(text[0], topic+"-value"), nil
	}
	return s.subject.Fill(&m.Message, settings.NotEmpty)
}

// positions returns the position of a Protobuf message in its .proto file, or nil for any other value.
func (s *schemas) positions(m *sinks.Message, format string) ([]int, error) {
	set := s.message.Places() > 0 || s.message.Texts()[0] != ""
	switch {
	case s.registry != nil && format != formatProtobuf:
		return nil, nil
	case !set && s.registry != nil:
		return []int{0}, nil
	case !set:
		return nil, nil
	}
	text, err := s.message.Fill(&m.Message, nil)
	if err != nil {
		return nil, err
	}
	return parsePositions(text)
}

func parseSchemaID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, errors.New("the id of the schema is not a number")
	}
	return uint32(id), nil
}

func parsePositions(text string) (positions []int, err error) {
	for _, part := range strings.Split(text, ",") {
		position, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil, errors.New("must be a number or several numbers, such as 0 or 1,0")
		}
		positions = append(positions, int(position))
	}
	return positions, nil
}

// The following functions check settings. Their errors complete the sentence "the setting …".

func checkSchemaID(text string) error {
	t, err := settings.ParseTemplate(text)
	if err == nil && t.Places() == 0 && text != "" {
		if _, wrong := parseSchemaID(text); wrong != nil {
			err = errors.New("must be a number, or a template such as {header:schema-id}")
		}
	}
	return err
}

func checkSubject(text string) error {
	_, err := settings.ParseTemplate(text)
	return err
}

func checkPosition(text string) error {
	t, err := settings.ParseTemplate(text)
	if err == nil && t.Places() == 0 && text != "" {
		_, err = parsePositions(text)
	}
	return err
}

func checkRegistry(text string) error {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || u.String() != text: // characters that must be escaped, such as spaces
		return errors.New("must be a URL such as https://registry:8081")
	case u.User != nil:
		return errors.New("must not contain a login: set schema_registry_username and schema_registry_password")
	}
	return nil
}

var schemaFields = []settings.Field{
	{Name: "schema_id", Type: settings.TypeString, Check: settings.Check(checkSchemaID), Help: "The id of the payload's schema, for consumers that use Confluent's schema registry. A template: a number such as 42, or {header:schema-id}."},
	{Name: "schema_registry", Type: settings.TypeString, Check: settings.Check(checkRegistry), Help: "The URL of the schema registry, instead of `schema_id`, for JSON Schema and Protobuf. The settings for certificate files apply to the registry, too."},
	{Name: "schema_registry_username", Type: settings.TypeString, Help: "The user name, or API key, for the schema registry."},
	{Name: "schema_registry_password", Type: settings.TypeSecret, Help: "The password, or API secret, for the schema registry."},
	{Name: "schema_subject", Type: settings.TypeString, Check: settings.Check(checkSubject), Help: "The subject in the schema registry. A template. By default the record's topic followed by `-value`."},
	{Name: "schema_message", Type: settings.TypeString, Check: settings.Check(checkPosition), Help: "The position of the Protobuf message in its .proto file, counted from 0; for a nested message the positions from the outermost message, such as 1,0. A template. By default 0 for a Protobuf schema of the registry. With `schema_id`, set it only for Protobuf."},
}

func schemaFromSettings(s settings.Values) SchemaOptions {
	return SchemaOptions{
		ID:       s.Text("schema_id"),
		Registry: s.Text("schema_registry"),
		Username: s.Text("schema_registry_username"),
		Password: s.Secret("schema_registry_password"),
		Subject:  s.Text("schema_subject"),
		Message:  s.Text("schema_message"),
	}
}
