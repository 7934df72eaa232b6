package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/brokers"
	"github.com/rowrelay/rowrelay/bench/cpu"
	"github.com/rowrelay/rowrelay/bench/debezium"
	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/load"
	"github.com/rowrelay/rowrelay/bench/table"
)

const (
	debeziumBacklog = 200_000
	debeziumKills   = 5
	debeziumRate    = 200 // messages a second
	debeziumSeconds = 20  // seconds of the steady load
)

// besideDebezium compares the command with Debezium on Kafka Connect. Both are processes that take
// turns on one PostgreSQL and one Kafka.
func besideDebezium(ctx context.Context, s settings, report func(figure.Figure)) error {
	server, kafka := table.Servers["postgreslogical"], debezium.Kafka(os.Getenv(brokers.KafkaVariable))
	if server.Missing() || kafka == "" {
		return errors.New("this needs the servers postgreslogical and kafka: make bench-debezium")
	}
	words, err := exec.Command("../deploy/servers/servers", "words", "debezium").Output()
	if err != nil {
		return fmt.Errorf("get Debezium: run deploy/servers/servers words debezium: %w", err)
	}
	rowrelay := func(idempotent bool) func(*table.Database) debezium.Side {
		return func(d *table.Database) debezium.Side {
			return debezium.Rowrelay{Database: d, Kafka: kafka, Idempotent: idempotent}
		}
	}
	own := &compared{name: "rowrelay", side: rowrelay(false)}
	careful := &compared{name: "rowrelay, idempotent", prefix: "idempotent: ", side: rowrelay(true)}
	other := &compared{name: "Debezium", side: func(d *table.Database) debezium.Side {
		return &debezium.Connect{Database: d, Kafka: kafka, Words: strings.Fields(string(words))}
	}}
	var contenders []figure.Contender
	all := []*compared{own, careful, other}
	for _, c := range all {
		contenders = append(contenders, figure.Contender{Name: c.name + ", warm, a second", Turn: func(ctx context.Context) (float64, error) {
			if err := c.on(ctx, server, kafka, c.turn); err != nil {
				return 0, err
			}
			if len(own.warm) == len(other.warm) && len(careful.warm) == len(other.warm) { // a round has ended: report now, so that an interrupted run also has figures
				own.report(other, report)
				careful.report(other, report)
			}
			return latest(c.warm), nil
		}})
	}
	for _, c := range []*compared{own, other} {
		if err := c.on(ctx, server, kafka, func(ctx context.Context, u *subject) error { return c.log(ctx, u, report) }); err != nil {
			return err
		}
	}
	_, err = figure.Turns(ctx, s.rounds, contenders...)
	return err
}

// compared is one of the compared systems, with the results of its turns.
type compared struct {
	name   string
	prefix string // prepended to the names of figures
	side   func(*table.Database) debezium.Side

	cold, warm       []float64 // messages per second, from the first message that Kafka received to the last
	whole            []float64 // seconds from the start of the process until Kafka has the last message
	own, database    []float64 // µs of CPU per message, warm
	broker           []float64
	others           []float64 // cores that all other processes on the machine used during the warm drain
	peak, steady     []float64 // MiB of resident memory: the peak while draining, and at the end of the steady load
	p50, p99         []float64 // ms
	ownLoad, dbLoad  []float64 // percent of a core under the steady load
	duplicates, back []float64 // duplicates: number of duplicates after the kills of a turn; back: seconds from each kill to the next new message
	lost, disorder   int
}

// subject is a system on its own database.
type subject struct {
	debezium.Side
	db     *table.Database
	kafka  debezium.Kafka
	server int // the process id of the database server
	broker int // the process id of Kafka
}

