package e2e

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
)

// broker is the destination of a scene's messages, and returns the messages that arrived there.
type broker interface {
	sink(from string) string // the URL for the command; from is written into each message to identify the relay
	received() []arrival     // each key's messages are in the order in which they arrived
	whole() error            // nil if all nodes are up to date
	product() string         // the broker's name and version
}

// source returns the URL parameters that write the sending relay's name into each message.
func source(from string) string {
	return "cloudevents=binary&cloudevents_source=" + url.QueryEscape(from)
}

// readOrder reads an arrival from a broker's message.
func readOrder(t *testing.T, sink, id, from string, body []byte) arrival {
	t.Helper()
	var order struct{ Customer, Number int }
	if err := json.Unmarshal(body, &order); err != nil {
		t.Errorf("message %s is damaged: %v", id, err)
	}
	return arrival{sink: sink, id: id, from: from, customer: order.Customer, number: order.Number}
}

// kafkaTopic is a topic of one test, with some partitions.
type kafkaTopic struct {
	t             *testing.T
	brokers, name string
	front         string // the address of the brokers for relays
	folder        string // the files of deploy/servers; empty if they are not known
	partitions    int
	replicas      int
}

const kafkaPartitions = 6

func newKafkaTopic(t *testing.T, brokers string, replicas int) *kafkaTopic {
	t.Helper()
	topic := &kafkaTopic{t: t, brokers: brokers, front: brokers, name: fmt.Sprint("e2e-", time.Now().UnixNano()), replicas: replicas}
	check(t, topic.create(kafkaPartitions))
	return topic
}

// create creates the topic and returns the broker's error.
func (k *kafkaTopic) create(partitions int) error {
	k.t.Helper()
	k.partitions = partitions
	answer, err := k.client().CreateTopics(k.t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: k.name, NumPartitions: partitions, ReplicationFactor: k.replicas},
	}})
	check(k.t, err)
	return answer.Errors[k.name]
}

// delete deletes the topic and waits until the broker doesn't know it any more. Until then the
// broker acknowledges writes to it.
func (k *kafkaTopic) delete() {
	k.t.Helper()
	answer, err := k.client().DeleteTopics(k.t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{k.name}})
	check(k.t, err)
	check(k.t, answer.Errors[k.name])
	eventually(k.t, k.name+" is deleted", func() bool { _, err := k.length(); return err != nil })
}

// length returns the number of records that were written to the topic, or an error if a partition
// is missing or has no leader.
func (k *kafkaTopic) length() (n int64, err error) {
	var requests []kafka.OffsetRequest
	for partition := range k.partitions {
		requests = append(requests, kafka.LastOffsetOf(partition))
	}
	answer, err := k.client().ListOffsets(k.t.Context(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{k.name: requests}})
	if err != nil {
		return 0, err
	}
	for _, partition := range answer.Topics[k.name] {
		n, err = n+partition.LastOffset, errors.Join(err, partition.Error)
	}
	return n, err
}

// has waits until the topic has all its partitions and this number of records.
func (k *kafkaTopic) has(want int64) {
	k.t.Helper()
	eventually(k.t, fmt.Sprintf("%s has %d records", k.name, want), func() bool { n, err := k.length(); return err == nil && n == want })
}

// setPassword sets a user's password for SCRAM-SHA-512, and deletes the user at the end of the
// test.
func (k *kafkaTopic) setPassword(user, password string) {
	k.t.Helper()
	const rounds = 4096
	salt := []byte(rand.Text())
	salted, err := pbkdf2.Key(sha512.New, password, salt, rounds, sha512.Size)
	check(k.t, err)
	alter := func(ctx context.Context, request kafka.AlterUserScramCredentialsRequest) error {
		answer, err := k.client().AlterUserScramCredentials(ctx, &request)
		if err != nil {
			return err
		}
		return answer.Results[0].Error
	}
	check(k.t, alter(k.t.Context(), kafka.AlterUserScramCredentialsRequest{Upsertions: []kafka.UserScramCredentialsUpsertion{
		{Name: user, Mechanism: kafka.ScramMechanismSha512, Iterations: rounds, Salt: salt, SaltedPassword: salted},
	}}))
	k.t.Cleanup(func() {
		_ = alter(context.Background(), kafka.AlterUserScramCredentialsRequest{Deletions: []kafka.UserScramCredentialsDeletion{{Name: user, Mechanism: kafka.ScramMechanismSha512}}})
	})
}

func (k *kafkaTopic) client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(strings.Split(k.brokers, ",")...), Timeout: patience()}
}

func (k *kafkaTopic) sink(from string) string {
	return "kafka://" + k.front + "/" + k.name + "?" + source(from)
}

