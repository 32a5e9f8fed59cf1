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

// maxTimeout is the longest time limit that a request may set.
const maxTimeout = 24 * time.Hour

// Config configures a [Server]. Only Service is required.
type Config struct {
	// Service is the service of the jobs. The server does not close it.
	Service *jobs.Service
	// Listen is the address on which [Server.Run] listens. Default: 127.0.0.1:8888, which other
	// machines cannot reach. The protocol has no password: every client that reaches the address may
	// execute all commands. Serve logs a warning for an address that other machines can reach, unless
	// Allow is set or TLS requires client certificates.
	Listen string
	// Allow contains the addresses of permitted clients. Connections of other clients are closed at
	// once. nil: all clients. An empty list that is not nil is refused.
	Allow []netip.Prefix
	// TLS, if set, encrypts connections. nil: they are not encrypted.
	TLS *tls.Config

	// MaxConns limits the number of connections. Further ones receive a 503 and are closed. Default:
	// 16384.
	MaxConns int
	// MaxHeader limits the bytes of the header block of a request, as it is sent, with escapes. Data
	// are part of the header block. MaxBody limits the bytes of a body. Default: 8 MiB.
	MaxHeader, MaxBody int
	// MaxMemory limits the bytes of all requests and answers; answers may use half of it. Without free
	// memory the server answers 503, and gives back the jobs of such an answer. Default: 256 MiB. At
	// least MaxHeader and MaxBody together.
	//
	// For each connection, 4 KiB of its request and 4 KiB of its answer do not count. The same
	// applies to 16 KiB that a client sends while it waits for a job, and to the memory that commands
	// need for requests.
	//
	// Requests of more than 4 KiB run together up to a total of 8 MiB. The total is 1/16 of
	// MaxMemory if that is more. Others wait. Lists count 512 bytes more for each job, and wait
	// only for lists. GetJobs claims at most 16 jobs at a time, or so many that their largest data
	// are a quarter of MaxMemory; if others claim as many, it claims one. Query reads so many that
	// their largest data are an eighth of it; others wait. With 64 MiB the process was measured to
	// use at most 231 MiB.
	//
	// A client whose requests use a buffer of more than 256 KiB cannot wait for a job. It receives a
	// 503.
	MaxMemory int64
	// MaxAnswer limits the bytes of an answer with several jobs: GetJobs then returns fewer jobs, and
	// Query fails. Default: 64 MiB. At most half of MaxMemory.
	MaxAnswer int

	// Timeout is the time limit of a request that sets none, and of a waiting GetJob. Default: 110 s.
	// ForgottenTimeout is the time limit of requests with Connection: forget. Default: 1 h.
	Timeout, ForgottenTimeout time.Duration
	// IdleTimeout is the time that a connection may wait for the first byte of its next request.
	// Default: 1 h.
	IdleTimeout time.Duration
	// HeaderTimeout and BodyTimeout limit the time from the first to the last byte of the header block
	// and of the body. Users may type requests by hand. Default: 1 min.
	HeaderTimeout, BodyTimeout time.Duration
	// WriteTimeout limits the time in which a client must accept the next 64 KiB of an answer. The
	// whole answer may take WriteTimeout plus one second for each 64 KiB. Default: 30 s.
	//
	// On Linux an answer with jobs may take 40 times WriteTimeout while the client's system responds:
	// 20 minutes, enough for a megabyte at 1 KiB/s. The connection ends, and its jobs are given back,
	// if that system is silent for WriteTimeout, and for at least one second. The same happens if it
	// does not acknowledge the answer in 40 times WriteTimeout.
	WriteTimeout time.Duration
	// ShutdownTimeout is the time that requests may still take after the end of Run's ctx. A waiting
	// GetJob is answered at once. Default: 10 s.
	ShutdownTimeout time.Duration

	// Logger logs errors that no client receives. Default: slog.Default().
	Logger *slog.Logger
}

// check sets the defaults and checks the fields. Returns all problems, joined.
//
//   - Allow is copied, and IPv4 prefixes in IPv6 form are converted. An empty list that is not nil
//     is an error.
//   - The default of MaxMemory is at least four times MaxHeader and MaxBody together. A MaxMemory
//     below their sum is an error.
//   - MaxAnswer is reduced to half of MaxMemory.
//   - Numbers must be 1 to 1<<30, and durations at most maxTimeout; 0 means the default.
func (c *Config) check() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("bedrock: Config.Service is not set"))
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Allow != nil && len(c.Allow) == 0 {
		errs = append(errs, errors.New("bedrock: Config.Allow is empty; set addresses, or nil to permit all"))
	}
	c.Allow = slices.Clone(c.Allow)
	for i, p := range c.Allow {
		if !p.IsValid() {
			errs = append(errs, fmt.Errorf("bedrock: Config.Allow contains an invalid prefix: %v", p))
			continue
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 { // clients are compared by their IPv4 addresses
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
			errs = append(errs, fmt.Errorf("bedrock: Config.%s is %d, not 1 to %d", n.name, *n.is, 1<<30))
		}
	}
	if c.MaxMemory == 0 {
		c.MaxMemory = max(DefaultMaxMemory, 4*int64(c.MaxHeader+c.MaxBody))
	}
	if least := int64(c.MaxHeader) + int64(c.MaxBody); c.MaxMemory < least {
		errs = append(errs, fmt.Errorf("bedrock: Config.MaxMemory is %d, less than MaxHeader plus MaxBody, %d", c.MaxMemory, least))
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
			errs = append(errs, fmt.Errorf("bedrock: Config.%s is %v, not 0 to %v", d.name, *d.is, maxTimeout))
		}
	}
	return errors.Join(errs...)
}
