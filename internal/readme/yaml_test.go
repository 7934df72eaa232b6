package readme

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/file"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

func TestConfigurationsLoad(t *testing.T) {
	t.Parallel()
	kinds, err := sinks.NewRegistry(discard.Kind(), file.Kind(), httpsink.Kind(), kafka.Kind(), plugins.Kind(nil), rabbitmq.Kind(), stdout.Kind())
	check(t, err)
	found := blocks(t, "yaml")
	for _, b := range found {
		if _, err := config.Parse("rowrelay.yaml", []byte(b.text), kinds); err != nil {
			t.Errorf("%s: %v", b.place, err)
		}
	}
	if len(found) == 0 {
		t.Error("the pages have no configuration")
	}
}