// on creates a database for the system, runs the system until it has delivered some messages, stops it, and then
// calls the function `use`.
func (c *compared) on(ctx context.Context, server table.Server, kafka debezium.Kafka, use func(context.Context, *subject) error) (err error) {
	d, err := server.Create(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	d.DB.SetMaxOpenConns(8)
	d.DB.SetMaxIdleConns(8)
	pid, err := cpu.ServerOf(ctx, d)
	if err != nil {
		return err
	}
	broker, err := kafka.Process()
	if err != nil {
		return err
	}
	u := &subject{c.side(d), d, kafka, pid, broker}
	if err := u.Prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.Close(ctx)) }()
	err = u.running(ctx, false, func(p *debezium.Process) error {
		return u.onTopic(ctx, func(t *debezium.Topic) error {
			if err := u.fill(ctx, t, 5000); err != nil {
				return err
			}
			return t.Await(ctx, p, 5000)
		})
	})
	if err == nil {
		err = use(ctx, u)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c.name, err)
	}
	return err
}

// running starts the system, calls the function `use` when the system is ready, and stops the system when `use`
// returns.
func (u *subject) running(ctx context.Context, quick bool, use func(*debezium.Process) error) error {
	p, err := u.Start(ctx, quick)
	if err != nil {
		return err
	}
	defer p.Stop()
	if err := u.Ready(ctx, p); err != nil {
		return err
	}
	return use(p)
}

func (u *subject) onTopic(ctx context.Context, use func(*debezium.Topic) error) error {
	t, err := debezium.NewTopic(ctx, u.kafka)
	if err != nil {
		return err
	}
	return errors.Join(use(t), t.Close())
}

// fill writes the given number of messages, 1,000 per transaction.
func (u *subject) fill(ctx context.Context, t *debezium.Topic, count int) error {
	for n := 0; n < count; n += 1000 {
		if _, err := u.db.DB.ExecContext(ctx, u.Fill(debezium.Selected), t.Name, n, min(n+1000, count)-1); err != nil {
			return fmt.Errorf("fill the table: %w", err)
		}
	}
	_, err := u.db.DB.ExecContext(ctx, "CHECKPOINT")
	return err
}

// turn takes all measurements once, except the measurement of the write-ahead log.
func (c *compared) turn(ctx context.Context, u *subject) error {
	for _, part := range []func(context.Context, *subject) error{c.drains, c.steadily, c.killed} {
		if err := part(ctx, u); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "  %s at %s: cold %.0f, warm %.0f /s, others %.2f cores; %.1f, %.1f ms; %.0f MiB; %.0f duplicates, back after %.1f s\n", c.name, time.Now().UTC().Format("15:04:05"),
		latest(c.cold), latest(c.warm), latest(c.others), latest(c.p50), latest(c.p99), latest(c.peak), latest(c.duplicates), c.back[len(c.back)-debeziumKills:])
	return nil
}

func latest(values []float64) float64 { return values[len(values)-1] }

// drains measures two backlogs. The first backlog is written before the process starts, and the warm process delivers
// the second backlog.
func (c *compared) drains(ctx context.Context, u *subject) error {
	return u.onTopic(ctx, func(first *debezium.Topic) error {
		if err := u.fill(ctx, first, debeziumBacklog); err != nil {
			return err
		}
		began := time.Now()
		p, err := u.Start(ctx, false)
		if err != nil {
			return err
		}
		defer p.Stop()
		if err := first.Await(ctx, p, debeziumBacklog); err != nil {
			return err
		}
		c.whole = append(c.whole, time.Since(began).Seconds())
		rate, err := c.rate(ctx, first)
		if err != nil {
			return err
		}
		c.cold = append(c.cold, rate)
		return u.onTopic(ctx, func(second *debezium.Topic) error { return c.drainWarm(ctx, u, p, second) })
	})
}

func (c *compared) drainWarm(ctx context.Context, u *subject, p *debezium.Process, t *debezium.Topic) error {
	if err := u.Pause(ctx); err != nil {
		return err
	}
	if err := u.fill(ctx, t, debeziumBacklog); err != nil {
		return err
	}
	spent, err := u.spending(p, func() error {
		if err := u.Resume(ctx); err != nil {
			return err
		}
		return t.Await(ctx, p, debeziumBacklog)
	})
	if err != nil {
		return err
	}
	c.own, c.database = append(c.own, micros(spent.own, debeziumBacklog)), append(c.database, micros(spent.database, debeziumBacklog))
	c.broker, c.others = append(c.broker, micros(spent.broker, debeziumBacklog)), append(c.others, spent.others.Seconds()/spent.took.Seconds())
	_, peak := p.Memory()
	c.peak = append(c.peak, peak)
	rate, err := c.rate(ctx, t)
	c.warm = append(c.warm, rate)
	return err
}

