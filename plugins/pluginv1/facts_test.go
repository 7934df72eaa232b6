package pluginv1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// facts returns what each side of the protocol relies on, with one line for each
// fact.
func facts(file protoreflect.FileDescriptor) (facts []string) {
	for i := range file.Messages().Len() {
		fields := file.Messages().Get(i).Fields()
		for j := range fields.Len() {
			facts = append(facts, field(fields.Get(j)))
		}
	}
	for i := range file.Enums().Len() {
		enum := file.Enums().Get(i)
		for j := range enum.Values().Len() {
			value := enum.Values().Get(j)
			facts = append(facts, fmt.Sprintf("%s: %s = %d", enum.FullName(), value.Name(), value.Number()))
		}
	}
	for i := range file.Services().Len() {
		methods := file.Services().Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			facts = append(facts, fmt.Sprintf("%s(%s) %s, streams %v %v", m.FullName(), m.Input().FullName(), m.Output().FullName(), m.IsStreamingClient(), m.IsStreamingServer()))
		}
	}
	return facts
}

func field(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	if f.Message() != nil {
		kind = string(f.Message().FullName())
	}
	if f.Enum() != nil {
		kind = string(f.Enum().FullName())
	}
	return fmt.Sprintf("%s = %d: %s %s, presence %v", f.FullName(), f.Number(), f.Cardinality(), kind, f.HasPresence())
}

// releases returns the folders of recorded releases, at least one.
func releases(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("testdata/*")
	if err != nil || len(found) == 0 {
		t.Fatalf("no release is recorded (%v)", err)
	}
	return found
}

// recorded returns the samples of a release, by name.
func recorded(t *testing.T, release string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(release, "*.bin"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%s has no samples (%v)", release, err)
	}
	texts := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(t, err)
		texts[strings.TrimSuffix(filepath.Base(file), ".bin")] = text
	}
	delete(texts, "descriptor")
	return texts
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
