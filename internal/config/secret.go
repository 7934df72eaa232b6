package config

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// origin is the file or the command that a secret comes from.
type origin struct {
	path    string // the secret's setting, without _file or _command
	file    string // empty: a command
	command *command
}

// setting returns the setting that names the file or the command.
func (o origin) setting() string {
	if o.command != nil {
		return o.path + "_command"
	}
	return o.path + "_file"
}

// text returns the current secret, without the newline at its end. If the command has failed, text returns the previous secret
// together with the error. The context limits the wait for a command.
func (o origin) text(ctx context.Context, how urgency) (string, error) {
	if o.command != nil {
		return o.command.text(ctx, how)
	}
	content, err := readLimited(o.file, maxSecret)
	secret := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if err == nil && secret == "" {
		err = errors.New("names an empty file: " + o.file)
	}
	return secret, err
}

// await waits for the commands that print these secrets, with the urgency refused or inTime.
func await(ctx context.Context, secrets []origin, wereRefused bool) {
	how := inTime
	if wereRefused {
		how = refused
	}
	for _, o := range secrets {
		if o.command != nil {
			_, _ = o.command.text(ctx, how) // the next read returns the error again
		}
	}
}

// derivedFrom removes the ending _file or _command from the name of a setting. The result, such as password, is the setting whose
// value comes from the file or the command. ok is false if the name has no such ending.
func derivedFrom(name string) (base string, ok bool) {
	if base, ok = strings.CutSuffix(name, "_file"); ok {
		return base, true
	}
	return strings.CutSuffix(name, "_command")
}

// fromOrigin reads a secret from the file or the command that the entry e names, and returns it as the node of the setting `name`. The
// node has the position of the entry. fromOrigin returns nil if it reports a problem, or if the secret's command doesn't run.
func (r *reader) fromOrigin(n *node, e entry, name string) *node {
	for _, other := range []string{name, name + "_file"} {
		if other != e.key && n.get(other) != nil {
			r.fail(e.node, "is given together with "+other+": remove one of them")
			return nil
		}
	}
	o, ok := r.originOf(e)
	if !ok {
		return nil
	}
	o.path = n.child(name)
	r.secrets = append(r.secrets, o)
	secret, ok := r.secretOf(o, e)
	if !ok {
		return nil
	}
	held := textNode(e.node.path, secret)
	held.line, held.column = e.node.line, e.node.column
	return held
}

// originOf reads the value of a ..._file or ..._command setting. A relative file name is resolved against the folder of the
// configuration file.
func (r *reader) originOf(e entry) (o origin, ok bool) {
	if strings.HasSuffix(e.key, "_command") {
		s, ok := r.commandOf(e.node)
		if ok && r.commands != nil && (!r.sourcesOnly || strings.HasPrefix(e.node.path, "sources.")) {
			o.command = r.commands.of(s)
		}
		return o, ok
	}
	o.file, ok = r.scalar(e.node)
	if ok && !filepath.IsAbs(o.file) {
		o.file = filepath.Join(r.folder, o.file)
	}
	return o, ok
}

// secretOf returns the secret of an origin. It reports a problem and returns false if there is no secret. If commands don't
// run, it returns false and sets r.pending.
func (r *reader) secretOf(o origin, e entry) (string, bool) {
	if o.file == "" && o.command == nil {
		r.pending = true
		return "", false
	}
	secret, err := o.text(context.Background(), lastKnown)
	switch {
	case err != nil && secret != "":
		r.stale = append(r.stale, fmt.Errorf("%s: %w", o.setting(), err))
	case err != nil:
		before := len(r.problems.List)
		r.fail(e.node, err.Error())
		for i := range r.problems.List[before:] {
			r.problems.List[before+i].passing = o.command != nil
		}
	}
	return secret, secret != "" && !e.node.broken
}
