// Kafka consumes the topic that the kafka sink writes to. With an inbox, each message
// takes effect once. The program commits the offset after the effect.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	received, err := inbox.New(dialect.Postgres(), "billing", inbox.Options{})
	check(err)
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: strings.Split(os.Getenv("KAFKA"), ","), Topic: os.Getenv("TOPIC"), GroupID: "billing", StartOffset: kafka.FirstOffset,
	})
	defer reader.Close()
	for {
		record, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		check(err)
		first, err := received.Do(ctx, db, messageID(record), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO invoices (order_key, body) VALUES ($1, $2)", string(record.Key), record.Value)
			return err
		})
		check(err) // the offset isn't committed, so the record is read again after a restart
		check(reader.CommitMessages(ctx, record))
		fmt.Printf("%s first=%t\n", record.Key, first)
	}
}

func messageID(record kafka.Message) string {
	for _, header := range record.Headers {
		if header.Key == "rowrelay-message-id" {
			return string(header.Value)
		}
	}
	return "" // the inbox refuses an empty id
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
