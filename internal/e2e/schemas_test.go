package e2e

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

// schema is an outbox table that belongs to another system, with the way in which that system writes
// to it. Its SQL is in internal/adopt/testdata/schemas, with the sources.
type schema struct {
	name  string
	table string            // the table's name on PostgreSQL, as it is given to adopt
	other map[string]string // its name on other databases, if it differs

	rights   string   // the writers' rights on the table
	also     []string // further tables on which the writers have these rights
	sequence string   // a sequence that the writers use

	// write inserts a row for each order, with the statements and values of the system's library, and
	// returns the messages that the rows become.
	write func(w *writing, orders []order) []message

	// publish does what the system's own relay does with rows that it has sent. It is nil if that relay
	// changes nothing in the table.
	publish func(w *writing, sent []message)

	mapping func(kind string) mapping // the flags of adopt where its proposal lacks something or is wrong
	waiting string                    // the condition of rows that the system's own relay would send; empty: nothing shows it

	targets []string // the targets in addition to PostgreSQL

	distinct bool // a transaction has one row per key, because the table gives its rows no order
	onlyNew  bool // the other system sends the rows that exist before the adoption
	repeats  bool // the application repeats transactions that MySQL or MariaDB ends as victims of a deadlock
	deletes  bool // writers delete their rows in the transaction that inserts them
	noView   bool // a view can't take the table's place, because writers read or change their rows
}

// mapping has the expressions of adopt's flags.
type mapping struct {
	topic, key, payload, id, headers, waiting, order string
	header, published                                []string
}

func (m mapping) arguments() (all []string) {
	add := func(flag string, values ...string) {
		for _, value := range values {
			if value != "" {
				all = append(all, "--"+flag, value)
			}
		}
	}
	add("topic", m.topic)
	add("key", m.key)
	add("payload", m.payload)
	add("id", m.id)
	add("headers", m.headers)
	add("header", m.header...)
	add("waiting", m.waiting)
	add("order", m.order)
	add("published", m.published...)
	return all
}

// member returns the text of a member of a JSON text, by a path such as a.b.
func member(kind, text, path string) string {
	if kind == testdb.Postgres {
		return "(" + text + ")::json #>> '{" + strings.ReplaceAll(path, ".", ",") + "}'"
	}
	path = `$."` + strings.ReplaceAll(path, ".", `"."`) + `"`
	if kind == testdb.SQLite {
		return "json_extract(" + text + ", '" + path + "')"
	}
	return "json_unquote(json_extract(" + text + ", '" + path + "'))"
}

// on returns the table's name on a database.
func (s schema) on(kind string) string {
	if name, ok := s.other[kind]; ok {
		return name
	}
	if name, ok := s.other[testdb.MySQL]; ok && kind == testdb.MariaDB {
		return name
	}
	return s.table
}

// order is what a row is about. The numbers of a customer increase with the writer's transactions.
type order struct{ customer, number int }

// mark is in the payload of each row, whatever its format.
func (o order) mark() string { return fmt.Sprintf("order-%d-%d", o.customer, o.number) }

func (o order) json() string {
	return fmt.Sprintf(`{"orderId":"%s","note":"it's \"12\" €, C:\\new","total":29.90}`, o.mark())
}

var marks = regexp.MustCompile(`order-(\d+)-(\d+)`)

// orderOf finds the order in a payload.
func orderOf(payload string) (order, bool) {
	found := marks.FindStringSubmatch(payload)
	if found == nil {
		return order{}, false
	}
	customer, _ := strconv.Atoi(found[1])
	number, _ := strconv.Atoi(found[2])
	return order{customer, number}, true
}

// message is the message of a row.
type message struct {
	order
	row                 string // the value of the row's primary key
	id                  string // empty: the outbox has generated it
	topic, key, payload string
	headers             map[string]string
}

// writing is a transaction of a writer.
type writing struct {
	*application
	ctx context.Context
	tx  *sql.Tx
	err error // the first error; later statements are not executed
}

// application is one writer process.
type application struct {
	kind  string // the kind of the database
	clock time.Time
	count int64
	last  map[int]int // the numbers of the last committed orders, by customer
}

// now returns a time of the application's own clock, which is a second later at each call, so that no two
// transactions have the same time.
func (a *application) now() time.Time {
	a.clock = a.clock.Add(time.Second)
	return a.clock
}

