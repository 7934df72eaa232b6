package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/databases"
)

// Database is the URL of a database. It is printed and logged without its password. The zero value is no database.
type Database struct {
	kind string
	url  string // for a database in a file: the file's path

	from     origin // the file or command from which the URL is read; zero if the URL is in the configuration
	password origin // the file or command from which the password is read; zero if the password is in the URL or the configuration
}

// Current reads the URL and the password again from their files or commands, and returns the database with this login. If one of
// them can't be read, Current uses its previous value, and the error has the reason. If the new URL names another database, Current
// also uses the previous URL, because a change of the database needs a restart of the relay (see Moved). Current waits for a command
// only if the command's last secret is too old.
func (d Database) Current(ctx context.Context) (Database, error) { return d.read(ctx, inTime) }

// Refused is like Current, but runs the commands again, because the server has refused the login that Current returned.
// It doesn't run a command that it ran less than five seconds ago.
func (d Database) Refused(ctx context.Context) (Database, error) { return d.read(ctx, refused) }

// Renewable reports whether the URL or the password comes from a file or a command.
func (d Database) Renewable() bool { return d.from != (origin{}) || d.password != (origin{}) }

// Settings returns the settings that name the files or commands from which the URL and the password are read, such as
// "sources.shop.database_file". It returns "" if neither comes from a file or a command.
func (d Database) Settings() string {
	var names []string
	for _, from := range []origin{d.from, d.password} {
		if from != (origin{}) {
			names = append(names, from.setting())
		}
	}
	return strings.Join(names, " and ")
}

// Moved reports whether the URL that the file or the command has now differs from this database's URL in more than the login.
func (d Database) Moved() bool {
	now, err := d.reread(context.Background(), lastKnown)
	return err == nil && now.withoutLogin() != d.withoutLogin()
}

func (d Database) read(ctx context.Context, how urgency) (Database, error) {
	now, err := d.reread(ctx, how)
	if err != nil || now.withoutLogin() != d.withoutLogin() {
		now = d
	}
	if d.password == (origin{}) {
		return now, err
	}
	secret, passwordErr := d.password.text(ctx, how)
	if passwordErr != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", d.password.setting(), passwordErr))
	}
	if secret == "" {
		return now, err
	}
	if changed, wrong := now.withPassword(secret); wrong == nil {
		now = changed
	}
	return now, err
}

// reread returns the database with the URL that its file or command has now. If the URL comes from neither, it returns d.
func (d Database) reread(ctx context.Context, how urgency) (Database, error) {
	if d.from == (origin{}) {
		return d, nil
	}
	text, err := d.from.text(ctx, how)
	now := d
	if text != "" {
		var wrong error
		if now, wrong = ParseDatabase(text); wrong != nil {
			err = errors.Join(err, wrong)
		}
	}
	now.from, now.password = d.from, d.password
	if err != nil {
		err = fmt.Errorf("%s: %w", d.from.setting(), err)
	}
	return now, err
}

// withPassword returns the database with the password in its URL. The error completes the sentence "the password …".
func (d Database) withPassword(secret string) (Database, error) {
	parsed, err := url.Parse(d.url)
	if err != nil || d.IsFile() || parsed.User.Username() == "" {
		return d, errors.New("needs a database with a user in its URL, such as postgres://user@host/name")
	}
	parsed.User = url.UserPassword(parsed.User.Username(), secret)
	d.url = parsed.String()
	return d, nil
}

func (d Database) withoutLogin() string {
	parsed, err := url.Parse(d.url)
	if err != nil || d.IsFile() {
		return d.kind + d.url
	}
	query := parsed.Query()
	for name := range query {
		if lower := strings.ToLower(name); strings.Contains(lower, "pass") || strings.HasPrefix(lower, "user") {
			query.Del(name)
		}
	}
	parsed.User, parsed.RawQuery = nil, query.Encode()
	return parsed.String()
}

// Kind returns the name of the database's dialect, or "" for the zero Database.
func (d Database) Kind() string { return d.kind }

