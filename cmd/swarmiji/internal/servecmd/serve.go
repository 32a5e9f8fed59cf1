// Package servecmd has the commands that serve until they are interrupted: serve, dev, exporter and
// bedrock.
package servecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/httpserve"
	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/open"
)

// app is the program, with the commands of this package as methods.
type app struct{ *cli.App }

// Serve makes the command serve.
func Serve(a *cli.App) *cobra.Command { return (&app{a}).serveCmd() }

// Dev makes the command dev.
func Dev(a *cli.App) *cobra.Command { return (&app{a}).devCmd() }

// Exporter makes the command exporter.
func Exporter(a *cli.App) *cobra.Command { return (&app{a}).exporterCmd() }

// Bedrock makes the command bedrock.
func Bedrock(a *cli.App) *cobra.Command { return (&app{a}).bedrockCmd() }

// serveOptions holds the flags of serve.
type serveOptions struct {
	listen                  string
	users, tokens           string // files
	proxies                 []string
	proxyHeader, proxyRole  string
	hosts                   []string
	readOnly, hideArguments bool
	parts                   partOptions
}

func (a *app) serveCmd() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the dashboard and the HTTP API",
		Long: "Serve shows the system of the broker as web pages, and serves the API that swarmiji --api uses at /api/v1. It\n" +
			"runs until it is interrupted, then it ends with status 0. See docs/dashboard.md.\n\n" +
			"By default only this machine can call it, without a password and with all rights. To listen on another\n" +
			"address, give --users, --tokens or --proxy, and put a server with TLS in front: passwords travel in plain text.\n" +
			"--users names a file with one user per line: a name, a role (viewer, operator or admin) and a password. --tokens\n" +
			"is the same for programs; a token has 16 bytes or more. Lines with # are skipped.\n\n" +
			"--history names the database that swarmiji history record writes; with --record serve writes it itself.\n" +
			"--timeout limits connecting.",
		Example: "  swarmiji serve --history sqlite:///var/lib/history.db --record\n" +
			"  swarmiji serve --listen :8080 --users /etc/swarmiji/users --allow-host dash.example.org",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` to listen on")
	f.StringVar(&o.users, "users", "", "`file` of users with their roles and passwords")
	f.StringVar(&o.tokens, "tokens", "", "`file` of programs with their roles and tokens, for the API")
	f.StringSliceVar(&o.proxies, "proxy", nil, "`address` or network of a proxy that names the user in --proxy-header")
	f.StringVar(&o.proxyHeader, "proxy-header", "", "`name` of the header, such as X-Forwarded-User; the proxy must remove it from requests")
	f.StringVar(&o.proxyRole, "proxy-role", "viewer", "`role` of the users of the proxy")
	f.StringSliceVar(&o.hosts, "allow-host", nil, "`name` under which browsers may call it, beside localhost")
	f.BoolVar(&o.readOnly, "read-only", false, "refuse all changes")
	f.BoolVar(&o.hideArguments, "hide-arguments", false, "show no arguments, results, headers and data of jobs")
	o.parts.flags(cmd)
	return cmd
}

// serve serves the dashboard until ctx ends.
func (a *app) serve(ctx context.Context, o *serveOptions) error {
	config, err := o.config()
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	logger := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	config.Logger = logger
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("%w; --listen names another address", err)
	}
	if addr, err := netip.ParseAddrPort(ln.Addr().String()); !config.Authenticates() && (err != nil || !addr.Addr().IsLoopback()) {
		return errors.Join(fmt.Errorf("%w: %s can be reached from other machines; give --users, --tokens or --proxy, or listen on 127.0.0.1", cli.ErrUsage, ln.Addr()), ln.Close())
	}
	served := false
	err = a.withParts(ctx, open.Options{Logger: logger}, &o.parts, func(ctx context.Context, _ *open.Swarm, api inspect.API) error {
		config.API = api
		served = true
		return a.serveDashboard(ctx, ln, config)
	})
	if !served {
		err = errors.Join(err, ln.Close())
	}
	return err
}

// serveDashboard serves a dashboard at ln until ctx ends.
func (a *app) serveDashboard(ctx context.Context, ln net.Listener, c dashboard.Config) (err error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		c.Version = info.Main.Version
	}
	d, err := dashboard.New(c)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	end := context.AfterFunc(ctx, func() { // a stream would hold up the end of the server
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTime)
		defer cancel()
		_ = d.Close(closing) // Serve waits for the same streams
	})
	defer end()
	if _, err := fmt.Fprintf(a.Stdout, "dashboard at http://%s/\n", browsable(ln.Addr())); err != nil {
		return errors.Join(err, ln.Close())
	}
	err = httpserve.Serve(ctx, ln, d, cli.CloseTime)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTime)
	defer cancel()
	return errors.Join(err, d.Close(closing))
}

// browsable returns an address that a browser on this machine can open.
func browsable(addr net.Addr) string {
	p, err := netip.ParseAddrPort(addr.String())
	if err != nil || !p.Addr().IsUnspecified() {
		return addr.String()
	}
	return fmt.Sprintf("localhost:%d", p.Port())
}

// config returns the configuration of the flags.
func (o *serveOptions) config() (dashboard.Config, error) {
	c := dashboard.Config{AllowedHosts: o.hosts, ReadOnly: o.readOnly, HideArguments: o.hideArguments, ProxyHeader: o.proxyHeader}
	var err error
	if c.ProxyRole, err = dashboard.ParseRole(o.proxyRole); err != nil {
		return c, err
	}
	for _, text := range o.proxies {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			addr, aerr := netip.ParseAddr(text)
			if aerr != nil {
				return c, fmt.Errorf("--proxy: %q is no address or network, such as 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		c.Proxies = append(c.Proxies, p)
	}
	err = accounts(o.users, func(name string, role dashboard.Role, secret string) {
		c.Users = append(c.Users, dashboard.User{Name: name, Role: role, Password: secret})
	})
	if err == nil {
		err = accounts(o.tokens, func(name string, role dashboard.Role, secret string) {
			c.Tokens = append(c.Tokens, dashboard.Token{Name: name, Role: role, Secret: secret})
		})
	}
	if err != nil {
		return c, err
	}
	check := c
	check.API = struct{ inspect.API }{}
	d, err := dashboard.New(check) // errors of the flags come before any connection
	if err != nil {
		return c, err
	}
	return c, d.Close(context.Background())
}

// accounts reads a file of names, roles and secrets. With "" it does nothing. Errors contain no
// secret.
func accounts(path string, add func(name string, role dashboard.Role, secret string)) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path) //nolint:gosec // the user names a file of their own
	if err != nil {
		return err
	}
	found := false
	for n, line := range strings.Split(string(data), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 3 {
			return fmt.Errorf("line %d of %s is not a name, a role and a password, each without spaces", n+1, path)
		}
		role, err := dashboard.ParseRole(words[1])
		if err != nil {
			return fmt.Errorf("line %d of %s: the role is none of viewer, operator and admin", n+1, path)
		}
		add(words[0], role, words[2])
		found = true
	}
	if !found {
		return fmt.Errorf("%s has no line with a name, a role and a password", path)
	}
	return nil
}