// unique returns a number that increases, and is unique among applications with different clocks.
func (a *application) unique() int64 {
	a.count++
	return a.clock.UnixMilli()<<20 + a.count
}

// sql puts a statement, with ? and names in double quotes, into the form of the database.
func (a *application) sql(statement string) string {
	if a.kind != testdb.Postgres {
		if a.kind != testdb.SQLite {
			statement = strings.ReplaceAll(statement, `"`, "`")
		}
		return statement
	}
	var b strings.Builder
	number := 0
	for _, c := range statement {
		if c != '?' {
			b.WriteRune(c)
			continue
		}
		number++
		fmt.Fprintf(&b, "$%d", number)
	}
	return b.String()
}

func (w *writing) exec(statement string, arguments ...any) (rows int64) {
	if w.err != nil {
		return 0
	}
	var result sql.Result
	if result, w.err = w.tx.ExecContext(w.ctx, w.sql(statement), arguments...); w.err == nil {
		rows, w.err = result.RowsAffected()
	}
	return rows
}

// one executes a statement that must change exactly one row. ORMs check this.
func (w *writing) one(statement string, arguments ...any) {
	if rows := w.exec(statement, arguments...); w.err == nil && rows != 1 {
		w.err = fmt.Errorf("%q changed %d rows, not 1", statement, rows)
	}
}

func (w *writing) get(into any, statement string, arguments ...any) {
	if w.err == nil {
		w.err = w.tx.QueryRowContext(w.ctx, w.sql(statement), arguments...).Scan(into)
	}
}

func newUUID() string { return outbox.NewID() }

func values(count int) string { return "(?" + strings.Repeat(", ?", count-1) + ")" }

func toJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func schemas() []schema {
	return []schema{debeziumKeeping, debeziumRemoving, massTransit, modulith, eventuate, axon, capPublished, laravel, namastack, handmade, oracleStyle}
}

// Debezium's Quarkus extension, which writes with Hibernate. Hibernate checks how many rows its DELETE has deleted.
var debeziumRemoving = schema{
	name: "debezium", table: "outboxevent", other: map[string]string{testdb.MySQL: "OutboxEvent"}, rights: "SELECT, INSERT, DELETE",
	targets: []string{"mysql/gosql", "mariadb1011/gosql"},
	write: func(w *writing, orders []order) []message {
		messages := insertDebezium(w, orders)
		for _, m := range messages {
			w.one("delete from "+w.debezium()+" where id=?", w.binary(m.row))
		}
		return messages
	},
	onlyNew: true, deletes: true, noView: true,
}

// Debezium's Quarkus extension with remove-after-insert=false (the default is true).
var debeziumKeeping = schema{
	name: "debezium", table: "outboxevent", other: map[string]string{testdb.MySQL: "OutboxEvent"}, rights: "INSERT",
	targets: []string{"mysql/gosql", "mariadb1011/gosql"},
	write:   insertDebezium,
	onlyNew: true,
}

// binary returns a UUID as Hibernate writes it: as bytes on MySQL and MariaDB.
func (w *writing) binary(id string) any {
	if w.kind == testdb.Postgres {
		return id
	}
	bytes, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	w.err = errors.Join(w.err, err)
	return bytes
}

func (w *writing) debezium() string {
	if w.kind == testdb.Postgres {
		return "OutboxEvent"
	}
	return `"OutboxEvent"`
}

func insertDebezium(w *writing, orders []order) (messages []message) {
	for _, o := range orders {
		m := message{order: o, id: newUUID(), topic: "outbox.event.Order", key: strconv.Itoa(o.customer), payload: o.json()}
		m.row, m.headers = m.id, map[string]string{"id": m.id, "eventType": "OrderCreated"}
		w.one("insert into "+w.debezium()+" (aggregatetype, aggregateid, type, timestamp, payload, id) values "+values(6),
			"Order", m.key, "OrderCreated", w.now(), m.payload, w.binary(m.id))
		messages = append(messages, m)
	}
	return messages
}

