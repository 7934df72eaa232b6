package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

func (o Options) withDefaults() Options {
	o.VirtualHost = cmp.Or(o.VirtualHost, "/")
	o.RoutingKey = cmp.Or(o.RoutingKey, DefaultRoutingKey)
	o.Connections = cmp.Or(o.Connections, DefaultConnections)
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
	o.Heartbeat = cmp.Or(o.Heartbeat, DefaultHeartbeat)
	if o.Username == "" && o.Password == "" && !o.External {
		o.Username, o.Password = "guest", "guest"
	}
	return o
}

// check returns the parsed templates, or all that is wrong.
func (o Options) check() (exchange, routingKey sinks.Template, err error) {
	exchange, err = sinks.ParseTemplate(o.Exchange)
	problems := []error{about("exchange", err)}
	routingKey, err = sinks.ParseTemplate(o.RoutingKey)
	problems = append(problems, about("routing key", err), about("list of hosts", checkHosts(o.Hosts)), about("content type", checkShort(o.ContentType)))
	problems = append(problems, o.checkNumbers(), o.checkLogin(), o.Declare.check(o))
	return exchange, routingKey, errors.Join(problems...)
}

func about(subject string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the %s %w", subject, err)
}

func (o Options) checkNumbers() error {
	switch {
	case o.Connections < 1 || o.Connections > 16:
		return errors.New("the number of connections must be 1 to 16")
	case o.Window < 1 || o.Window > 1000:
		return errors.New("the window must be 1 to 1000")
	case o.ConnectTimeout < 0:
		return errors.New("the time to connect must not be negative")
	case o.Heartbeat < 2*time.Second:
		return errors.New("the heartbeat must be at least two seconds")
	case o.Expiration < 0 || o.Expiration%time.Millisecond != 0:
		return errors.New("the expiration must be a whole number of milliseconds")
	}
	return nil
}

func (o Options) checkLogin() error {
	switch {
	case o.External && (o.Username != "" || o.Password != ""):
		return errors.New("a login by certificate has no user name or password")
	case o.External && (o.TLS == nil || len(o.TLS.Certificates) == 0 && o.TLS.GetClientCertificate == nil):
		return errors.New("a login by certificate needs TLS with a client certificate")
	}
	return nil
}

// checkHosts completes "the list of hosts …".
func checkHosts(hosts []string) error {
	if len(hosts) == 0 {
		return errors.New("is empty")
	}
	for _, host := range hosts {
		if _, err := address(host, "5672"); err != nil {
			return err
		}
	}
	return nil
}

// address completes a host with the port.
func address(host, port string) (string, error) {
	name, given := host, port
	if strings.Contains(strings.TrimPrefix(host, "["), ":") {
		var err error
		if name, given, err = net.SplitHostPort(host); err != nil {
			return "", fmt.Errorf("has %q, which is not like host or host:port", host)
		}
	}
	number, err := strconv.ParseUint(given, 10, 16)
	if name == "" || err != nil || number == 0 {
		return "", fmt.Errorf("has %q, which is not like host or host:port", host)
	}
	return net.JoinHostPort(name, given), nil
}

// addresses are the hosts with their ports.
func (o Options) addresses() []string {
	port := "5672"
	if o.TLS != nil {
		port = "5671"
	}
	list := make([]string, len(o.Hosts))
	for i, host := range o.Hosts {
		list[i], _ = address(host, port) // checked
	}
	return list
}

// mostShort is how many bytes AMQP's short strings have: names, routing keys,
// most properties.
const mostShort = 255

// checkShort says what is wrong with a short string.
func checkShort(text string) error {
	if len(text) > mostShort {
		return fmt.Errorf("has %d bytes, and AMQP carries at most %d", len(text), mostShort)
	}
	return nil
}
