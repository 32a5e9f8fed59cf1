package natsconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
)

// Defaults of [natsconnect.Config].
const (
	DefaultPingInterval = 5 * time.Second
	DefaultDialTimeout  = 5 * time.Second
)

// pingsOut is the number of unanswered pings after which a connection is closed.
const pingsOut = 2

// check returns all problems of the configuration joined in one error. It refuses, for example, no
// or malformed URLs, mixed schemes, and two kinds of credentials. It reads no file.
func check(c natsconnect.Config) error {
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

// checkURL checks one URL and returns its scheme, nats or tls. It refuses another scheme, a missing
// host, and a path, query or fragment. Its errors never quote the URL or the parser's error,
// because either may hold a part of the password.
func checkURL(raw string) (scheme string, err error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("cannot be parsed; reserved characters in user, password and token must be percent-encoded")
	case u.Scheme != "nats" && u.Scheme != "tls":
		return "", errors.New("the scheme must be nats or tls")
	case u.Hostname() == "":
		return "", errors.New("the host is missing")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the URL has more text after the host; reserved characters in user, password and token must be percent-encoded")
	}
	return u.Scheme, nil
}

// options returns the options for the client library: the settings of c.cfg, the dialer, and the
// handlers that report lost and new connections to c. It reads the file of the nkey seed and
// returns an error if that fails.
func (c *Conn) options() ([]nats.Option, error) {
	cfg := c.cfg
	opts := []nats.Option{
		nats.Name(c.name),
		nats.Timeout(cfg.DialTimeout),
		nats.PingInterval(cfg.PingInterval),
		nats.MaxPingsOutstanding(pingsOut),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(round int) time.Duration { return cfg.Backoff.Interval(round - 1) }),
		// Publishing without a connection fails at once, so that the message was certainly not sent.
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.FlusherTimeout(0), // writes go to a buffer, see netconn.Socket
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