// EF Core inserts the columns in the order of their names, a statement for each row, and reads the identity.
var massTransit = schema{
	name: "masstransit", table: "OutboxMessage",
	targets: []string{"mysql/gosql", "mariadb1011/gosql", "sqlite/modernc"},
	rights:  "SELECT, INSERT, UPDATE, DELETE", also: []string{"OutboxState", "InboxState"},
	write: func(w *writing, orders []order) (messages []message) {
		batch, sequence := newUUID(), int64(0)
		w.one(`INSERT INTO "OutboxState" ("OutboxId", "Created", "Delivered", "LastSequenceNumber", "LockId") VALUES `+values(5), batch, w.now(), nil, nil, newUUID())
		for _, o := range orders {
			m := message{
				order: o, id: newUUID(), topic: "rabbitmq://localhost/Sample.Contracts:OrderSubmitted", key: fmt.Sprintf("00000000-0000-4000-8000-%012d", o.customer),
			}
			conversation := newUUID()
			m.headers = map[string]string{
				"tenant": "eu-1", "content-type": "application/vnd.masstransit+json", "message-type": "urn:message:Sample.Contracts:OrderSubmitted",
				"conversation-id": conversation, "correlation-id": m.key,
			}
			m.payload = `{"messageType": ["urn:message:Sample.Contracts:OrderSubmitted"], "message": ` + o.json() + `}`
			before := sequence
			insert := `INSERT INTO "OutboxMessage" ("Body", "ContentType", "ConversationId", "CorrelationId", "DestinationAddress", "EnqueueTime", "ExpirationTime",
				"FaultAddress", "Headers", "InboxConsumerId", "InboxMessageId", "InitiatorId", "MessageId", "MessageType", "OutboxId", "Properties", "RequestId",
				"ResponseAddress", "SentTime", "SourceAddress") VALUES ` + values(20)
			arguments := []any{
				m.payload, "application/vnd.masstransit+json", conversation, m.key, m.topic, nil, nil, nil, `{"tenant": "eu-1"}`, nil, nil, nil, m.id,
				"urn:message:Sample.Contracts:OrderSubmitted", batch, "{}", nil, nil, w.now(), "rabbitmq://localhost/shop_bus",
			}
			if w.kind == testdb.MySQL {
				w.one(insert, arguments...)
				w.get(&sequence, `SELECT "SequenceNumber" FROM "OutboxMessage" WHERE ROW_COUNT() = 1 AND "SequenceNumber" = LAST_INSERT_ID()`)
			} else {
				w.get(&sequence, insert+` RETURNING "SequenceNumber"`, arguments...)
			}
			if w.err == nil && sequence <= before {
				w.err = fmt.Errorf("the sequence number %d is not higher than %d", sequence, before)
			}
			m.row = strconv.FormatInt(sequence, 10)
			messages = append(messages, m)
		}
		return messages
	},
	publish: func(w *writing, sent []message) {
		for _, m := range sent {
			w.one(`DELETE FROM "OutboxMessage" WHERE "SequenceNumber" = ?`, m.row)
		}
	},
	mapping: func(string) mapping { return mapping{key: "CorrelationId", headers: "Headers"} },
	waiting: "true",
	repeats: true, // LOCK TABLES also locks OutboxState, to which OutboxMessage refers and into which each transaction inserts first
}

const listener = "com.example.inventory.Externalizer.on(com.example.orders.OrderCompleted)"

var modulith = schema{
	name: "modulith", table: "event_publication", other: map[string]string{testdb.MySQL: "EVENT_PUBLICATION"}, rights: "SELECT, INSERT, UPDATE",
	targets: []string{"mysql/gosql", "mariadb1011/gosql"},
	write: func(w *writing, orders []order) (messages []message) {
		for _, o := range orders {
			m := message{order: o, id: newUUID(), topic: "com.example.orders.OrderCompleted", key: o.customerKey(), payload: toJSON(map[string]string{"customer": o.customerKey(), "order": o.mark()})}
			m.row, m.headers = m.id, map[string]string{"listener-id": listener}
			at := w.now()
			w.one("INSERT INTO "+w.modulith()+" (ID, EVENT_TYPE, LISTENER_ID, PUBLICATION_DATE, SERIALIZED_EVENT, STATUS, COMPLETION_ATTEMPTS, LAST_RESUBMISSION_DATE) VALUES "+values(8),
				m.id, m.topic, listener, at, m.payload, "PUBLISHED", 1, at)
			messages = append(messages, m)
		}
		return messages
	},
	publish: func(w *writing, sent []message) {
		for _, m := range sent {
			w.one("UPDATE "+w.modulith()+" SET STATUS = 'COMPLETED', COMPLETION_DATE = ? WHERE LISTENER_ID = ? AND COMPLETION_DATE IS NULL AND SERIALIZED_EVENT = ?",
				w.now(), listener, m.payload)
		}
	},
	mapping: func(kind string) mapping { return mapping{key: member(kind, "serialized_event", "customer")} },
	waiting: "completion_date IS NULL",
}

