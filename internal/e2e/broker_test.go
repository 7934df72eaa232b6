package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
)

// broker is where a scene's messages go, and what arrived there.
type broker interface {
	sink() string        // as the command takes it
	received() []arrival // in their order within each key
}

// asked returns the address of a server; without it the test is skipped, or
// fails where servers are required.
func asked(t *testing.T, variable string) string {
	t.Helper()
	address := os.Getenv(variable)
	if address == "" && os.Getenv("REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not set: run deploy/servers/servers up and source .servers/env", variable)
	}
	if address == "" {
		t.Skipf("%s is not set", variable)
	}
	return address
}

// readOrder is an arrival from a message as it lies in a broker.
func readOrder(t *testing.T, id string, body []byte) arrival {
	t.Helper()
	var order struct{ Customer, Number int }
	if err := json.Unmarshal(body, &order); err != nil {
		t.Errorf("message %s is damaged: %v", id, err)
	}
	return arrival{id: id, customer: order.Customer, number: order.Number, at: time.Now()}
}

// kafkaTopic is a topic of its own with some partitions.
type kafkaTopic struct {
	t             *testing.T
	brokers, name string
}

const kafkaPartitions = 6

func newKafkaTopic(t *testing.T, variable string, replicas int) *kafkaTopic {
	t.Helper()
	topic := &kafkaTopic{t: t, brokers: asked(t, variable), name: fmt.Sprint("e2e-", time.Now().UnixNano())}
	answer, err := topic.client().CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: topic.name, NumPartitions: kafkaPartitions, ReplicationFactor: replicas},
	}})
	check(t, err)
	check(t, answer.Errors[topic.name])
	return topic
}

func (k *kafkaTopic) client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(strings.Split(k.brokers, ",")...), Timeout: 30 * time.Second}
}

func (k *kafkaTopic) sink() string { return "kafka://" + k.brokers + "/" + k.name }

// received reads each partition from its beginning to its end.
func (k *kafkaTopic) received() (all []arrival) {
	k.t.Helper()
	for partition := range kafkaPartitions {
		all = append(all, k.partition(partition)...)
	}
	return all
}

func (k *kafkaTopic) partition(number int) (arrivals []arrival) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	offsets, err := k.client().ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{k.name: {kafka.LastOffsetOf(number)}}})
	check(k.t, err)
	end := offsets.Topics[k.name][0].LastOffset
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: strings.Split(k.brokers, ","), Topic: k.name, Partition: number, MaxWait: 100 * time.Millisecond})
	defer reader.Close()
	for reader.Offset() < end {
		m, err := reader.ReadMessage(ctx)
		check(k.t, err)
		arrivals = append(arrivals, readOrder(k.t, kafkaID(m), m.Value))
	}
	return arrivals
}

func kafkaID(m kafka.Message) string {
	for _, header := range m.Headers {
		if header.Key == "rowrelay-message-id" {
			return string(header.Value)
		}
	}
	return ""
}

// rabbitQueue is a queue of its own behind an exchange of its own.
type rabbitQueue struct {
	t             *testing.T
	address, name string
}

func newRabbitQueue(t *testing.T, variable, kind string) *rabbitQueue {
	t.Helper()
	q := &rabbitQueue{t: t, address: asked(t, variable), name: fmt.Sprint("e2e-", time.Now().UnixNano())}
	q.on(func(channel *amqp.Channel) {
		check(t, channel.ExchangeDeclare(q.name, amqp.ExchangeFanout, true, false, false, false, nil))
		_, err := channel.QueueDeclare(q.name, true, false, false, false, amqp.Table{"x-queue-type": kind})
		check(t, err)
		check(t, channel.QueueBind(q.name, "", q.name, false, nil))
	})
	t.Cleanup(func() {
		q.on(func(channel *amqp.Channel) {
			_, _ = channel.QueueDelete(q.name, false, false, false)
			_ = channel.ExchangeDelete(q.name, false, false)
		})
	})
	return q
}

func (q *rabbitQueue) on(work func(*amqp.Channel)) {
	connection := q.dial()
	defer connection.Close()
	channel, err := connection.Channel()
	check(q.t, err)
	work(channel)
}

// dial takes the first host that answers.
func (q *rabbitQueue) dial() *amqp.Connection {
	scheme, rest, _ := strings.Cut(q.address, "://")
	login, hosts, _ := strings.Cut(rest, "@")
	var last error
	for host := range strings.SplitSeq(strings.TrimSuffix(hosts, "/"), ",") {
		connection, err := amqp.Dial(scheme + "://" + login + "@" + host + "/")
		if err == nil {
			return connection
		}
		last = err
	}
	q.t.Fatal(last)
	return nil
}

func (q *rabbitQueue) sink() string {
	return strings.TrimSuffix(q.address, "/") + "/?exchange=" + url.QueryEscape(q.name)
}

// received takes out of the queue whatever is in it.
func (q *rabbitQueue) received() (all []arrival) {
	q.t.Helper()
	q.on(func(channel *amqp.Channel) {
		state, err := channel.QueueDeclarePassive(q.name, true, false, false, false, nil)
		check(q.t, err)
		deliveries, err := channel.Consume(q.name, "", true, true, false, false, nil)
		check(q.t, err)
		for range state.Messages {
			select {
			case d := <-deliveries:
				all = append(all, readOrder(q.t, d.MessageId, d.Body))
			case <-time.After(30 * time.Second):
				q.t.Errorf("%d of %d messages came out of the queue", len(all), state.Messages)
				return
			}
		}
	})
	return all
}

// Relays to a broker are killed: nothing is lost, each customer's orders are in
// their order, and no kill causes more duplicates than were in flight.
func TestKilledRelaysToBrokersLoseNothing(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) broker{
		"kafka": func(t *testing.T) broker { return newKafkaTopic(t, "ROWRELAY_TEST_KAFKA", 1) },
		"kafka, idempotent": func(t *testing.T) broker {
			return idempotentTopic{newKafkaTopic(t, "ROWRELAY_TEST_KAFKA", 1)}
		},
		"rabbitmq": func(t *testing.T) broker { return newRabbitQueue(t, "ROWRELAY_TEST_RABBITMQ", "classic") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := open(t)
			s := newScene(t, "postgres15/pgx")
			length := lasting(8*time.Second, time.Minute)
			done := make(chan struct{})
			go func() { placeOrders(s, lastingOrders(), length); close(done) }()
			kills := killEverySecond(s, func(string) string { return to.sink() }, 3*time.Second, length)
			<-done
			s.settled(2 * time.Minute)
			judgeBroker(s, to, len(kills))
		})
	}
}

// lastingOrders are 200,000 committed ones with -long.
func lastingOrders() int {
	if *long {
		return 400_000
	}
	return 10_000
}

func judgeBroker(s *scene, to broker, kills int) {
	s.t.Helper()
	const inFlight = 2*20 + 2*40 // as in judgeDuplicates
	v := judge(s.t, to.received())
	if want := s.committed(); v.distinct != want {
		s.t.Errorf("%d distinct messages arrived of %d committed orders", v.distinct, want)
	}
	if _, exact := to.(idempotentTopic); exact && len(v.duplicates) > 0 {
		s.t.Errorf("%d messages are in the log twice, none should be", len(v.duplicates))
	}
	if len(v.duplicates) > kills*inFlight {
		s.t.Errorf("%d kills caused %d duplicates, more than were in flight", kills, len(v.duplicates))
	}
	s.t.Logf("%d messages, %d kills, %d duplicates", v.distinct, kills, len(v.duplicates))
}