// spending is the CPU that the system's process, both servers and all other processes used in a
// period.
type spending struct{ own, database, broker, others, took time.Duration }

func (u *subject) spending(p *debezium.Process, do func() error) (s spending, err error) {
	before, err := u.spent(p)
	began := time.Now()
	if err == nil {
		err = do()
	}
	if err != nil {
		return s, err
	}
	s.took = time.Since(began)
	after, err := u.spent(p)
	s.own, s.database, s.broker = after.own-before.own, after.database-before.database, after.broker-before.broker
	s.others = after.others - before.others - s.own - s.database - s.broker
	return s, err
}

// spent returns the CPU that was used so far. The field `others` of the result includes all processes except this
// one.
func (u *subject) spent(p *debezium.Process) (s spending, err error) {
	s.others = figure.Spent().Others
	var errs [3]error
	s.own, errs[0] = p.CPU()
	s.database, errs[1] = cpu.Family(u.server)
	s.broker, errs[2] = cpu.Family(u.broker)
	return s, errors.Join(errs[:]...)
}

// rate returns the rate from the first to the last record of a backlog, and checks the records.
func (c *compared) rate(ctx context.Context, t *debezium.Topic) (float64, error) {
	r, err := t.Read(ctx, debeziumBacklog)
	if err != nil {
		return 0, err
	}
	c.lost, c.disorder = c.lost+r.Lost, c.disorder+r.Disorder
	last := len(r.Records) - 1
	return float64(last) / r.Records[last].At.Sub(r.Records[0].At).Seconds(), nil
}

// steadily executes plain INSERTs at a steady rate, and records how long each message takes to
// reach a consumer.
func (c *compared) steadily(ctx context.Context, u *subject) error {
	return u.running(ctx, true, func(p *debezium.Process) error {
		if err := u.onTopic(ctx, func(t *debezium.Topic) error { _, err := u.writeAt(ctx, t, 500, 2500); return err }); err != nil {
			return err // these messages only warm up the JVM
		}
		return u.onTopic(ctx, func(t *debezium.Topic) error {
			var took []float64
			spent, err := u.spending(p, func() (err error) {
				took, err = u.writeAt(ctx, t, debeziumRate, debeziumRate*debeziumSeconds)
				return err
			})
			if err != nil {
				return err
			}
			slices.Sort(took)
			c.p50, c.p99 = append(c.p50, took[len(took)/2]), append(c.p99, took[len(took)*99/100])
			c.ownLoad, c.dbLoad = append(c.ownLoad, 100*spent.own.Seconds()/spent.took.Seconds()), append(c.dbLoad, 100*spent.database.Seconds()/spent.took.Seconds())
			now, _ := p.Memory()
			c.steady = append(c.steady, now)
			return nil
		})
	})
}

// writeAt writes the given number of messages at this rate. It returns the milliseconds from each commit until a
// consumer received the message.
func (u *subject) writeAt(ctx context.Context, t *debezium.Topic, rate, count int) ([]float64, error) {
	watch := load.NewStopwatch(count)
	listening, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- t.Arrivals(listening, func(n int) { watch.Answered(load.ID(n)) }) }()
	<-time.After(time.Second) // by then the consumer waits for records
	_, err := load.Schedule{Rate: float64(rate), Count: count, Workers: 8}.Run(ctx, func(ctx context.Context, n int) error {
		_, err := u.db.DB.ExecContext(ctx, u.Insert(), t.Name, debezium.KeyOf(n), debezium.Payload(n))
		watch.Committed(n)
		return err
	})
	if err == nil {
		err = watch.Wait(ctx)
	}
	stop()
	return watch.Took(), errors.Join(err, <-ended)
}

