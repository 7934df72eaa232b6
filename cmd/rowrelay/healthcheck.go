package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
)

const healthcheckHelp = `Request /readyz from the admin server of the relay on this machine, as a readiness probe
does. The command is meant for images without a shell, for example as a Docker
HEALTHCHECK.`

func (p program) healthcheckCommand() *cobra.Command {
	var file, address string
	var limit time.Duration
	command := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit with 0 if the relay on this machine is ready, and with 1 if not",
		Long:  healthcheckHelp,
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if (file == "") == (address == "") {
				return usagef("give either --config with the relay's configuration file, or --admin with its address")
			}
			if limit <= 0 {
				return usagef("--timeout must be above zero")
			}
			var admin config.Admin
			if file == "" {
				if err := admin.Set("listen", address); err != nil {
					return usagef("--admin: %w", err)
				}
			} else {
				c, err := config.LoadSources(file, p.kinds)
				if err != nil {
					return usage(err)
				}
				admin = c.Admin
			}
			if admin.Listen == "" {
				return usagef("%s has no admin.listen, so the relay has no admin server", file)
			}
			ctx, cancel := context.WithTimeout(command.Context(), limit)
			defer cancel()
			return p.askReady(ctx, admin)
		},
	}
	configFlag(command, &file, "read the address from the relay's configuration `file`")
	command.Flags().StringVar(&address, "admin", "", "the `address` of the relay's admin server")
	command.Flags().DurationVar(&limit, "timeout", 5*time.Second, "wait at most this `duration`")
	return command
}

// askReady requests /readyz and prints the response. It fails unless the status is 200.
func (p program) askReady(ctx context.Context, admin config.Admin) error {
	host, port, err := net.SplitHostPort(admin.Listen)
	if err != nil {
		return usage(err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost" // the server listens on all interfaces
	}
	scheme := "http"
	if admin.TLS.CertFile != "" {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return usage(err)
	}
	// The certificate is not verified, because it has the host's public name, and because no
	// secret is sent.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	answer, err := transport.RoundTrip(request) // doesn't follow redirects, because a relay sends none
	if err != nil {
		return fmt.Errorf("ask the relay: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err != nil {
		return fmt.Errorf("read the relay's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New("not ready: " + strings.TrimSpace(string(body)))
	}
	return p.print(string(body))
}
