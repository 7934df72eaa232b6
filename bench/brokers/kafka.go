package brokers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// KafkaVariable is the environment variable with the broker's address.
const KafkaVariable = "ROWRELAY_TEST_KAFKA"

type topic struct {
	address    string
	name       string
	partitions int
	batch      int
	transport  *kafkago.Transport
	client     *kafkago.Client
}

// NewTopic creates a topic with a bare producer. The argument `batch` is the maximum number of records in the
// producer's record batches.
func NewTopic(ctx context.Context, partitions, batch int) (Target, error) {
	transport := &kafkago.Transport{}
	t := &topic{
		address: os.Getenv(KafkaVariable), name: "rowrelay-bench-" + strings.ToLower(rand.Text())[:10],
		partitions: partitions, batch: batch, transport: transport,
	}
	t.client = &kafkago.Client{Addr: kafkago.TCP(t.address), Transport: transport, Timeout: 10 * time.Second}
	answer, err := t.client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{
		Topics: []kafkago.TopicConfig{{Topic: t.name, NumPartitions: partitions, ReplicationFactor: 1}},
	})
	if err == nil {
		err = answer.Errors[t.name]
	}
	if err != nil {
		return nil, fmt.Errorf("create the topic %s: %w", t.name, err)
	}
	for tries := 0; ; tries++ { // the partitions' leaders learn of the topic with a delay
		if _, err = t.Count(ctx); err == nil || tries > 1000 {
			return t, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (t *topic) Kind() sinks.Kind   { return kafka.Kind() }
func (t *topic) URL() string        { return fmt.Sprintf("kafka://%s/%s?", t.address, t.name) }
func (t *topic) Topic(n int) string { return t.name }

// Produce passes all messages to one Writer. The Writer sorts them by partition, and has at most
// one batch per partition in flight.
func (t *topic) Produce(ctx context.Context, messages []sinks.Message) error {
	w := &kafkago.Writer{
		Addr: kafkago.TCP(t.address), Topic: t.name, Balancer: kafkago.Murmur2Balancer{}, RequiredAcks: kafkago.RequireAll,
		BatchSize: t.batch, BatchBytes: 1 << 20, BatchTimeout: time.Millisecond, Transport: t.transport,
	}
	records := make([]kafkago.Message, len(messages))
	for i, m := range messages {
		records[i] = kafkago.Message{
			Key: []byte(m.Key), Value: m.Payload,
			Headers: []kafkago.Header{{Key: "rowrelay-message-id", Value: []byte(m.ID)}},
		}
	}
	return errors.Join(w.WriteMessages(ctx, records...), w.Close())
}

func (t *topic) Count(ctx context.Context) (int, error) {
	wanted := make([]kafkago.OffsetRequest, t.partitions)
	for p := range wanted {
		wanted[p] = kafkago.LastOffsetOf(p)
	}
	answer, err := t.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{t.name: wanted}})
	if err != nil {
		return 0, err
	}
	count := 0
	for _, p := range answer.Topics[t.name] {
		if p.Error != nil {
			return 0, p.Error
		}
		count += int(p.LastOffset)
	}
	return count, nil
}

func (t *topic) Close() error {
	defer t.transport.CloseIdleConnections()
	answer, err := t.client.DeleteTopics(context.Background(), &kafkago.DeleteTopicsRequest{Topics: []string{t.name}})
	if err == nil {
		err = answer.Errors[t.name]
	}
	return err
}