// killed drains a backlog, and kills the process after each 15 % of it. The process is restarted
// immediately, as a supervisor would restart it.
func (c *compared) killed(ctx context.Context, u *subject) error {
	return u.onTopic(ctx, func(t *debezium.Topic) error {
		if err := u.fill(ctx, t, debeziumBacklog); err != nil {
			return err
		}
		p, err := u.Start(ctx, false)
		if err != nil {
			return err
		}
		defer func() { p.Stop() }()
		var kills []time.Time
		for range debeziumKills {
			before, err := t.Count(ctx)
			if err == nil {
				err = t.Await(ctx, p, before+debeziumBacklog*15/100)
			}
			if err != nil {
				return err
			}
			kills = append(kills, time.Now())
			p.Kill()
			if p, err = u.Start(ctx, false); err != nil {
				return err
			}
		}
		r, err := c.all(ctx, t, p)
		if err != nil {
			return err
		}
		c.lost, c.disorder = c.lost+r.Lost, c.disorder+r.Disorder
		c.duplicates = append(c.duplicates, float64(r.Duplicates))
		for _, kill := range kills {
			c.back = append(c.back, r.next(kill))
		}
		return nil
	})
}

// all waits until the topic has all messages, and reads it. If messages are still missing after two
// minutes, they count as lost.
func (c *compared) all(ctx context.Context, t *debezium.Topic, p *debezium.Process) (r reading, err error) {
	for began := time.Now(); ; {
		if err := t.Await(ctx, p, debeziumBacklog); err != nil {
			return r, err
		}
		if r.Reading, err = t.Read(ctx, debeziumBacklog); err != nil || r.Lost == 0 || time.Since(began) > 2*time.Minute {
			return r, err
		}
		<-time.After(time.Second)
	}
}

type reading struct{ debezium.Reading }

// next returns the seconds from a kill to the next new message. It ignores messages that arrive
// within 100 ms, because they were sent before the kill.
func (r reading) next(kill time.Time) float64 {
	for _, record := range r.Records {
		if !record.Duplicated && record.At.After(kill.Add(100*time.Millisecond)) {
			return record.At.Sub(kill).Seconds()
		}
	}
	return 0
}

// report reports the system's results, and compares them with the results of the other
// system.
func (c *compared) report(other *compared, report func(figure.Figure)) {
	both := func(what, unit string, digits int, goal string, met func(ratio float64) bool, values func(*compared) []float64) {
		own, others := values(c), values(other)
		f := figure.Figure{Ratio: figure.Ratio(own, others), Value: ranged(own, unit, digits), Reference: other.name + " " + ranged(others, unit, digits), Goal: goal}
		f.What, f.Met = c.prefix+what, met != nil && met(f.Ratio)
		report(f)
	}
	atLeast3 := func(ratio float64) bool { return ratio >= 3 }
	both("a backlog, warm", "/s", 0, "≥ 3", atLeast3, func(c *compared) []float64 { return c.warm })
	both("a backlog, from the first message after a start", "/s", 0, "≥ 3", atLeast3, func(c *compared) []float64 { return c.cold })
	both("a backlog, including the start of the process", "s", 1, "", nil, func(c *compared) []float64 { return c.whole })
	both("CPU of the process per message", "µs", 0, "", nil, func(c *compared) []float64 { return c.own })
	both("CPU of PostgreSQL per message", "µs", 0, "", nil, func(c *compared) []float64 { return c.database })
	both("CPU of Kafka per message", "µs", 0, "", nil, func(c *compared) []float64 { return c.broker })
	both("memory at most, resident", "MiB", 0, "≤ 1/20", func(ratio float64) bool { return ratio <= 1./20 }, func(c *compared) []float64 { return c.peak })
	load := fmt.Sprintf("%d/s", debeziumRate)
	both(load+", p50", "ms", 1, "≤ 1/5", func(ratio float64) bool { return ratio <= 1./5 }, func(c *compared) []float64 { return c.p50 })
	both(load+", p99", "ms", 1, "", nil, func(c *compared) []float64 { return c.p99 })
	both(load+", CPU of the process", "% of a core", 1, "", nil, func(c *compared) []float64 { return c.ownLoad })
	both(load+", CPU of PostgreSQL with its writers", "% of a core", 1, "", nil, func(c *compared) []float64 { return c.dbLoad })
	both(load+", memory, resident", "MiB", 0, "≤ 1/20", func(ratio float64) bool { return ratio <= 1./20 }, func(c *compared) []float64 { return c.steady })
	both(fmt.Sprintf("next new message after a kill (%d kills per round)", debeziumKills), "s", 2, "", nil, func(c *compared) []float64 { return c.back })
	report(figure.Figure{What: c.prefix + fmt.Sprintf("duplicates after %d kills, of %d messages", debeziumKills, debeziumBacklog), Value: ranged(c.duplicates, "", 0),
		Ratio: (1 + figure.Median(c.duplicates)) / (1 + figure.Median(other.duplicates)), Reference: other.name + " " + ranged(other.duplicates, "", 0)})
	report(figure.Figure{What: c.prefix + "CPU of all other processes during the warm drain", Value: ranged(c.others, "cores", 2) + ", with " + other.name + " " + ranged(other.others, "cores", 2)})
	report(figure.Figure{What: c.prefix + "messages lost, and messages out of order, in total", Value: fmt.Sprintf("%d and %d (%s: %d and %d)", c.lost, c.disorder, other.name, other.lost, other.disorder)})
}

