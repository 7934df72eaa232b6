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

const healthcheckHelp = `Ask the relay on this machine whether it relays, as a probe does: /readyz of its
admin server. For images without a shell, as a Docker HEALTHCHECK.`

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
				return usagef("give either --config, the file that the relay runs by, or --admin, its address")
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
				c, err := config.Load(file, p.kinds)
				if err != nil {
					return usage(err)
				}
				admin = c.Admin
			}
			if admin.Listen == "" {
				return usagef("%s has no admin.listen: there is nobody to ask", file)
			}
			ctx, cancel := context.WithTimeout(command.Context(), limit)
			defer cancel()
			return p.askReady(ctx, admin)
		},
	}
	configFlag(command, &file, "ask the relay that runs by this configuration `file`")
	command.Flags().StringVar(&address, "admin", "", "ask the relay whose admin server is at this `address`")
	command.Flags().DurationVar(&limit, "timeout", 5*time.Second, "wait at most this `duration`")
	return command
}

// askReady prints what /readyz says, and fails unless that is yes.
func (p program) askReady(ctx context.Context, admin config.Admin) error {
	host, port, err := net.SplitHostPort(admin.Listen)
	if err != nil {
		return usage(err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost" // all interfaces: this one is among them
	}
	scheme := "http"
	if admin.TLS.CertFile != "" {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return usage(err)
	}
	// The certificate names the host as others see it, and nothing secret is sent.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	answer, err := transport.RoundTrip(request) // follows no redirect: a relay sends none, and another server can't answer for it
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
