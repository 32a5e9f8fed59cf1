package natsconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/task"
)

// The defaults of [Config].
const (
	DefaultPingInterval = 5 * time.Second
	DefaultDialTimeout  = 5 * time.Second
)

// pingsOut is how many pings may be without an answer before a connection is given up.
const pingsOut = 2

// Config says where the servers are and how to speak to them. Either URLs or InProcess must be set.
type Config struct {
	// URLs of one cluster's nodes, in any order: nats://user:password@host:port, nats://token@host:port, tls:// to insist on
	// TLS. Further nodes are learnt from the servers.
	URLs []string
	// InProcess is a server in this process; it is connected to without a network. URLs must then be empty.
	InProcess nats.InProcessConnProvider
	// TLS is used for all URLs, and a server without TLS is then refused before anything is said to it; it is not changed.
	// Nil: the system's authorities where the scheme is tls or the server asks for TLS. A missing ServerName is the URL's host;
	// the minimum is TLS 1.2.
	TLS *tls.Config
	// Credentials is a file with a user's JWT and seed, as the nsc tool writes it. It is read at each connect.
	Credentials string
	// NKeySeed is a file with an nkey seed. It is read when the Conn connects first.
	NKeySeed string
	// Name is shown in the server's lists of connections. Empty: none.
	Name string
	// PingInterval is how often the client asks the server for a sign of life; after two questions without an answer the
	// connection is given up at the third. 0: 5 s, so that a dead link is noticed after 10 to 15 s.
	PingInterval time.Duration
	// DialTimeout bounds one attempt, TLS and the handshake included. 0: 5 s.
	DialTimeout time.Duration
	// Backoff is between two rounds over all URLs. Zero: up to 100 ms at first, up to 5 s in the end.
	Backoff task.Backoff
	// Logger is told of TLS without verification at the first connect, and of nothing else. Nil: slog.Default().
	Logger *slog.Logger
}

// check returns all problems of the configuration.
func (c Config) check() error {
	var errs []error
	switch {
	case len(c.URLs) == 0 && c.InProcess == nil:
		errs = append(errs, errors.New("nats: no URL is given"))
	case len(c.URLs) > 0 && c.InProcess != nil:
		errs = append(errs, errors.New("nats: URLs and a server in the process are given"))
	}
	schemes := make(map[string]bool)
	for i, u := range c.URLs {
		scheme, err := checkURL(u)
		if err != nil {
			errs = append(errs, fmt.Errorf("nats: URL %d: %w", i+1, err))
			continue
		}
		schemes[scheme] = true
	}
	if len(schemes) > 1 {
		errs = append(errs, errors.New("nats: URLs with the schemes nats and tls are mixed"))
	}
	if c.Credentials != "" && c.NKeySeed != "" {
		errs = append(errs, errors.New("nats: a credentials file and an nkey seed are given"))
	}
	if c.PingInterval < 0 {
		errs = append(errs, fmt.Errorf("nats: ping interval %v is negative", c.PingInterval))
	}
	if c.DialTimeout < 0 {
		errs = append(errs, fmt.Errorf("nats: dial timeout %v is negative", c.DialTimeout))
	}
	return errors.Join(errs...)
}

// checkURL never quotes the URL nor the parser's error: either may hold a part of the password.
func checkURL(raw string) (scheme string, err error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("cannot be parsed; reserved characters in user, password and token must be percent-encoded")
	case u.Scheme != "nats" && u.Scheme != "tls":
		return "", errors.New("the scheme must be nats or tls")
	case u.Hostname() == "":
		return "", errors.New("there is no host")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("there is more after the host, which would be ignored; reserved characters in user, password and token must be percent-encoded")
	}
	return u.Scheme, nil
}

// options returns what the client library is told.
func (c *Conn) options() ([]nats.Option, error) {
	cfg := c.cfg
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.Timeout(cfg.DialTimeout),
		nats.PingInterval(cfg.PingInterval),
		nats.MaxPingsOutstanding(pingsOut),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(round int) time.Duration { return cfg.Backoff.Interval(round - 1) }),
		// What is published without a connection fails at once: it was surely not sent.
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.FlusherTimeout(0), // writes go to memory, see socket
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.lost(nil, err) }),
		nats.ReconnectHandler(c.connected),
		nats.ErrorHandler(c.asyncError),
	}
	if cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(dialer{c}))
	} else {
		opts = append(opts, nats.SetCustomDialer(dialer{c}), func(o *nats.Options) error {
			o.Servers = cfg.URLs
			return nil
		})
	}
	if cfg.TLS != nil {
		t := cfg.TLS.Clone()
		t.MinVersion = max(t.MinVersion, tls.VersionTLS12)
		opts = append(opts, nats.Secure(t))
	}
	switch {
	case cfg.Credentials != "":
		opts = append(opts, nats.UserCredentials(cfg.Credentials))
	case cfg.NKeySeed != "":
		o, err := nats.NkeyOptionFromSeed(cfg.NKeySeed)
		if err != nil {
			return nil, fmt.Errorf("the nkey seed file: %w", err)
		}
		opts = append(opts, o)
	}
	return opts, nil
}