// product reads the version from the servers' files, because Kafka doesn't tell it to clients.
func (k *kafkaTopic) product() string {
	version, err := os.ReadFile(filepath.Join(k.folder, "version"))
	if err != nil {
		return ""
	}
	return "Kafka " + strings.TrimSpace(string(version))
}

// whole checks on each node that all replicas of each partition are in sync.
func (k *kafkaTopic) whole() error {
	for node := range strings.SplitSeq(k.brokers, ",") {
		if err := k.isWholeAt(node); err != nil {
			return err
		}
	}
	return nil
}

func (k *kafkaTopic) isWholeAt(node string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	connection, err := kafka.DialContext(ctx, "tcp", node) // a Client would return cached metadata
	if err != nil {
		return err
	}
	defer connection.Close()
	partitions, err := connection.ReadPartitions(k.name)
	for _, partition := range partitions {
		if len(partition.Isr) < k.replicas {
			return fmt.Errorf("%s reports that partition %d has %d in-sync replicas of %d", node, partition.ID, len(partition.Isr), k.replicas)
		}
	}
	return err
}

// received reads each partition from its start to its end.
func (k *kafkaTopic) received() (all []arrival) {
	k.t.Helper()
	for partition := range k.partitions {
		all = append(all, k.partition(partition)...)
	}
	return all
}

func (k *kafkaTopic) partition(number int) (arrivals []arrival) {
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()
	offsets, err := k.client().ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{k.name: {kafka.LastOffsetOf(number)}}})
	check(k.t, err)
	end := offsets.Topics[k.name][0].LastOffset
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: strings.Split(k.brokers, ","), Topic: k.name, Partition: number, MaxWait: 100 * time.Millisecond})
	defer reader.Close()
	for end > 0 && reader.Offset() < end {
		m, err := reader.ReadMessage(ctx)
		check(k.t, err)
		arrivals = append(arrivals, readOrder(k.t, "kafka", kafkaHeader(m, "rowrelay-message-id"), kafkaHeader(m, "ce_source"), m.Value))
	}
	return arrivals
}

func kafkaHeader(m kafka.Message, name string) string {
	for _, header := range m.Headers {
		if header.Key == name {
			return string(header.Value)
		}
	}
	return ""
}

// rabbitQueue is a queue of one test, bound to its own exchange.
type rabbitQueue struct {
	t           *testing.T
	login, name string   // login is a URL up to its @
	hosts       []string // names with ports
	front       string   // the address of the hosts for relays
}

func newRabbitQueue(t *testing.T, address, kind string) *rabbitQueue {
	t.Helper()
	login, hosts, _ := strings.Cut(strings.TrimSuffix(address, "/"), "@")
	q := &rabbitQueue{t: t, login: login + "@", hosts: strings.Split(hosts, ","), front: hosts, name: fmt.Sprint("e2e-", time.Now().UnixNano())}
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

// dial connects to the first host that answers.
func (q *rabbitQueue) dial() *amqp.Connection {
	var last error
	for _, host := range q.hosts {
		connection, err := amqp.Dial(q.login + host + "/")
		if err == nil {
			return connection
		}
		last = err
	}
	q.t.Fatal(last)
	return nil
}

func (q *rabbitQueue) sink(from string) string {
	return q.login + q.front + "/?exchange=" + url.QueryEscape(q.name) + "&" + source(from)
}

func (q *rabbitQueue) product() string {
	connection := q.dial()
	defer connection.Close()
	return fmt.Sprint("RabbitMQ ", connection.Properties["version"])
}

// whole checks that each node knows the queue.
func (q *rabbitQueue) whole() error {
	for _, host := range q.hosts {
		if err := q.isAt(host); err != nil {
			return err
		}
	}
	return nil
}

func (q *rabbitQueue) isAt(host string) error {
	connection, err := amqp.Dial(q.login + host + "/")
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	_, err = channel.QueueDeclarePassive(q.name, true, false, false, false, nil)
	return err
}

// end is the id of a message that marks the end of the arrived messages.
const end = "the end"

// received takes all messages out of the queue.
func (q *rabbitQueue) received() (all []arrival) {
	q.t.Helper()
	q.on(func(channel *amqp.Channel) {
		check(q.t, channel.Publish(q.name, "", false, false, amqp.Publishing{MessageId: end}))
		deliveries, err := channel.Consume(q.name, "", true, true, false, false, nil)
		check(q.t, err)
		for d := range deliveries {
			if d.MessageId == end {
				return
			}
			from, _ := d.Headers["cloudEvents:source"].(string)
			all = append(all, readOrder(q.t, "rabbitmq", d.MessageId, from, d.Body))
		}
		q.t.Errorf("the queue ended after %d messages", len(all))
	})
	return all
}
