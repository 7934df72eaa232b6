package file

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"

	"github.com/rowrelay/rowrelay/sinks"
)

// Kind describes the sink for a registry: the kind "file", URLs "file:path",
// "file:///absolute/path" and "file:path?sync=false&mode=0640".
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "file",
		Summary: "Appends each message as a line of JSON to a file.",
		Schemes: []string{"file"},
		FromURL: fromURL,
		New:     fromSettings,
		Fields: []sinks.Field{
			{Name: "path", Type: sinks.TypeString, Required: true, Help: "The file to append to. It is made where it isn't there; its folder is not."},
			{Name: "mode", Type: sinks.TypeString, Default: "0600", Check: checkMode, Help: "Permissions of a file that the sink makes, in octal digits and quotes, whatever the umask is."},
			{Name: "sync", Type: sinks.TypeBool, Default: "true", Help: "Whether a message is delivered only when it is on the disk. Without it, a power cut can lose delivered messages."},
		},
	}
}

func fromSettings(s sinks.Settings) (sinks.Sink, error) {
	mode, err := parseMode(s.Text("mode"))
	if err != nil {
		return nil, err
	}
	return New(Options{Path: s.Text("path"), Mode: mode, NoSync: !s.Bool("sync")})
}

func checkMode(value any) error {
	_, err := parseMode(value.(string))
	return err
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
	path, err := sinks.URLPath(u)
	if err != nil {
		return nil, err
	}
	settings, err := sinks.URLSettings(u, "path")
	if err != nil {
		return nil, err
	}
	settings["path"] = path
	return settings, nil
}
