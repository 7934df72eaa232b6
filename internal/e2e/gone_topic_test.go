package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// TestTopicsDeletedWhileARelayIsDead kills a relay that has written 60 messages to each of four topics with an idempotent sink, and
// has settled none of them. Then one topic is deleted, and two are deleted and created again, one with fewer partitions and one with
// more. The next relay writes each message once to the existing topics. Only messages of the deleted topic wait until that topic
// exists again.
func TestTopicsDeletedWhileARelayIsDead(t *testing.T) {
	for name, test := range map[string]struct {
		settings string
		created  bool // whether the relay creates the deleted topic
	}{
		"the topic is awaited": {"unknown_topic: wait", false},
		"the topic is created": {"create_topics: true, create_partitions: 2, create_replicas: 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const each = 60
			s, brokers := newScene(t, "postgres15/pgx"), theMachine.asked(t, "ROWRELAY_TEST_KAFKA")
			s.unrecorded = "each message belongs to one of several topics"
			var topics []*kafkaTopic
			for range 4 {
				topic := newKafkaTopic(t, brokers, 1)
				topic.has(0)
				topics = append(topics, topic)
			}
			stays, goes, shrinks, grows := topics[0], topics[1], topics[2], topics[3]
			write := func(from, each int) {
				for n, topic := range topics { // each topic has its own customers, so that no key blocks messages of two topics
					_, err := s.DB.ExecContext(t.Context(), `INSERT INTO outbox (topic, message_key, payload_text)
						SELECT $1::text, 'customer-' || customer, json_build_object('customer', customer, 'number', number)
						FROM (SELECT $2::int + g % 20 AS customer, $3::int + g AS number FROM generate_series(0, $4::int - 1) AS g) AS orders`, topic.name, 20*n, from, each)
					check(t, err)
				}
			}
			count := func(query string, arguments ...any) (n int) {
				check(t, s.DB.QueryRowContext(t.Context(), query, arguments...).Scan(&n))
				return n
			}
			relay := func(application string) *process {
				return s.byFile(fmt.Sprintf("sources: {shop: {database: %q}}\nsinks: {log: {type: kafka, brokers: [%q], idempotent: true, %s}}\n",
					s.URL+"&application_name="+application, strings.Split(brokers, ",")[0], test.settings))
			}

			first := relay("killed")
			write(1, 1)
			eventually(t, "the relay has settled a message of each topic", func() bool { return count("SELECT count(*) FROM outbox_done") == 4 }) // until the first settlements, the relay sends only one batch
			hold, err := s.DB.BeginTx(t.Context(), nil)
			check(t, err)
			defer func() { _ = hold.Rollback() }()
			_, err = hold.ExecContext(t.Context(), "LOCK TABLE outbox_done IN SHARE MODE") // no further messages can be settled
			check(t, err)
			write(2, each)
			for _, topic := range topics {
				topic.has(1 + each)
			}
			first.kill()
			eventually(t, "the server has ended the sessions of the relay that was killed", func() bool { // otherwise the killed relay's settlement might still be written
				return count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'killed'") == 0
			})
			check(t, hold.Rollback())
			if n := count("SELECT count(*) FROM outbox"); n != 4*each {
				t.Fatalf("%d messages are not settled, want all %d", n, 4*each)
			}
			for _, topic := range []*kafkaTopic{goes, shrinks, grows} {
				topic.delete()
			}
			check(t, shrinks.create(1))
			shrinks.has(0)
			check(t, grows.create(2*kafkaPartitions))
			grows.has(0)

			write(1000, each)
			relay("next")
			eventually(t, "the messages of the existing topics are delivered", func() bool {
				return count("SELECT count(*) FROM outbox_done WHERE topic <> $1", goes.name) == 3*(1+2*each)
			})
			if test.created {
				goes.partitions = 2
			} else {
				waiting := count("SELECT count(*) FROM outbox_messages WHERE topic = $1 AND state <> $2 AND state <> $3 AND attempts = 0", goes.name, storage.StateDone, storage.StateError)
				if waiting != 2*each {
					t.Errorf("%d messages wait for the deleted topic and are not charged, want %d", waiting, 2*each)
				}
				check(t, goes.create(kafkaPartitions))
			}
			s.wantAll(4 * (1 + 2*each))
			if n := count("SELECT count(*) FROM outbox_done WHERE attempts > 1"); n > 0 {
				t.Errorf("%d messages were charged an attempt", n)
			}
			for _, topic := range topics {
				want := 2 * each // the settled message was deleted with its topic
				if topic == stays {
					want++
				}
				if v := tally(t, topic.received()); v.distinct != want || len(v.duplicates) > 0 {
					t.Errorf("%s has %d messages, want %d; %d are there twice", topic.name, v.distinct, want, len(v.duplicates))
				}
			}
			judge(t, stays.received())
		})
	}
}
