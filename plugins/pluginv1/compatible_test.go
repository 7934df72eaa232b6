package pluginv1_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
)

// record is set once for each release. It makes TestRecord write the messages that
// plug-ins and relays of that release exchange to files. These files are never
// changed.
var record = flag.String("record", "", "record the protocol under this version's name")

// samples use every field. Additions to the protocol get new samples.
var samples = map[string]proto.Message{
	"send_request": &pluginv1.SendRequest{SendId: 7, TimeoutMs: 1500, Messages: []*pluginv1.Message{
		{
			Id: "0195c0de", Topic: "orders.paid", Key: []byte("order-42"), Payload: []byte("{}"), Sequence: 9, Attempt: 2,
			Headers:     []*pluginv1.Header{{Name: "x-trace", Value: []byte("\xff")}},
			CreatedAtUs: 1772366400000001, AvailableAtUs: 1772366400000002, Priority: -3,
		},
		{Id: "null payload", Topic: "t"},
		{Id: "empty payload", Topic: "t", Payload: []byte{}},
	}},
	"send_request_that_expires": &pluginv1.SendRequest{Messages: []*pluginv1.Message{{Id: "0195c0de", Topic: "t", ExpiresAtUs: 1772366400000003}}},
	"send_response": &pluginv1.SendResponse{Outcomes: []*pluginv1.Outcome{
		{Result: pluginv1.Result_DELIVERED, Receipt: "stream 7"},
		{Result: pluginv1.Result_UNAVAILABLE, Reason: pluginv1.Reason_THROTTLED, Detail: "slowly", RetryAfterMs: 250},
		{Result: pluginv1.Result_UNSENT, Reason: pluginv1.Reason_BLOCKED},
	}},
	"open_request":             &pluginv1.OpenRequest{Settings: map[string]string{"url": "nats://localhost"}, TimeoutMs: 10},
	"open_request_that_checks": &pluginv1.OpenRequest{Settings: map[string]string{"url": "nats://localhost"}, CheckOnly: true},
	"open_response": &pluginv1.OpenResponse{
		Order: pluginv1.Order_ORDER_PREFIX, MaxMessages: 1, MaxBytes: 2, MaxSends: 3, MaxRequestBytes: 4,
		Trouble: &pluginv1.Trouble{Reason: pluginv1.Reason_AUTH, Detail: "no"},
	},
	"describe_response": &pluginv1.DescribeResponse{Name: "n", Summary: "s", Version: "v", Fields: []*pluginv1.Field{{
		Name: "n", Type: "int", DefaultValue: "1", Required: true, Help: "h", Min: "0", Max: "9", Choices: []string{"1"},
	}}},
	"cancel_request": &pluginv1.CancelRequest{SendId: 7},
	"close_response": &pluginv1.CloseResponse{Error: "e"},
}

func TestRecord(t *testing.T) {
	if *record == "" {
		return
	}
	folder := filepath.Join("testdata", *record)
	check(t, os.Mkdir(folder, 0o755))
	write := func(name string, m proto.Message) {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(folder, name+".bin"), text, 0o644))
	}
	write("descriptor", protodesc.ToFileDescriptorProto(pluginv1.File_rowrelay_sink_v1_proto))
	for name, m := range samples {
		write(name, m)
	}
}

// Messages of an older release are decoded with their old meaning.
func TestReadsMessagesOfOlderReleases(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		for name, text := range recorded(t, release) {
			want := samples[name]
			if want == nil {
				t.Fatalf("the sample %s is missing", name)
			}
			got := want.ProtoReflect().New().Interface()
			check(t, proto.Unmarshal(text, got))
			if !proto.Equal(got, want) {
				t.Errorf("%s of %s is decoded as\n%s", name, release, prototext.Format(got))
			}
		}
	}
}

// Nothing in an older release's protocol was removed or changed.
func TestProtocolOnlyGrows(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		text, err := os.ReadFile(filepath.Join(release, "descriptor.bin"))
		check(t, err)
		var described descriptorpb.FileDescriptorProto
		check(t, proto.Unmarshal(text, &described))
		old, err := protodesc.NewFile(&described, nil)
		check(t, err)
		for _, problem := range broken(old, pluginv1.File_rowrelay_sink_v1_proto) {
			t.Errorf("since %s: %s", release, problem)
		}
	}
}

func TestIncompatibleChangesAreFound(t *testing.T) {
	t.Parallel()
	now := pluginv1.File_rowrelay_sink_v1_proto
	for name, change := range map[string]func(*descriptorpb.FileDescriptorProto){
		"a field's number": func(f *descriptorpb.FileDescriptorProto) { f.MessageType[7].Field[0].Number = proto.Int32(99) },
		"a field's type": func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType[7].Field[0].Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		},
		"a field's name":  func(f *descriptorpb.FileDescriptorProto) { f.MessageType[7].Field[0].Name = proto.String("other") },
		"an enum's value": func(f *descriptorpb.FileDescriptorProto) { f.EnumType[1].Value[1].Number = proto.Int32(99) },
		"a call":          func(f *descriptorpb.FileDescriptorProto) { f.Service[0].Method[0].Name = proto.String("Other") },
		"a call's request": func(f *descriptorpb.FileDescriptorProto) {
			f.Service[0].Method[0].InputType = f.Service[0].Method[1].InputType
		},
	} {
		changed := protodesc.ToFileDescriptorProto(now)
		change(changed)
		file, err := protodesc.NewFile(changed, nil)
		check(t, err)
		if len(broken(now, file)) == 0 {
			t.Errorf("a change of %s is not detected", name)
		}
	}
	if found := broken(now, now); len(found) > 0 {
		t.Errorf("a protocol differs from itself: %v", found)
	}
}

// broken returns the facts about an older protocol that are not true of a newer
// one.
func broken(old, now protoreflect.FileDescriptor) (problems []string) {
	before, after := facts(old), facts(now)
	for _, fact := range before {
		if !slices.Contains(after, fact) {
			problems = append(problems, "this is no longer so: "+fact)
		}
	}
	return problems
}