func (o order) customerKey() string { return fmt.Sprint("customer-", o.customer) }

func (w *writing) modulith() string { return "EVENT_PUBLICATION" }

// On PostgreSQL the application generates the ids, and on MySQL the database does.
var eventuate = schema{
	name: "eventuate", table: "eventuate.message", other: map[string]string{testdb.MySQL: "message"}, rights: "INSERT",
	targets: []string{"mysql/gosql"},
	write: func(w *writing, orders []order) (messages []message) {
		for _, o := range orders {
			m := message{order: o, topic: "com.example.orders.Order", key: o.customerKey(), payload: o.json()}
			m.headers = map[string]string{"PARTITION_ID": m.key, "event-type": "com.example.orders.OrderCreated", "event-aggregate-type": m.topic, "event-aggregate-id": m.key, "DESTINATION": m.topic}
			if w.kind == testdb.Postgres {
				m.row = fmt.Sprintf("%016x-%016x", w.now().UnixMilli(), w.unique())
				m.headers["ID"] = m.row
				w.one("insert into eventuate.message(id, destination, headers, payload, creation_time, published, message_partition) "+
					"values(?, ?, ?::text, ?::text, (ROUND(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) * 1000)), ?, ?)", m.row, m.topic, toJSON(m.headers), m.payload, 0, nil)
			} else {
				w.one("insert into message(id, destination, headers, payload, creation_time, published, message_partition) "+
					"values('', ?, ?, ?, ROUND(UNIX_TIMESTAMP(CURTIME(4)) * 1000), ?, ?)", m.topic, toJSON(m.headers), m.payload, 0, nil)
				w.get(&m.row, "SELECT LAST_INSERT_ID()")
			}
			messages = append(messages, m)
		}
		return messages
	},
	waiting: "published = 0",
}

// A batch of a prepared statement, whose payload is bytes.
var axon = schema{
	name: "axon", table: "domainevententry", other: map[string]string{testdb.MySQL: "DomainEventEntry"}, rights: "SELECT, INSERT", sequence: "domainevententry_globalindex_seq",
	targets: []string{"mysql/gosql"},
	write: func(w *writing, orders []order) (messages []message) {
		if w.err != nil {
			return nil
		}
		insert, err := w.tx.PrepareContext(w.ctx, w.sql("INSERT INTO DomainEventEntry (eventIdentifier, aggregateIdentifier, sequenceNumber, type, timeStamp, payloadType, "+
			"payloadRevision, payload, metaData) VALUES (?,?,?,?,?,?,?,?,?)"))
		if w.err = err; err != nil {
			return nil
		}
		defer insert.Close()
		for _, o := range orders {
			m := message{order: o, id: newUUID(), topic: "com.example.orders.OrderPlaced", key: o.customerKey(), payload: o.json(), headers: map[string]string{"aggregate-type": "Order", "sequence-number": strconv.Itoa(o.number)}}
			m.row = m.id
			if _, w.err = insert.ExecContext(w.ctx, m.id, m.key, o.number, "Order", w.now().Format(time.RFC3339Nano), m.topic, nil, []byte(m.payload), []byte(`{"traceId":"7"}`)); w.err != nil {
				return nil
			}
			messages = append(messages, m)
		}
		return messages
	},
	noView: true,
	// The application's own processor had read up to here.
	mapping: func(string) mapping { return mapping{waiting: "globalIndex > 0"} },
}