// ranged formats the median of values with the least and the greatest value. Unlike [figure.Spread]
// it doesn't sort the argument.
func ranged(values []float64, unit string, digits int) string {
	sorted := slices.Sorted(slices.Values(values))
	text := func(value float64) string { return strconv.FormatFloat(value, 'f', digits, 64) }
	return strings.TrimSpace(text(figure.Median(sorted))+" "+unit) + " (" + text(sorted[0]) + "–" + text(sorted[len(sorted)-1]) + ")"
}

// log measures how much of the write-ahead log the server can't remove because of the system:
// while the system is down, after it has caught up, and while it is idle and rows are written to
// another table.
func (c *compared) log(ctx context.Context, u *subject, report func(figure.Figure)) error {
	return u.onTopic(ctx, func(t *debezium.Topic) error {
		written, err := u.logged(ctx, func() error { return u.fill(ctx, t, debeziumBacklog) })
		if err != nil {
			return err
		}
		down, err := u.Held(ctx)
		if err != nil {
			return err
		}
		return u.running(ctx, false, func(p *debezium.Process) error {
			if err := t.Await(ctx, p, debeziumBacklog); err != nil {
				return err
			}
			after, err := u.rested(ctx)
			if err != nil {
				return err
			}
			strange, err := u.logged(ctx, func() error {
				_, err := u.db.DB.ExecContext(ctx, "CREATE TABLE other AS SELECT n, repeat(md5(n::text), 8) AS t FROM generate_series(1, 600000) AS n")
				return err
			})
			if err != nil {
				return err
			}
			idle, err := u.rested(ctx)
			report(figure.Figure{What: "write-ahead log that " + c.name + " holds", Value: fmt.Sprintf(
				"while it is down: %d of %d MiB; %v after it has caught up: %d MiB; %v after %d MiB were written for another table: %d MiB",
				down>>20, written>>20, restTime, after>>20, restTime, strange>>20, idle>>20)})
			return err
		})
	})
}

const restTime = 20 * time.Second

// rested waits for restTime and for a checkpoint, and then returns the number of bytes in the write-ahead log that
// the server can't remove because of the system.
func (u *subject) rested(ctx context.Context) (held int64, err error) {
	<-time.After(restTime)
	if _, err := u.db.DB.ExecContext(ctx, "CHECKPOINT"); err != nil {
		return 0, err
	}
	return u.Held(ctx)
}

// logged calls the function `do`, and returns how many bytes PostgreSQL wrote to its write-ahead log during the call.
func (u *subject) logged(ctx context.Context, do func() error) (written int64, err error) {
	var before string
	if err := u.db.DB.QueryRowContext(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&before); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	err = u.db.DB.QueryRowContext(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1::pg_lsn)::bigint", before).Scan(&written)
	return written, err
}
