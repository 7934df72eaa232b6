// Package file is a sink that appends each message as a line of JSON to a file.
// `rowrelay enqueue` reads such files. Several processes may append to one
// file, and log rotation may rename it at any time.
package file

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// DefaultMode is the mode of a new file: its owner may read and write it.
const DefaultMode os.FileMode = 0o600

// Options say which file a [Sink] appends to, and how.
type Options struct {
	// Path is the file's. Required. The file is made where it isn't there; its
	// folder is not.
	Path string

	// Mode has the permissions of a file that the sink makes, whatever the
	// process's umask is. Defaults to [DefaultMode].
	Mode os.FileMode

	// NoSync calls messages delivered when the system has taken them, without
	// waiting until they are on the disk: faster, but a power cut can lose
	// messages that are marked as delivered.
	NoSync bool
}

// Sink appends messages to a file. Its methods may be called concurrently.
type Sink struct {
	options  Options
	serial   *sinks.Serial
	file     handle // nil while it isn't open; guarded by serial
	openFile func(Options) (handle, error)
}

var (
	_ sinks.Sink    = (*Sink)(nil)
	_ sinks.Ordered = (*Sink)(nil)
	_ sinks.Checker = (*Sink)(nil)
)

// New returns a sink that appends to a file. It touches no file yet.
func New(options Options) (*Sink, error) {
	if options.Path == "" {
		return nil, errors.New("make a file sink: the path is empty")
	}
	options.Mode = cmp.Or(options.Mode, DefaultMode)
	if options.Mode&^os.ModePerm != 0 {
		return nil, fmt.Errorf("make a file sink: the mode %#o is more than permissions", uint32(options.Mode))
	}
	return &Sink{options: options, serial: sinks.NewSerial(), openFile: openFile}, nil
}

// Destination is the path.
func (s *Sink) Destination() string { return "file " + s.options.Path }

// Open opens the file, or makes it. A last line without an end, which a crash
// left behind, is ended, so that it spoils no other.
func (s *Sink) Open(ctx context.Context) error {
	return s.serial.Do(ctx, func() error { return s.reopen(ctx) })
}

// Check finds out whether Open could open the file, or make it in its folder. It makes none.
func (s *Sink) Check(context.Context) error {
	opened, err := openExisting(s.options.Path)
	switch {
	case err == nil:
		return opened.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	folder, err := os.Stat(filepath.Dir(s.options.Path))
	if err == nil && !folder.IsDir() {
		err = fmt.Errorf("%s is not a folder", filepath.Dir(s.options.Path))
	}
	if err != nil {
		return fmt.Errorf("look for the folder to make the file in: %w", err)
	}
	return nil
}

// Close closes the file. It waits for a write that is still running, as long as
// the context lets it.
func (s *Sink) Close(ctx context.Context) error {
	return s.serial.Do(ctx, s.drop)
}

// Order promises that what is written of a batch is a prefix of it: all but
// what can't be a line, or nothing.
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send appends the batch's lines with a single write, and waits until they are
// on the disk. Where that fails, the file is cut back to what it was, and the
// sink is unavailable. What can't be JSON is rejected.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	var lines bytes.Buffer
	outcomes, _ := sinks.WriteLines(&lines, batch)
	return s.serial.Send(ctx, len(batch), func(ctx context.Context) []sinks.Outcome {
		failure := s.write(ctx, lines.Bytes())
		for i := range outcomes {
			if failure != nil && outcomes[i].Result == sinks.Delivered {
				outcomes[i] = *failure
			}
		}
		return outcomes
	})
}

// write appends the text, or returns the outcome of what wasn't written.
func (s *Sink) write(ctx context.Context, text []byte) *sinks.Outcome {
	if len(text) == 0 {
		return nil
	}
	if err := s.follow(ctx); err != nil {
		return notReady(ctx, err)
	}
	if err := s.file.Lock(ctx); err != nil {
		return notReady(ctx, err)
	}
	defer s.unlock()
	size, err := s.file.Size()
	if err != nil {
		return fail(sinks.Unavailable, sinks.ReasonConnection, err)
	}
	_, err = s.file.Write(text)
	if err == nil && !s.options.NoSync {
		err = s.file.Sync()
	}
	if err == nil {
		return nil
	}
	// What was written is taken back. If that fails too, the file is dropped, so
	// that opening it again repairs it.
	if cut := s.file.Truncate(size); cut != nil {
		return fail(sinks.Retry, sinks.ReasonUnknown, errors.Join(err, cut, s.drop()))
	}
	return fail(sinks.Unavailable, sinks.ReasonConnection, err)
}

// notReady: nothing was written; where the time is up, nothing may be wrong.
func notReady(ctx context.Context, err error) *sinks.Outcome {
	if ctx.Err() != nil {
		return fail(sinks.Unsent, sinks.ReasonCancelled, err)
	}
	return fail(sinks.Unavailable, sinks.ReasonConnection, err)
}

func fail(result sinks.Result, reason sinks.Reason, err error) *sinks.Outcome {
	o := sinks.Fail(result, reason, err.Error())
	return &o
}

// Kind describes the sink for a registry: the kind "file", URLs "file:path",
// "file:///absolute/path" and "file:path?sync=false&mode=0640".
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "file",
		Summary: "Appends each message as a line of JSON to a file.",
		Schemes: []string{"file"},
		FromURL: fromURL,
		New:     fromSettings,
		Fields: []settings.Field{
			{Name: "path", Type: settings.TypeString, Required: true, Help: "The file to append to. It is made where it isn't there; its folder is not."},
			{Name: "mode", Type: settings.TypeString, Default: "0600", Check: settings.Parses(parseMode), Help: "Permissions of a file that the sink makes, in octal digits and quotes, whatever the umask is."},
			{Name: "sync", Type: settings.TypeBool, Default: "true", Help: "Whether a message is delivered only when it is on the disk. Without it, a power cut can lose delivered messages."},
		},
	}
}

func fromSettings(s settings.Values) (sinks.Sink, error) {
	mode, _ := parseMode(s.Text("mode")) // checked before
	return New(Options{Path: s.Text("path"), Mode: mode, NoSync: !s.Bool("sync")})
}

func parseMode(text string) (fs.FileMode, error) {
	bits, err := strconv.ParseUint(text, 8, 32)
	mode := fs.FileMode(bits)
	if err != nil || mode&^os.ModePerm != 0 || mode&0o600 != 0o600 {
		return 0, fmt.Errorf("must be octal digits such as 0600 or 0640 that let the owner read and write, not %q", text)
	}
	return mode, nil
}

// fromURL takes what follows "file:" as a path, and the query as settings.
func fromURL(u *url.URL) (map[string]any, error) {
	path, err := settings.PathFromURL(u)
	if err != nil {
		return nil, err
	}
	settings, err := settings.FromURL(u, "path")
	if err != nil {
		return nil, err
	}
	settings["path"] = path
	return settings, nil
}
