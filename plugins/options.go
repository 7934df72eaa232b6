package plugins

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Defaults of [Options].
const (
	DefaultStartTimeout   = 10 * time.Second
	DefaultHealthInterval = 5 * time.Second
	DefaultHealthTimeout  = 10 * time.Second
	DefaultMaxCrashes     = 5
	DefaultCrashPause     = 5 * time.Minute
)

// Options are the settings of a [Sink].
type Options struct {
	// Path is the plug-in's program. A name without a slash is looked up in PATH. Required.
	Path string

	// Args are the program's arguments. Other users of the machine can see them in
	// the process list.
	Args []string

	// Config has the settings of the plug-in's sink. Each plug-in defines its own.
	Config map[string]string

	// Secrets has further settings of the plug-in's sink. The relay removes values
	// of at least 4 bytes from everything the plug-in logs or reports.
	Secrets map[string]settings.Secret

	// Env is the plug-in's environment. The plug-in gets no other variables, except
	// the protocol's variables and, with Memory, GOMEMLIMIT.
	Env map[string]settings.Secret

	// SHA256 is the checksum that the program must have, in hexadecimal digits. The relay makes a private copy of the
	// program, checks the copy's checksum, and runs the copy. If SHA256 is empty, any program is allowed.
	SHA256 string

	// Directory is where the relay makes a private directory for the plug-in's
	// socket and for the copy of a program with a checksum. Defaults to
	// os.TempDir(). Programs must be allowed to run there. The path must be short,
	// because the path of a socket is limited to about 100 bytes.
	Directory string

	// Memory limits the memory in use by all processes of the plug-in, in bytes. A
	// plug-in that exceeds it is killed. Zero means no limit. Linux only.
	Memory int64

	// NoTLS leaves the socket unencrypted, for a plug-in that doesn't support
	// go-plugin's AutoMTLS. The socket's directory is private in any case.
	NoTLS bool

	// StartTimeout limits the time from starting the plug-in to its first answer.
	// Defaults to 10 s.
	StartTimeout time.Duration

	// HealthInterval is the time between health checks. HealthTimeout is the time
	// after which a plug-in that doesn't answer a health check is killed. They default
	// to 5 s and 10 s.
	HealthInterval, HealthTimeout time.Duration

	// After MaxCrashes consecutive crashes, the relay waits for CrashPause before it
	// restarts the plug-in. An exit counts as a crash if the plug-in delivered nothing
	// and ran for less than a minute. MaxCrashes defaults to 5, CrashPause to 5 minutes.
	MaxCrashes int
	CrashPause time.Duration

	// Logger receives what the plug-in logs and prints, a line when the plug-in
	// starts, and a line when it ends. Defaults to slog.Default().
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
			return fmt.Errorf("the setting %s is in both config and secrets: remove one of them", name)
		}
	}
	return errors.Join(checkEnv(o.Env), checkSHA256(o.SHA256))
}

func checkEnv(env map[string]settings.Secret) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value.Reveal(), "\x00") {
			return fmt.Errorf("the environment variable %q has an invalid name or value", name)
		}
	}
	return nil
}

func checkSHA256(text string) error {
	if sum, err := hex.DecodeString(text); text != "" && (err != nil || len(sum) != 32) {
		return errors.New("a SHA-256 checksum must have 64 hexadecimal digits, as sha256sum prints it")
	}
	return nil
}

// name is the plug-in's name in logs.
func (o Options) name() string { return filepath.Base(o.Path) }

// settings returns config and secrets together, for the plug-in's sink.
func (o Options) settings() map[string]string {
	settings := maps.Collect(maps.All(o.Config))
	for name, value := range o.Secrets {
		settings[name] = value.Reveal()
	}
	return settings
}

// redactor returns a redactor for the values of Secrets and Env. It leaves out very short secrets:
// hiding each "1" would protect nothing and make other texts unreadable.
func (o Options) redactor() settings.Redactor {
	const shortest = 4
	var secrets []settings.Secret
	for _, values := range []map[string]settings.Secret{o.Secrets, o.Env} {
		for _, value := range values {
			if len(value) >= shortest {
				secrets = append(secrets, value)
			}
		}
	}
	return settings.NewRedactor(secrets...)
}

