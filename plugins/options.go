package plugins

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// What Options that are zero mean.
const (
	DefaultStartTimeout   = 10 * time.Second
	DefaultHealthInterval = 5 * time.Second
	DefaultHealthTimeout  = 10 * time.Second
	DefaultMaxCrashes     = 5
	DefaultCrashPause     = 5 * time.Minute
)

// Options are the settings of a [Sink].
type Options struct {
	// Path is the plug-in's program. A name without a slash is looked for in
	// PATH. Required.
	Path string

	// Args are the program's arguments. They are visible in the list of
	// processes.
	Args []string

	// Config is what the plug-in's sink is told. A plug-in says which settings
	// it has.
	Config map[string]string

	// Secrets are settings as those of Config. They are passed over the private
	// socket and taken out of whatever the plug-in says.
	Secrets map[string]sinks.Secret

	// Env is the plug-in's environment. It gets no other variable of the
	// relay's, but those of the protocol.
	Env map[string]sinks.Secret

	// SHA256 is the checksum that the program must have, in hexadecimal digits.
	// What is run is a private copy of what was checked. Empty: any program.
	SHA256 string

	// Directory is where a private directory for the plug-in's socket, and for
	// the copy of a program with a checksum, is made. Defaults to os.TempDir().
	// It must let programs run, and its path be short, since that of a socket
	// has at most about 100 bytes.
	Directory string

	// Memory is how many bytes of memory the plug-in's processes may have in use
	// together; with more it is killed. Zero: as many as they like. On Linux
	// only.
	Memory int64

	// NoTLS leaves the socket unencrypted, for a plug-in that doesn't know
	// go-plugin's AutoMTLS. The socket's directory is private all the same.
	NoTLS bool

	// StartTimeout is how long the plug-in may take until it answers. Defaults
	// to 10 s.
	StartTimeout time.Duration

	// HealthInterval is how often the plug-in is asked whether it is well, and
	// HealthTimeout how long the answer may take before it is killed. Default to
	// 5 s and 10 s.
	HealthInterval, HealthTimeout time.Duration

	// MaxCrashes is how many times in a row the plug-in may end by itself,
	// without having delivered anything or lived for a minute; then it isn't
	// started again for CrashPause. Default to 5 and 5 minutes.
	MaxCrashes int
	CrashPause time.Duration

	// Logger gets what the plug-in logs and prints, and when it starts and ends.
	// Defaults to slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	o.Directory = cmp.Or(o.Directory, os.TempDir())
	o.StartTimeout = cmp.Or(o.StartTimeout, DefaultStartTimeout)
	o.HealthInterval = cmp.Or(o.HealthInterval, DefaultHealthInterval)
	o.HealthTimeout = cmp.Or(o.HealthTimeout, DefaultHealthTimeout)
	o.MaxCrashes = cmp.Or(o.MaxCrashes, DefaultMaxCrashes)
	o.CrashPause = cmp.Or(o.CrashPause, DefaultCrashPause)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, o.check()
}

func (o Options) check() error {
	switch {
	case o.Path == "":
		return errors.New("the path of the plug-in's program is empty")
	case o.Memory < 0 || o.MaxCrashes < 0:
		return errors.New("a limit is negative")
	case o.Memory > 0 && !canLimitMemory:
		return errors.New("memory can be limited on Linux only")
	case min(o.StartTimeout, o.HealthInterval, o.HealthTimeout, o.CrashPause) < 0:
		return errors.New("a duration is negative")
	}
	for name := range o.Secrets {
		if _, twice := o.Config[name]; twice {
			return fmt.Errorf("the setting %s stands under config and secrets: remove one of them", name)
		}
	}
	return errors.Join(checkEnv(o.Env), checkSHA256(o.SHA256))
}

func checkEnv(env map[string]sinks.Secret) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value.Reveal(), "\x00") {
			return fmt.Errorf("the variable %q can't be in an environment", name)
		}
	}
	return nil
}

func checkSHA256(text string) error {
	if sum, err := hex.DecodeString(text); text != "" && (err != nil || len(sum) != 32) {
		return errors.New("a SHA-256 checksum has 64 hexadecimal digits: sha256sum prints it")
	}
	return nil
}

// name is what logs call the plug-in.
func (o Options) name() string { return filepath.Base(o.Path) }

// settings are what the plug-in's sink is told.
func (o Options) settings() map[string]string {
	settings := make(map[string]string, len(o.Config)+len(o.Secrets))
	for name, value := range o.Config {
		settings[name] = value
	}
	for name, value := range o.Secrets {
		settings[name] = value.Reveal()
	}
	return settings
}

// redactor hides secrets. To hide each "1" would hide nothing, and make nonsense
// of everything else.
func (o Options) redactor() sinks.Redactor {
	const shortest = 4
	var secrets []sinks.Secret
	for _, values := range []map[string]sinks.Secret{o.Secrets, o.Env} {
		for _, value := range values {
			if len(value) >= shortest {
				secrets = append(secrets, value)
			}
		}
	}
	return sinks.NewRedactor(secrets...)
}
