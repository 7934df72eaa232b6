package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// Description is what a plug-in says of itself.
type Description struct {
	Name     string        // in lower case
	Summary  string        // a sentence
	Version  string        // of the plug-in; may be empty
	Protocol int           // the version of the plug-in protocol that both sides speak
	Fields   []sinks.Field // the settings that it takes, as config or secrets
}

// Describe starts the plug-in where it isn't running, and asks it what it is. Its
// settings need not be right for that. Not to be called while Open or Close is;
// Close ends what it has started.
func (s *Sink) Describe(ctx context.Context) (Description, error) {
	p, err := s.running(ctx)
	if err != nil {
		return Description{}, s.hide(err)
	}
	response, err := p.sink.Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return Description{}, s.hide(fmt.Errorf("describe the plug-in %s: %w", s.options.name(), said(err)))
	}
	d := Description{
		Name: response.GetName(), Summary: response.GetSummary(), Version: response.GetVersion(), Protocol: p.client.NegotiatedVersion(),
	}
	for _, f := range response.GetFields() {
		d.Fields = append(d.Fields, sinks.Field{
			Name: f.GetName(), Type: sinks.FieldType(f.GetType()), Default: f.GetDefaultValue(), Required: f.GetRequired(), Help: f.GetHelp(),
			Min: f.GetMin(), Max: f.GetMax(), Choices: f.GetChoices(),
		})
	}
	return d, nil
}

// Program is the path of the plug-in's program as it was configured.
func (s *Sink) Program() string { return s.options.Path }

// Checksums returns the SHA-256 checksum that the plug-in's program has now, and
// the one that it must have, which is empty where none was configured.
func (s *Sink) Checksums() (has, must string, err error) {
	must = strings.ToLower(s.options.SHA256)
	path, err := exec.LookPath(s.options.Path)
	if err != nil {
		return "", must, err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", must, err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), must, err
}
