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
	Secrets map[string]settings.Secret

	// Env is the plug-in's environment. It gets no other variable of the
	// relay's, but those of the protocol.
	Env map[string]settings.Secret

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

func checkEnv(env map[string]settings.Secret) error {
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
	settings := maps.Collect(maps.All(o.Config))
	for name, value := range o.Secrets {
		settings[name] = value.Reveal()
	}
	return settings
}

// redactor hides secrets. To hide each "1" would hide nothing, and make nonsense
// of everything else.
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

// Kind describes the sink for a registry: the kind "plugin", and URLs as
// "plugin:./path/to/program?sha256=…&arg=…&config.NAME=…". Plug-ins log to the
// logger, or where it is nil to slog.Default().
func Kind(logger *slog.Logger) sinks.Kind {
	return sinks.Kind{
		Name:    "plugin",
		Summary: "Runs a sink of your own in another process.",
		Schemes: []string{"plugin"},
		FromURL: fromURL,
		New:     func(s settings.Values) (sinks.Sink, error) { return New(optionsFrom(s, logger)) },
		Fields: []settings.Field{
			{Name: "path", Type: settings.TypeString, Required: true, Help: "The plug-in's program. A name without a slash is looked for in PATH."},
			{Name: "args", Type: settings.TypeList, Help: "The program's arguments. Anyone on the machine can see them in the list of processes."},
			{Name: "config", Type: settings.TypeMap, Help: "Settings for the plug-in's sink, by name; lists and maps as JSON. `rowrelay plugin describe` says what a plug-in has."},
			{Name: "secrets", Type: settings.TypeSecretMap, Help: "Settings as those of `config`, but taken out of whatever the plug-in says, as far as they have 4 characters or more."},
			{Name: "env", Type: settings.TypeSecretMap, Check: settings.Check(checkEnv), Help: "The plug-in's environment. Nothing of the relay's own environment is passed on."},
			{Name: "sha256", Type: settings.TypeString, Check: settings.Check(checkSHA256), Help: "The checksum that the program must have, as sha256sum prints it. What runs is a private copy of what was checked."},
			{Name: "memory", Type: settings.TypeSize, Min: "0", Help: "How much memory the plug-in's processes may have in use together; with more it is killed. 0: as much as they like. On Linux only."},
			{Name: "tls", Type: settings.TypeBool, Default: "true", Help: "Whether both sides identify themselves, and what they say is encrypted, with certificates made for one run (AutoMTLS). The socket is in a private directory in any case."},
			{Name: "directory", Type: settings.TypeString, Help: "Where the private directory for the socket, and for the copy of a checked program, is made. By default the system's for temporary files. Programs must be allowed to run there."},
			{Name: "start_timeout", Type: settings.TypeDuration, Default: DefaultStartTimeout.String(), Min: "100ms", Max: "10m", Help: "How long the plug-in may take until it answers."},
			{Name: "health_interval", Type: settings.TypeDuration, Default: DefaultHealthInterval.String(), Min: "100ms", Max: "10m", Help: "How often the plug-in is asked whether it is well."},
			{Name: "health_timeout", Type: settings.TypeDuration, Default: DefaultHealthTimeout.String(), Min: "100ms", Max: "10m", Help: "How long that answer may take before the plug-in is killed and started again."},
			{Name: "max_crashes", Type: settings.TypeInt, Default: fmt.Sprint(DefaultMaxCrashes), Min: "1", Max: "1000", Help: "How many times in a row the plug-in may end by itself without having delivered anything, or lived for a minute, before it is left alone for `crash_pause`."},
			{Name: "crash_pause", Type: settings.TypeDuration, Default: DefaultCrashPause.String(), Min: "100ms", Max: "24h", Help: "How long such a plug-in is not started again."},
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

// fromURL takes what follows "plugin:" as a path, and the query as settings: arg
// as often as there are arguments, config.NAME, secrets.NAME and env.NAME.
func fromURL(u *url.URL) (map[string]any, error) {
	path, err := settings.PathFromURL(u)
	if err != nil {
		return nil, err
	}
	settings := map[string]any{"path": path}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("what follows the question mark must be settings, such as tls=false")
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
		return fmt.Errorf("the setting %s is there twice", name)
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
