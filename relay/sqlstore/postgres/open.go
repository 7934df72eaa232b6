package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// errMisread means that the driver read a value that differs from the selected one.
var errMisread = errors.New("the driver read a test value as another value")

// CheckPool implements [backend.PoolChecker]. It selects a time and a byte string, because pgx receives values as text in
// its modes exec and simple_protocol, and then can read times only in the ISO style and bytes only as hex. It checks
// client_encoding, because the server converts texts to this encoding, but pgx always treats texts as UTF-8. Also, a row
// with a character that client_encoding lacks would make a whole page unreadable.
func (p *Postgres) CheckPool(ctx context.Context) error {
	var style, output, client, server string
	const settings = "SELECT current_setting('datestyle'), current_setting('bytea_output'), current_setting('client_encoding'), current_setting('server_encoding')"
	if err := p.db.QueryRowContext(ctx, settings).Scan(&style, &output, &client, &server); err != nil {
		return err
	}
	if unconverted := client == "SQL_ASCII" && (server == "SQL_ASCII" || server == "UTF8"); client != "UTF8" && !unconverted {
		return fmt.Errorf("client_encoding of this session is %s, which changes characters of keys and topics: set it to UTF8, by client_encoding=UTF8 in the URL or by ALTER ROLE … SET client_encoding = 'UTF8'", client)
	}
	var at time.Time
	if err := p.db.QueryRowContext(ctx, "SELECT timestamptz '2006-01-02 15:04:05.678+00'").Scan(&at); err != nil || at.UnixMilli() != 1136214245678 {
		return fmt.Errorf("the driver can't read times, because DateStyle of this session is %s: set it to ISO, by datestyle=ISO in the URL or by ALTER ROLE … SET datestyle = 'ISO': %w", style, cmp.Or(err, errMisread))
	}
	var payload []byte
	if err := p.db.QueryRowContext(ctx, "SELECT decode('00ff', 'hex')").Scan(&payload); err != nil || !bytes.Equal(payload, []byte{0, 255}) {
		return fmt.Errorf("the driver can't read bytes, because bytea_output of this session is %s: set it to hex, by bytea_output=hex in the URL or by ALTER ROLE … SET bytea_output = 'hex': %w", output, cmp.Or(err, errMisread))
	}
	return nil
}
