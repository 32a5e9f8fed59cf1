package bedrock

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// The defaults of [Config].
const (
	DefaultListen           = "127.0.0.1:8888"
	DefaultMaxConns         = 16 << 10
	DefaultMaxHeader        = 8 << 20
	DefaultMaxBody          = 8 << 20
	DefaultMaxMemory        = 256 << 20
	DefaultMaxAnswer        = 64 << 20
	DefaultTimeout          = 110 * time.Second
	DefaultForgottenTimeout = time.Hour
	DefaultIdleTimeout      = time.Hour
	DefaultHeaderTimeout    = time.Minute
	DefaultBodyTimeout      = time.Minute
	DefaultWriteTimeout     = 30 * time.Second
	DefaultShutdownTimeout  = 10 * time.Second
)

// maxTimeout is the longest time that a request may ask for.
const maxTimeout = 24 * time.Hour

// Config configures a [Server]. Only Service must be set.
type Config struct {
	// Service keeps the jobs. The server does not close it.
	Service *jobs.Service
	// Listen is the address that [Server.Run] listens on. "": 127.0.0.1:8888, which other machines do not reach. Whoever reaches it may
	// do everything: there is no password in the protocol. Serve warns of an address that other machines reach, unless Allow is set or TLS asks
	// for client certificates.
	Listen string
	// Allow are the addresses of clients that are served; the connections of others are closed at once. nil: all are
	// served. One that is empty and not nil is refused.
	Allow []netip.Prefix
	// TLS, if set, is what connections are encrypted with. nil: they are not.
	TLS *tls.Config

	// MaxConns is how many connections there may be; further ones are told so and closed. 0: 16384.
	MaxConns int
	// MaxHeader and MaxBody are the bytes of a request's header block, as it is sent, with all escapes, and of its body. Data travel in the
	// header block. 0: 8 MiB.
	MaxHeader, MaxBody int
	// MaxMemory is how many bytes all requests and answers may take, answers half of it. What finds
	// none is refused with 503, and the jobs of such an answer are given back. 0: 256 MiB. At least
	// MaxHeader and MaxBody together.
	//
	// For each connection, 4 KiB of its request and 4 KiB of its answer are not counted. Nor are
	// 16 KiB that a client sends while it waits for a job, nor what commands make of requests.
	// Large requests of 8 MiB in all are worked on at a time, and others wait. With 64 MiB the
	// process was seen to take 220 MiB at most.
	MaxMemory int64
	// MaxAnswer is how many bytes an answer with several jobs may have: GetJobs then hands out fewer, and Query is refused. 0: 64 MiB.
	// More than half of MaxMemory counts as half.
	MaxAnswer int

	// Timeout is the time of a request that does not say how long it may take, and of a GetJob that waits. 0: 110 s. Those that are
	// forgotten (Connection: forget) have ForgottenTimeout. 0: 1 h.
	Timeout, ForgottenTimeout time.Duration
	// IdleTimeout is how long a connection may wait for the first byte of its next request. 0: 1 h.
	IdleTimeout time.Duration
	// HeaderTimeout and BodyTimeout are from the first byte of each to its last. People type requests by hand. 0: 1 min.
	HeaderTimeout, BodyTimeout time.Duration
	// WriteTimeout is how long a client may take for the next 64 KiB of an answer. For the whole it
	// has WriteTimeout, and a second more for each 64 KiB. 0: 30 s.
	//
	// It is also how long a client's system may acknowledge nothing of an answer with jobs. The
	// jobs are then given back, and the connection ends. Only Linux tells what is acknowledged.
	WriteTimeout time.Duration
	// ShutdownTimeout is how long requests may go on after the end of Run's ctx; a GetJob that waits is answered at once. 0: 10 s.
	ShutdownTimeout time.Duration

	// Logger is told of what no client hears. nil: slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems.
func (c *Config) check() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("bedrock: Service is nil"))
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Allow != nil && len(c.Allow) == 0 {
		errs = append(errs, errors.New("bedrock: Allow has no address; nil serves all"))
	}
	c.Allow = slices.Clone(c.Allow)
	for i, p := range c.Allow {
		if !p.IsValid() {
			errs = append(errs, fmt.Errorf("bedrock: Allow has a prefix that is none: %v", p))
			continue
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 { // clients are compared as what they are in IPv4
			c.Allow[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	for _, n := range []struct {
		name string
		is   *int
		def  int
	}{
		{"MaxConns", &c.MaxConns, DefaultMaxConns},
		{"MaxHeader", &c.MaxHeader, DefaultMaxHeader},
		{"MaxBody", &c.MaxBody, DefaultMaxBody},
		{"MaxAnswer", &c.MaxAnswer, DefaultMaxAnswer},
	} {
		if *n.is == 0 {
			*n.is = n.def
		}
		if *n.is < 0 || *n.is > 1<<30 {
			errs = append(errs, fmt.Errorf("bedrock: %s is %d, not 1 to %d", n.name, *n.is, 1<<30))
		}
	}
	if c.MaxMemory == 0 {
		c.MaxMemory = max(DefaultMaxMemory, 4*int64(c.MaxHeader+c.MaxBody))
	}
	if least := int64(c.MaxHeader) + int64(c.MaxBody); c.MaxMemory < least {
		errs = append(errs, fmt.Errorf("bedrock: MaxMemory is %d, less than MaxHeader and MaxBody, %d", c.MaxMemory, least))
	}
	c.MaxAnswer = int(min(int64(c.MaxAnswer), c.MaxMemory/2))
	for _, d := range []struct {
		name string
		is   *time.Duration
		def  time.Duration
	}{
		{"Timeout", &c.Timeout, DefaultTimeout},
		{"ForgottenTimeout", &c.ForgottenTimeout, DefaultForgottenTimeout},
		{"IdleTimeout", &c.IdleTimeout, DefaultIdleTimeout},
		{"HeaderTimeout", &c.HeaderTimeout, DefaultHeaderTimeout},
		{"BodyTimeout", &c.BodyTimeout, DefaultBodyTimeout},
		{"WriteTimeout", &c.WriteTimeout, DefaultWriteTimeout},
		{"ShutdownTimeout", &c.ShutdownTimeout, DefaultShutdownTimeout},
	} {
		if *d.is == 0 {
			*d.is = d.def
		}
		if *d.is < 0 || *d.is > maxTimeout {
			errs = append(errs, fmt.Errorf("bedrock: %s is %v, not up to %v", d.name, *d.is, maxTimeout))
		}
	}
	return errors.Join(errs...)
}
