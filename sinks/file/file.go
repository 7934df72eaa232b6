// Package file is a sink that appends each message as a line of JSON to a file. `rowrelay
// enqueue` reads these files. Several processes may append to one file, and log rotation may
// rename it at any time.
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

// DefaultMode is the mode of a new file: only its owner may read and write it.
const DefaultMode os.FileMode = 0o600

// Options configure a [Sink].
type Options struct {
	// Path is the path of the file. Required. The file is created if it doesn't exist; its
	// folder must exist.
	Path string

	// Mode has the permissions of a file that the sink creates, regardless of the process's
	// umask. Defaults to [DefaultMode].
	Mode os.FileMode

	// NoSync treats messages as delivered once the operating system has them, without
	// waiting until they are on the disk. This is faster, but a power cut can lose messages
	// that are marked as delivered.
	NoSync bool
}

// Sink appends messages to a file. Its methods may be called concurrently.
type Sink struct {
	options  Options
	serial   *sinks.Serial
	file     handle // nil while closed; guarded by serial
	openFile func(Options) (handle, error)
}

var (
	_ sinks.Sink    = (*Sink)(nil)
	_ sinks.Ordered = (*Sink)(nil)
	_ sinks.Checker = (*Sink)(nil)
)

// New returns a sink that appends to a file. It opens no file.
func New(options Options) (*Sink, error) {
	if options.Path == "" {
		return nil, errors.New("make a file sink: the path is empty")
	}
	options.Mode = cmp.Or(options.Mode, DefaultMode)
	if options.Mode&^os.ModePerm != 0 {
		return nil, fmt.Errorf("make a file sink: the mode %#o has bits other than permissions", uint32(options.Mode))
	}
	return &Sink{options: options, serial: sinks.NewSerial(), openFile: openFile}, nil
}

// Destination returns "file " and the path.
func (s *Sink) Destination() string { return "file " + s.options.Path }

// Open opens the file or creates it. If a crash has left the last line without a newline,
// Open adds one, so that the next line stays readable.
func (s *Sink) Open(ctx context.Context) error {
	return s.serial.Do(ctx, func() error { return s.reopen(ctx) })
}

// Check reports whether Open could open the file, or create it in its folder. It creates
// nothing.
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
		return fmt.Errorf("check the folder of the file: %w", err)
	}
	return nil
}

// Close closes the file. It waits for a running write until the context ends.
func (s *Sink) Close(ctx context.Context) error {
	return s.serial.Do(ctx, s.drop)
}

// Order returns [sinks.OrderPrefix]: Send writes either no message, or all messages except those that can't be
// written as JSON and the later messages of their keys.
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send appends the batch's lines with a single write and waits until they are on the disk.
// If that fails, Send truncates the file to its former size and reports that the sink is
// unavailable. A message that can't be written as JSON is rejected.
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

// write appends the text. It returns nil or, if it fails, the outcome of the messages.
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
	// Remove what was written. If that fails too, close the file: the next write reopens it and
	// repairs its last line.
	if cut := s.file.Truncate(size); cut != nil {
		return fail(sinks.Retry, sinks.ReasonUnknown, errors.Join(err, cut, s.drop()))
	}
	return fail(sinks.Unavailable, sinks.ReasonConnection, err)
}

// notReady returns the outcome of the messages if no part of their batch was written. If
// the context has ended, the messages are unsent, because the end of the context may have
// caused the error.
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
			{Name: "path", Type: settings.TypeString, Required: true, Help: "The file to append to. It is created if it doesn't exist; its folder must exist."},
			{Name: "mode", Type: settings.TypeString, Default: "0600", Check: settings.Parses(parseMode), Help: "The permissions of a file that the sink creates, as octal digits in quotes, whatever the umask is."},
			{Name: "sync", Type: settings.TypeBool, Default: "true", Help: "Whether a message counts as delivered only when it is on the disk. With false, a power cut can lose delivered messages."},
		},
	}
}

func fromSettings(s settings.Values) (sinks.Sink, error) {
	mode, _ := parseMode(s.Text("mode")) // Parse has checked it
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

// fromURL converts a URL to settings: the URL's path becomes the setting named path, and the query has the
// other settings.
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