var capPublished = schema{
	name: "cap", table: "cap.published", rights: "SELECT, INSERT, UPDATE, DELETE",
	targets: []string{"mysql/gosql", "mariadb1011/gosql"},
	write: func(w *writing, orders []order) (messages []message) {
		for _, o := range orders {
			m := message{order: o, topic: "order.created", key: o.customerKey(), row: strconv.FormatInt(w.unique(), 10), payload: o.json()}
			m.headers = map[string]string{"cap-msg-id": m.row, "cap-msg-name": m.topic, "cap-kafka-key": m.key, "cap-msg-type": "OrderCreated"}
			content := strings.Replace(toJSON(map[string]any{"Headers": m.headers, "Value": json.RawMessage(m.payload)}), `"Headers":{`, `"Headers":{"cap-callback-name":null,`, 1)
			w.one("INSERT INTO "+w.cap()+` ("Id","Version","Name","Content","Retries","Added","ExpiresAt","StatusName")VALUES(?,'v1',?,?,?,?,?,?);`,
				m.row, m.topic, content, 0, w.now(), nil, "Scheduled")
			messages = append(messages, m)
		}
		return messages
	},
	publish: func(w *writing, sent []message) {
		for _, m := range sent {
			w.one("UPDATE "+w.cap()+` SET "Retries"=?,"ExpiresAt"=?,"StatusName"=? WHERE "Id"=?`, 0, w.now(), "Succeeded", m.row)
		}
	},
	mapping: func(kind string) mapping {
		if kind == testdb.Postgres {
			return mapping{key: `"Content"::json #>> '{Headers,cap-kafka-key}'`}
		}
		return mapping{key: member(kind, "Content", "Headers.cap-kafka-key")}
	},
	waiting: `"StatusName" = 'Scheduled'`,
}

func (w *writing) cap() string {
	if w.kind == testdb.Postgres {
		return `"cap"."published"`
	}
	return `"cap.published"`
}

// Laravel's query builder sorts the columns of an INSERT with several rows.
var laravel = schema{
	name: "laravel", table: "outbox_messages", rights: "INSERT",
	targets: []string{"mysql/gosql", "mariadb1011/gosql", "sqlite/modernc"},
	write: func(w *writing, orders []order) (messages []message) {
		const layout = "2006-01-02 15:04:05"
		var arguments []any
		at, transaction, correlation := w.now().Format(layout), newUUID(), newUUID()
		for i, o := range orders {
			bytes := fmt.Sprintf(`O:22:"App\Events\OrderShipped":1:{s:5:"order";s:%d:"%s";}`, len(o.mark()), o.mark())
			hash := fmt.Sprintf("%x", sha256.Sum256([]byte(bytes)))
			m := message{order: o, id: newUUID(), topic: `App\Events\OrderShipped`, key: o.customerKey(), payload: hash + ":" + bytes, headers: map[string]string{"type": "event", "correlation-id": correlation}}
			m.row = m.id
			arguments = append(arguments, m.key, `App\Models\Order`, 0, at, correlation, at, m.id, m.topic, m.payload, hash, i, "pending", transaction, "event", at)
			messages = append(messages, m)
		}
		rows := w.exec(`insert into "outbox_messages" ("aggregate_id", "aggregate_type", "attempts", "available_at", "correlation_id", "created_at", "id", "message_type", "payload", `+
			`"payload_hash", "sequence_number", "status", "transaction_id", "type", "updated_at") values `+values(15)+strings.Repeat(", "+values(15), len(orders)-1), arguments...)
		if w.err == nil && rows != int64(len(orders)) {
			w.err = fmt.Errorf("%d rows of %d were inserted", rows, len(orders))
		}
		return messages
	},
	publish: func(w *writing, sent []message) {
		for _, m := range sent {
			w.one(`update "outbox_messages" set "status" = ?, "processed_at" = ?, "error" = ? where "id" = ?`, "completed", w.now().Format("2006-01-02 15:04:05"), nil, m.row)
		}
	},

	waiting: "status = 'pending'",
	mapping: func(kind string) mapping {
		if kind == testdb.SQLite { // SQLite has no column type for UUIDs
			return mapping{id: "id"}
		}
		return mapping{}
	},
}

// save tries an UPDATE first.
var namastack = schema{
	name: "namastack", table: "outbox_record", rights: "SELECT, INSERT, UPDATE, DELETE",
	targets: []string{"mysql/gosql", "mariadb1011/gosql"},
	write: func(w *writing, orders []order) (messages []message) {
		for _, o := range orders {
			m := message{order: o, id: newUUID(), topic: "com.example.OrderCreatedEvent", key: o.customerKey(), payload: o.json()}
			m.row = m.id
			var context any
			if o.number%2 == 0 {
				m.headers = map[string]string{"tenant": "eu-1"}
				context = toJSON(m.headers)
			}
			at := w.now()
			if rows := w.exec("UPDATE outbox_record SET status = ?, record_key = ?, record_type = ?, payload = ?, context = ?, partition_no = ?, created_at = ?, "+
				"completed_at = ?, failure_count = ?, failure_reason = ?, next_retry_at = ?, handler_id = ? WHERE id = ?",
				"NEW", m.key, m.topic, m.payload, context, 7, at, nil, 0, nil, at, "handler", m.id); w.err == nil && rows > 0 {
				w.err = fmt.Errorf("a new record exists")
			}
			w.one("INSERT INTO outbox_record (id, status, record_key, record_type, payload, context, partition_no, created_at, completed_at, failure_count, failure_reason, "+
				"next_retry_at, handler_id) VALUES "+values(13), m.id, "NEW", m.key, m.topic, m.payload, context, 7, at, nil, 0, nil, at, "handler")
			messages = append(messages, m)
		}
		return messages
	},
	publish: func(w *writing, sent []message) {
		for _, m := range sent {
			w.one("UPDATE outbox_record SET status = ?, completed_at = ? WHERE id = ?", "COMPLETED", w.now(), m.row)
		}
	},
	mapping: func(string) mapping { return mapping{id: "id", headers: "context"} },
	waiting: "status = 'NEW'",
	repeats: true, // an UPDATE of a row that does not exist, and then its INSERT
}