// Kind describes the sink for a registry: the kind "plugin", and URLs such as
// "plugin:./path/to/program?sha256=…&arg=…&config.NAME=…". The
// plug-ins' log lines go to the logger, or to slog.Default() if the logger is nil.
func Kind(logger *slog.Logger) sinks.Kind {
	return sinks.Kind{
		Name:    "plugin",
		Summary: "Runs a sink of your own in another process.",
		Schemes: []string{"plugin"},
		FromURL: fromURL,
		New:     func(s settings.Values) (sinks.Sink, error) { return New(optionsFrom(s, logger)) },
		Fields: []settings.Field{
			{Name: "path", Type: settings.TypeString, Required: true, Help: "The plug-in's program. A name without a slash is looked up in PATH."},
			{Name: "args", Type: settings.TypeList, Help: "The program's arguments. Other users of the machine can see them in the process list."},
			{Name: "config", Type: settings.TypeMap, Help: "Settings of the plug-in's sink, by name; lists and maps as JSON. `rowrelay plugin describe` lists a plug-in's settings."},
			{Name: "secrets", Type: settings.TypeSecretMap, Help: "Settings as in `config`. Values of at least 4 characters are removed from everything the plug-in logs or reports."},
			{Name: "env", Type: settings.TypeSecretMap, Check: settings.Check(checkEnv), Help: "The plug-in's environment. The plug-in gets no variables of the relay's own environment."},
			{Name: "sha256", Type: settings.TypeString, Check: settings.Check(checkSHA256), Help: "The SHA-256 checksum that the program must have, in hexadecimal digits."},
			{Name: "memory", Type: settings.TypeSize, Min: "0", Help: "The maximum memory in use by all processes of the plug-in. A plug-in that exceeds it is killed. 0 means no limit. Linux only."},
			{Name: "tls", Type: settings.TypeBool, Default: "true", Help: "Whether relay and plug-in authenticate each other and encrypt the connection, with certificates made for one run (AutoMTLS)."},
			{Name: "directory", Type: settings.TypeString, Help: "Where the relay makes a private directory for the socket and, with `sha256`, for the copy of the program. By default the system's temporary directory. Programs must be allowed to run there."},
			{Name: "start_timeout", Type: settings.TypeDuration, Default: DefaultStartTimeout.String(), Min: "100ms", Max: "10m", Help: "The time limit from starting the plug-in to its first answer."},
			{Name: "health_interval", Type: settings.TypeDuration, Default: DefaultHealthInterval.String(), Min: "100ms", Max: "10m", Help: "The time between health checks."},
			{Name: "health_timeout", Type: settings.TypeDuration, Default: DefaultHealthTimeout.String(), Min: "100ms", Max: "10m", Help: "The time after which a plug-in that doesn't answer a health check is killed and restarted."},
			{Name: "max_crashes", Type: settings.TypeInt, Default: fmt.Sprint(DefaultMaxCrashes), Min: "1", Max: "1000", Help: "After this number of consecutive crashes, the relay waits for `crash_pause` before it restarts the plug-in. An exit counts as a crash if the plug-in delivered nothing and ran for less than a minute."},
			{Name: "crash_pause", Type: settings.TypeDuration, Default: DefaultCrashPause.String(), Min: "100ms", Max: "24h", Help: "How long the relay waits before it restarts a plug-in that crashed `max_crashes` times in succession."},
		},
	}
}

func optionsFrom(s settings.Values, logger *slog.Logger) Options {
	return Options{
		Path: s.Text("path"), Args: s.List("args"),
		Config: s.Map("config"), Secrets: s.SecretMap("secrets"), Env: s.SecretMap("env"),
		SHA256: s.Text("sha256"), Directory: s.Text("directory"), Memory: s.Size("memory"), NoTLS: !s.Bool("tls"),
		StartTimeout: s.Duration("start_timeout"), HealthInterval: s.Duration("health_interval"), HealthTimeout: s.Duration("health_timeout"),
		MaxCrashes: s.Int("max_crashes"), CrashPause: s.Duration("crash_pause"), Logger: logger,
	}
}

// fromURL converts a URL to settings: the URL's path becomes the setting named path.
// In the query, arg may be repeated, and config.NAME, secrets.NAME and env.NAME set
// single values.
func fromURL(u *url.URL) (map[string]any, error) {
	path, err := settings.PathFromURL(u)
	if err != nil {
		return nil, err
	}
	settings := map[string]any{"path": path}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the query must consist of settings such as tls=false")
	}
	for name, values := range query {
		if err := add(settings, name, values); err != nil {
			return nil, err
		}
	}
	return settings, nil
}

func add(settings map[string]any, name string, values []string) error {
	group, member, grouped := strings.Cut(name, ".")
	switch {
	case name == "arg":
		settings["args"] = values
	case settings[name] != nil || len(values) > 1:
		return fmt.Errorf("the setting %s is given twice", name)
	case grouped:
		texts, _ := settings[group].(map[string]string)
		if texts == nil {
			texts = map[string]string{}
		}
		texts[member] = values[0]
		settings[group] = texts
	default:
		settings[name] = values[0]
	}
	return nil
}
