package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A topic has two replicas, min.insync.replicas=1 and unclean.leader.election.enable=true. One
// replica dies, the other one acknowledges messages alone and dies, too, and Kafka makes the first one
// the leader. Kafka then has lost what it acknowledged in between. The scene counts these messages,
// and checks that no others are lost, that none is parked, and that the remaining ones are in order.
func TestUncleanElectionLosesOnlyWhatOneReplicaHad(t *testing.T) {
	if !*long {
		t.Skip("only with -long, and with a cluster of three nodes: deploy/servers/servers up kafka3")
	}
	brokers := theMachine.asked(t, "ROWRELAY_TEST_KAFKA3")
	all := kafkaNodes(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA3_FOLDER"), 3)
	for _, idempotent := range []bool{false, true} {
		t.Run(fmt.Sprint("idempotent ", idempotent), func(t *testing.T) {
			topic := newUncleanTopic(t, brokers)
			var to broker = topic
			if idempotent {
				to = idempotentTopic{topic}
			}
			uncleanElection(newScene(t, "postgres15/pgx"), to, topic, all)
		})
	}
}

// newUncleanTopic creates a topic whose partitions have their replicas on the nodes 1 and 2. Node 3 is
// needed for the controllers' majority.
func newUncleanTopic(t *testing.T, brokers string) *kafkaTopic {
	t.Helper()
	k := &kafkaTopic{t: t, brokers: brokers, front: brokers, name: fmt.Sprint("e2e-", time.Now().UnixNano()), replicas: 2, partitions: kafkaPartitions}
	config := kafka.TopicConfig{Topic: k.name, NumPartitions: -1, ReplicationFactor: -1, ConfigEntries: []kafka.ConfigEntry{
		{ConfigName: "min.insync.replicas", ConfigValue: "1"}, {ConfigName: "unclean.leader.election.enable", ConfigValue: "true"},
	}}
	for partition := range kafkaPartitions {
		config.ReplicaAssignments = append(config.ReplicaAssignments, kafka.ReplicaAssignment{Partition: partition, Replicas: []int{1, 2}})
	}
	answer, err := k.client().CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	check(t, err)
	check(t, answer.Errors[k.name])
	return k
}

func uncleanElection(s *scene, to broker, topic *kafkaTopic, all nodes) {
	s.topology = "three brokers, unclean leader election"
	eventually(s.t, "both replicas are in sync", func() bool { return topic.whole() == nil })
	for i := range 3 {
		name := fmt.Sprint("/relay-", i)
		s.relay(name, to.sink(name), "--batch", fmt.Sprint(killedBatch), "--workers", "2")
	}
	written := s.placeOrdersUntil()
	done := func() int64 { return s.status().Counts[storage.StateDone] }
	delivers := func(what string, more int64) {
		s.t.Helper()
		before := done()
		eventually(s.t, what, func() bool { return done() > before+more })
	}
	delivers("messages are delivered", 500)
	fault(s.t, proof.BrokerKilled, "")
	all.kill(2)
	alone := s.now()
	delivers("the first replica acknowledges messages alone", 1000)
	fault(s.t, proof.BrokerKilled, "")
	all.kill(1)
	ended := s.now()
	all.start(2)
	delivers("the second replica is the leader", 500)
	all.start(1)
	eventually(s.t, "both replicas are in sync", func() bool { return topic.whole() == nil })
	written()
	s.settled()

	arrivals := to.received()
	v := judge(s.t, arrivals)
	arrived := map[string]bool{}
	for _, a := range arrivals {
		arrived[a.id] = true
	}
	rows, err := s.DB.QueryContext(context.Background(), "SELECT message_id, finished_at FROM outbox_done")
	check(s.t, err)
	defer rows.Close()
	lost, others := 0, 0
	for rows.Next() {
		var (
			id string
			at time.Time
		)
		check(s.t, rows.Scan(&id, &at))
		switch {
		case arrived[id]:
		case at.Before(alone.Add(-10*time.Second)) || at.After(ended.Add(10*time.Second)): // an answer is marked later
			others++
		default:
			lost++
		}
	}
	check(s.t, rows.Err())
	s.t.Logf("of %d messages the brokers lost %d that one replica had acknowledged in %v; %d duplicates", s.committed(), lost, ended.Sub(alone).Round(time.Millisecond), len(v.duplicates))
	if others > 0 {
		s.t.Errorf("%d messages are lost that both replicas had acknowledged", others)
	}
	if parked := s.status().Counts[storage.StateError]; parked > 0 {
		s.t.Errorf("%d messages were parked", parked)
	}
}

// now returns the time of the database's clock.
func (s *scene) now() (now time.Time) {
	s.t.Helper()
	check(s.t, s.DB.QueryRowContext(s.t.Context(), "SELECT clock_timestamp()").Scan(&now))
	return now
}
