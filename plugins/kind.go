package plugins

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// Kind describes the sink for a registry: the kind "plugin", and URLs as
// "plugin:./path/to/program?sha256=…&arg=…&config.NAME=…". Plug-ins log to the
// logger, or where it is nil to slog.Default().
func Kind(logger *slog.Logger) sinks.Kind {
	return sinks.Kind{
		Name:    "plugin",
		Summary: "Runs a sink of your own in another process.",
		Schemes: []string{"plugin"},
		FromURL: fromURL,
		New:     func(s sinks.Settings) (sinks.Sink, error) { return New(optionsFrom(s, logger)) },
		Fields: []sinks.Field{
			{Name: "path", Type: sinks.TypeString, Required: true, Help: "The plug-in's program. A name without a slash is looked for in PATH."},
			{Name: "args", Type: sinks.TypeList, Help: "The program's arguments. Anyone on the machine can see them in the list of processes."},
			{Name: "config", Type: sinks.TypeMap, Help: "Settings for the plug-in's sink, by name; lists and maps as JSON. `rowrelay plugin describe` says what a plug-in has."},
			{Name: "secrets", Type: sinks.TypeSecretMap, Help: "Settings as those of `config`, but taken out of whatever the plug-in says, as far as they have 4 characters or more."},
			{Name: "env", Type: sinks.TypeSecretMap, Check: func(value any) error { return checkEnv(value.(map[string]sinks.Secret)) }, Help: "The plug-in's environment. Nothing of the relay's own environment is passed on."},
			{Name: "sha256", Type: sinks.TypeString, Check: func(value any) error { return checkSHA256(value.(string)) }, Help: "The checksum that the program must have, as sha256sum prints it. What runs is a private copy of what was checked."},
			{Name: "memory", Type: sinks.TypeSize, Min: "0", Help: "How much memory the plug-in's processes may have in use together; with more it is killed. 0: as much as they like. On Linux only."},
			{Name: "tls", Type: sinks.TypeBool, Default: "true", Help: "Whether both sides identify themselves, and what they say is encrypted, with certificates made for one run (AutoMTLS). The socket is in a private directory in any case."},
			{Name: "directory", Type: sinks.TypeString, Help: "Where the private directory for the socket, and for the copy of a checked program, is made. By default the system's for temporary files. Programs must be allowed to run there."},
			{Name: "start_timeout", Type: sinks.TypeDuration, Default: DefaultStartTimeout.String(), Min: "100ms", Max: "10m", Help: "How long the plug-in may take until it answers."},
			{Name: "health_interval", Type: sinks.TypeDuration, Default: DefaultHealthInterval.String(), Min: "100ms", Max: "10m", Help: "How often the plug-in is asked whether it is well."},
			{Name: "health_timeout", Type: sinks.TypeDuration, Default: DefaultHealthTimeout.String(), Min: "100ms", Max: "10m", Help: "How long that answer may take before the plug-in is killed and started again."},
			{Name: "max_crashes", Type: sinks.TypeInt, Default: fmt.Sprint(DefaultMaxCrashes), Min: "1", Max: "1000", Help: "How many times in a row the plug-in may end by itself without having delivered anything, or lived for a minute, before it is left alone for `crash_pause`."},
			{Name: "crash_pause", Type: sinks.TypeDuration, Default: DefaultCrashPause.String(), Min: "100ms", Max: "24h", Help: "How long such a plug-in is not started again."},
		},
	}
}

func optionsFrom(s sinks.Settings, logger *slog.Logger) Options {
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
	path, err := sinks.URLPath(u)
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
