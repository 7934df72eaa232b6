package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox"
)

// batch is what goes into one transaction.
type batch struct {
	messages []outbox.Message
	numbers  []int // of their lines
	bytes    int
}

func (b *batch) add(m outbox.Message, number int) {
	b.messages = append(b.messages, m)
	b.numbers = append(b.numbers, number)
	b.bytes += len(m.Payload)
}

// writeAll writes the input's messages batch by batch.
func (e *enqueue) writeAll(ctx context.Context, lines *lines) error {
	for {
		next, err := e.read(ctx, lines)
		if err != nil {
			return err
		}
		if len(next.messages) == 0 {
			return nil
		}
		if err := e.write(ctx, next); err != nil {
			return err
		}
		e.written += len(next.messages)
	}
}

func (e *enqueue) read(ctx context.Context, lines *lines) (batch, error) {
	var next batch
	for len(next.messages) < e.batch && next.bytes < maxBatchBytes {
		line, ok, err := lines.next()
		if err != nil {
			return next, err
		}
		if err := ctx.Err(); err != nil || !ok {
			return next, err
		}
		message, err := parseLine(line)
		if err != nil {
			return next, fmt.Errorf("line %d %w", lines.number, err)
		}
		next.add(message, lines.number)
	}
	return next, nil
}

// write writes a batch in a transaction. The Writer checks all of it first.
func (e *enqueue) write(ctx context.Context, b batch) error {
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction for lines %d to %d: %w", b.numbers[0], b.numbers[len(b.numbers)-1], err)
	}
	if err := e.writer.Write(ctx, tx, b.messages...); err != nil {
		return errors.Join(b.located(err), rolledBack(tx))
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit lines %d to %d: %w", b.numbers[0], b.numbers[len(b.numbers)-1], err)
	}
	return nil
}

func rolledBack(tx *sql.Tx) error {
	if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// located tells the line of a message that breaks a rule, in the words of the
// line.
func (b batch) located(err error) error {
	var broken *outbox.ValidationError
	if !errors.As(err, &broken) {
		return fmt.Errorf("write lines %d to %d: %w", b.numbers[0], b.numbers[len(b.numbers)-1], err)
	}
	name := map[string]string{
		"ID": "message_id", "Topic": "topic", "Key": "key", "Payload": "payload", "Headers": "headers", "AvailableAt": "available_at",
	}[broken.Field]
	return fmt.Errorf("line %d: %s %s", b.numbers[broken.Index], name, broken.Rule)
}