// IsFile reports whether the database is a file, and has no server.
func (d Database) IsFile() bool {
	_, form, _ := databases.Of(d.kind)
	return form.File != nil
}

// Polled reports whether relays must poll this database, because it has no
// notifications.
func (d Database) Polled() bool {
	product, _, _ := databases.Of(d.kind)
	return d.kind != "" && product.Schema.Notify == ""
}

// Secret returns the text that the driver opens: the URL with its password, or the path of a file. Never log this text.
func (d Database) Secret() string { return d.url }

// String returns the URL with its passwords replaced by xxxxx.
func (d Database) String() string {
	switch {
	case d.kind == "":
		return ""
	case d.IsFile():
		return d.kind + ":" + d.url
	}
	return redact(d.kind, d.url)
}

// GoString implements [fmt.GoStringer], so that %#v shows no password.
func (d Database) GoString() string { return fmt.Sprintf("config.Database(%q)", d.String()) }

// LogValue implements [slog.LogValuer]. The value has no password.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText implements [encoding.TextMarshaler], so that no encoder shows a password.
func (d Database) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func redact(kind, text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return kind + "://…"
	}
	query, secret := parsed.Query(), false
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, "xxxxx")
			secret = true
		}
	}
	if secret {
		parsed.RawQuery = query.Encode()
	}
	return parsed.Redacted()
}

// ParseDatabase reads a database's URL in the form of its [backend.URL]. The driver interprets the URL's parameters. The
// path of a database file is used as it is, without escapes and parameters. The error never repeats the URL, because the
// URL may have a password.
func ParseDatabase(text string) (Database, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	form, known := formOf(scheme)
	switch {
	case !known:
		return Database{}, errNoURL(text)
	case form.File == nil:
		return parseURL(form, text)
	}
	path, err := form.File(rest)
	if err != nil {
		return Database{}, err
	}
	return Database{kind: form.Dialect, url: path}, nil
}

func formOf(scheme string) (form backend.URL, known bool) {
	for _, form := range databases.URLs() {
		if scheme != "" && (scheme == form.Dialect || scheme == form.Alias) {
			return form, true
		}
	}
	return backend.URL{}, false
}

// errNoURL returns the error for a text whose scheme isn't known. If the text is another library's URL of a known database, such as
// postgresql+psycopg://, jdbc:mysql:// or sqlite3:, the error has an example for that database.
func errNoURL(text string) error {
	scheme, _, found := strings.Cut(strings.TrimPrefix(strings.ToLower(text), "jdbc:"), ":")
	for _, form := range databases.URLs() {
		if found && strings.HasPrefix(scheme, form.Dialect) {
			return fmt.Errorf("isn't a database's URL: write %s, in lower case and without the name of a driver", form.Example)
		}
	}
	return fmt.Errorf("isn't a database's URL: write one that begins with %[2]s, such as %[1]s", databases.URLs()[0].Example, databases.Schemes())
}

// ParseKind reads a URL like ParseDatabase, but permits a URL that ends after its
// scheme, such as mysql:// or sqlite:, for commands that don't open the database.
func ParseKind(text string) (Database, error) {
	for _, form := range databases.URLs() {
		if text == form.Dialect+":" || text == form.Dialect+"://" {
			return Database{kind: form.Dialect, url: text}, nil
		}
	}
	return ParseDatabase(text)
}

func parseURL(form backend.URL, text string) (Database, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return Database{}, errors.New("isn't a valid URL: write " + form.Example +
			", with the special characters of a password percent-encoded")
	}
	if parsed.Opaque != "" || parsed.Fragment != "" || !strings.Contains(text, "://") {
		return Database{}, errors.New("isn't a valid URL: write " + form.Example +
			", with # and other special characters percent-encoded")
	}
	if form.Name != nil && form.Name(parsed) == "" {
		return Database{}, errors.New("names no database: write " + form.Example)
	}
	return Database{kind: form.Dialect, url: text}, nil
}