// Columns that are left out or DEFAULT, the generated id by RETURNING, and ON CONFLICT for a job that may run twice.
var handmade = schema{
	name: "handmade", table: "outbox", rights: "SELECT, INSERT",
	targets: []string{"mysql/gosql", "mariadb1011/gosql", "sqlite/modernc"},
	write: func(w *writing, orders []order) (messages []message) {
		for _, o := range orders {
			m := message{order: o, topic: "order.created", key: o.customerKey(), payload: o.json()}
			switch {
			case w.kind == testdb.MySQL:
				m.row = newUUID()
				w.one("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES "+values(5), m.row, "order", m.key, "created", m.payload)
			case w.kind == testdb.SQLite:
				m.row = newUUID()
				w.one("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES "+values(5), m.row, "order", m.key, "created", m.payload)
			default:
				w.get(&m.row, "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, created_at) VALUES (DEFAULT, ?, ?, ?, ?, DEFAULT) RETURNING id",
					"order", m.key, "created", m.payload)
			}
			m.id = m.row
			messages = append(messages, m)
		}
		return messages
	},
	publish: func(w *writing, sent []message) {
		for _, m := range sent {
			w.one("UPDATE outbox SET published_at = ? WHERE id = ?", w.now(), m.row)
		}
	},
	distinct: true,
	mapping: func(kind string) mapping {
		if kind == testdb.SQLite {
			return mapping{topic: "aggregate_type || '.' || event_type", id: "id", order: "created_at, rowid"}
		}
		return mapping{topic: "concat(aggregate_type, '.', event_type)"}
	},
	waiting: "published_at IS NULL",
}

var oracleStyle = schema{
	name: "oracle", table: "OUTGOING_EVENT", rights: "INSERT", sequence: "SEQ_OUTGOING_EVENT_ID",
	targets: []string{"mariadb1011/gosql"},
	write: func(w *writing, orders []order) (messages []message) {
		for _, o := range orders {
			m := message{order: o, topic: "ORDER_FEED", key: strconv.Itoa(o.customer), payload: o.json(), headers: map[string]string{"type": "ORDER_CREATED"}}
			next := `nextval('"SEQ_OUTGOING_EVENT_ID"')`
			if w.kind == testdb.MariaDB {
				next = "nextval(SEQ_OUTGOING_EVENT_ID)"
			}
			w.one(`INSERT INTO "OUTGOING_EVENT" ("ID", "SEQUENCE_NUMBER", "OUTPUT_FEED", "TYPE", "PAYLOAD", "ACTOR_ID") VALUES (`+next+`, ?, ?, ?, ?, ?)`,
				w.unique(), m.topic, "ORDER_CREATED", m.payload, o.customer)
			messages = append(messages, m)
		}
		return messages
	},
	publish: func(w *writing, sent []message) {
		for _, m := range sent {
			w.one(`UPDATE "OUTGOING_EVENT" SET "STATUS" = 'SENT', "CHANGED_BY" = 'SENDER', "CHANGED_AT" = ? WHERE "PAYLOAD" = ?`, w.now(), m.payload)
		}
	},
	mapping: func(string) mapping {
		return mapping{topic: "OUTPUT_FEED", key: "ACTOR_ID", header: []string{"type=TYPE"}}
	},
	waiting: `"STATUS" = 'NEW'`,
}

// secret is the password of the users that a scene creates.
var secret = strings.ToLower(rand.Text())
