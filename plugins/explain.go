package plugins

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// explain says why a plug-in can't be used, in words for an operator.
func (p *process) explain(err error) error {
	var known *sinks.OpenError
	switch {
	case errors.As(err, &known):
		return err
	case notFound(err):
		return config("%s can't be run: %v; is the path right, and the file executable?", p.options.Path, err)
	case errors.Is(err, errSilent) && p.output.greeting() == "":
		return connection("%w: no first line of the plug-in protocol within %v (start_timeout)%s", err, p.options.StartTimeout, p.output.words())
	case !p.runner.ran():
		return err
	}
	if problem := p.misgreeting(); problem != nil {
		return problem
	}
	if p.output.greeting() == "" && p.endsSoon() {
		return connection("it has ended at once (%s)%s", p.runner.state, p.output.words())
	}
	return connection("%w%s", said(err), p.output.words())
}

// misgreeting says what is wrong with the first line that the plug-in printed,
// which has the version of go-plugin's protocol, that of ours, the network, the
// address, the word grpc, and a certificate.
func (p *process) misgreeting() error {
	greeting := p.output.greeting()
	parts := strings.Split(greeting, "|")
	switch {
	case greeting == "":
		return nil
	case len(parts) < 4 || parts[0] != "1":
		return config("it printed %q where the first line of the plug-in protocol is due: is it a plug-in of rowrelay, and does it print nothing else to its standard output?",
			shorten(p.output.redact.Redact(greeting), 100))
	case parts[1] != strconv.Itoa(protocolVersion):
		return config("it speaks version %q of the plug-in protocol, and this relay version %d: use versions of both that fit", shorten(parts[1], 20), protocolVersion)
	case len(parts) < 5 || parts[4] != "grpc":
		return config("it doesn't speak gRPC, which a plug-in has to")
	case !p.options.NoTLS && (len(parts) < 6 || len(parts[5]) < 50):
		return config("it offers no certificate: set tls: false for a plug-in that can't, its socket is private all the same")
	case p.options.NoTLS && len(parts) > 5 && len(parts[5]) > 50:
		return config("it offers a certificate that nobody has asked for: leave out tls: false, or make it heed " + certificateVariable)
	}
	return nil
}

func config(format string, args ...any) error {
	return &sinks.OpenError{Reason: sinks.ReasonConfig, Detail: fmt.Errorf(format, args...).Error()}
}

func connection(format string, args ...any) error {
	return &sinks.OpenError{Reason: sinks.ReasonConnection, Detail: fmt.Errorf(format, args...).Error()}
}
