package debezium

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topic is a new topic with six partitions. The timestamp of each record is the time at which the
// broker received it.
type Topic struct {
	Name  string
	kafka Kafka
	admin *kadm.Client
}

// NewTopic creates a topic.
func NewTopic(ctx context.Context, kafka Kafka) (*Topic, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(string(kafka)), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	t := &Topic{"rowrelay-bench-" + strings.ToLower(rand.Text())[:10], kafka, kadm.NewClient(client)}
	byBroker := "LogAppendTime"
	_, err = t.admin.CreateTopic(ctx, 6, 1, map[string]*string{"message.timestamp.type": &byBroker}, t.Name)
	return t, err
}

// Close deletes the topic.
func (t *Topic) Close() error {
	defer t.admin.Close()
	_, err := t.admin.DeleteTopics(context.Background(), t.Name)
	return err
}

// ends returns the end offsets of the partitions.
func (t *Topic) ends(ctx context.Context) (kadm.ListedOffsets, error) {
	return t.admin.ListEndOffsets(ctx, t.Name)
}

// Count returns the number of records.
func (t *Topic) Count(ctx context.Context) (count int, err error) {
	ends, err := t.ends(ctx)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			count += int(o.Offset)
		}
	})
	return count, err
}

// Await waits until the topic has the given number of records.
func (t *Topic) Await(ctx context.Context, p *Process, count int) error {
	return until(ctx, fmt.Sprintf("Kafka has %d messages", count), p, func() (bool, error) {
		now, err := t.Count(ctx)
		return now >= count, err
	})
}

// Record is one of the written messages, with the time at which the broker received it.
type Record struct {
	At         time.Time
	N, Key     int // N is the number of the message; the messages of a key are written in the order of N
	Duplicated bool
}

// Reading has the records of a topic in chronological order.
type Reading struct {
	Records    []Record
	Lost       int
	Duplicates int
	Disorder   int // messages that first arrived after a later message of their key had arrived
}

// Read reads the topic from its start to its end. The argument `written` is the number of messages that were written
// to the table.
func (t *Topic) Read(ctx context.Context, written int) (r Reading, err error) {
	ends, err := t.ends(ctx)
	if err != nil {
		return r, err
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	client, err := t.consumer()
	if err != nil {
		return r, err
	}
	defer client.Close()
	seen, latest := map[int]bool{}, map[int]int{}
	for len(left) > 0 && err == nil {
		fetches := client.PollFetches(ctx)
		err = fetches.Err()
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
			n, key, broken := parse(record)
			if broken != nil {
				err = broken
				return
			}
			again := seen[n]
			switch last, known := latest[key]; {
			case again:
				r.Duplicates++
			case known && n < last:
				r.Disorder++
			default:
				latest[key] = n
			}
			seen[n] = true
			r.Records = append(r.Records, Record{record.Timestamp, n, key, again})
		})
	}
	r.Lost = written - len(seen)
	slices.SortFunc(r.Records, func(a, b Record) int { return a.At.Compare(b.At) })
	return r, err
}

func (t *Topic) consumer() (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(string(t.kafka)), kgo.ConsumeTopics(t.Name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
}

// Arrivals calls the function `seen` for each message when it arrives, until the context ends.
func (t *Topic) Arrivals(ctx context.Context, seen func(n int)) error {
	client, err := t.consumer()
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if n, _, broken := parse(record); broken == nil {
				seen(n)
			}
		})
	}
}

// Keys is the number of keys. Consecutive messages have consecutive keys.
const Keys = 1000

// Size is the size of a payload in bytes.
const Size = 256

// filler is the text that fills payloads up to their size.
const filler = "the quick brown fox jumps over the lazy dog "

// Payload returns the payload of message n.
func Payload(n int) string {
	return (fmt.Sprintf("%012d|", n) + strings.Repeat(filler, 6))[:Size]
}

// KeyOf returns the key of message n.
func KeyOf(n int) string { return fmt.Sprintf("key-%06d", n%Keys) }

// Selected is a SELECT of topic, key and payload of the messages $2 to $3, for the topic $1.
const Selected = "SELECT $1, 'key-' || lpad((n % 1000)::text, 6, '0'), rpad(lpad(n::text, 12, '0') || '|', 256, '" + filler + "') FROM generate_series($2::bigint, $3::bigint) AS n ORDER BY n"

func parse(record *kgo.Record) (n, key int, err error) {
	number, _, _ := strings.Cut(string(record.Value), "|")
	n, err = strconv.Atoi(number)
	if err != nil || string(record.Key) != KeyOf(n) || string(record.Value) != Payload(n) {
		return 0, 0, fmt.Errorf("a record differs from what was written: %q %q", record.Key, record.Value)
	}
	return n, n % Keys, nil
}
