// Command bench compares rowrelay with handwritten loops, bare producers and other relays, and
// records the figures that docs/performance.md prints.
//
//	go run . -h
//	go run . [-rounds 5] [-servers postgres15] [-record figures.json] drain …
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/table"
)

// settings are the settings of a run.
type settings struct {
	rounds   int
	servers  string // a list of names; empty: all servers that are up
	only     string // measure only figures whose names contain this text
	on       string
	long     bool          // also measure the large sizes
	duration time.Duration // the duration of the scenes that run for a given time
}

// up returns the named servers that are up and selected.
func (s settings) up(names ...string) (servers []table.Server) {
	for _, name := range names {
		if server := table.Servers[name]; !server.Missing() && (s.servers == "" || slices.Contains(strings.Split(s.servers, ","), name)) {
			servers = append(servers, server)
		}
	}
	return servers
}

// scene produces one or more rows of the table of figures.
type scene struct {
	name, about string
	measure     func(ctx context.Context, s settings, report func(figure.Figure)) error
}

var scenes = []scene{
	{"drain", "deliver a backlog to a sink that does nothing, compared with handwritten loops", drain},
	{"loops", "the handwritten loops, compared with loops that were written elsewhere for speed", loops},
	{"order", "deliver a backlog with no key, many keys, few keys and one key: the cost of order", orderScene},
	{"fanout", "deliver a backlog to 2 and 3 sinks, compared with one sink", fanout},
	{"relays", "deliver a backlog with 2 and 4 relays, compared with one relay", several},
	{"peers", "deliver a backlog to a sink that does nothing, compared with other outboxes and queues", besidePeers},
	{"snapshot", "ten rounds while a snapshot is held open; the last round compared with the first", underSnapshot},
	{"kafka", "deliver a backlog to Kafka, compared with a bare producer and with a sink that does nothing", kafkaScene},
	{"rabbitmq", "deliver a backlog to RabbitMQ, compared with a bare publisher and with a sink that does nothing", rabbitScene},
	{"latency", "the time from a commit to the sink's answer, compared with a loop that polls every millisecond", latency},
	{"idle", "the CPU of an idle relay and its database", idle},
	{"producer", "a transaction with Write, compared with a transaction with a bare INSERT", producer},
	{"growth", "deliver backlogs of several sizes: the cost per message and the memory of the command", growth},
	{"held", "work on a table with a million deferred rows or 100,000 messages behind a blocked key, compared with a table without them", held},
	{"done", "work on a table with the delivered rows of a day, compared with a table without them; the rate of a purge", done},
	{"hour", "a steady load: the last tenth of the time compared with the first, and the sizes of the tables", hour},
	{"debezium", "the command compared with Debezium on Kafka Connect, from PostgreSQL to Kafka", besideDebezium},
	{"plugin", "the file sink as a plug-in, compared with the same sink in the process", pluginScene},
}

func main() {
	if startedAsPlugin() {
		servePlugin()
		return
	}
	var s settings
	flag.IntVar(&s.rounds, "rounds", 5, "the `number` of rounds; each round measures each of the compared systems once")
	flag.StringVar(&s.servers, "servers", "", "a `list` of postgres15, postgres18, mysql, mariadb1011, sqlite; default: all that are up")
	flag.StringVar(&s.only, "only", "", "measure only figures with this `text` in their names")
	flag.BoolVar(&s.long, "long", false, "also measure the large sizes, which take minutes and many GB each")
	flag.DurationVar(&s.duration, "duration", 10*time.Minute, "duration of the scenes that run for a given time")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to this `file`")
	record := flag.String("record", "", "write the figures to this `file`")
	flag.Usage = usage
	flag.Parse()
	s.on = figure.Machine()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *profile != "" {
		file, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(file)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := run(ctx, s, flag.Args(), figure.Record{Path: *record}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: bench [flags] scene…\nIt needs the environment variables of the servers that deploy/servers starts. Scenes:")
	for _, scene := range scenes {
		fmt.Fprintf(os.Stderr, "  %-12s %s\n", scene.name, scene.about)
	}
	flag.PrintDefaults()
}

func run(ctx context.Context, s settings, names []string, record figure.Record) error {
	for _, name := range names {
		scene, err := named(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "== %s: %s\n", scene.name, scene.about)
		var failed error
		report := func(f figure.Figure) {
			f.Row, f.On = scene.name, s.on
			fmt.Println(f)
			if record.Path != "" && failed == nil {
				failed = record.Put(f)
			}
		}
		if err := scene.measure(ctx, s, report); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

func named(name string) (scene, error) {
	for _, scene := range scenes {
		if scene.name == name {
			return scene, nil
		}
	}
	return scene{}, fmt.Errorf("there is no scene %q", name)
}
