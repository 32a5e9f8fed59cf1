package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Defaults of [Options].
const (
	DefaultMaxBody      = 16 << 20
	DefaultSyncInterval = 5 * time.Second
)

// headroom is how much larger than a body a whole message may be: headers count for the server's limit.
const headroom = 1 << 20

// Options of [Open]. The zero value is usable.
type Options struct {
	// Listen is the loopback address on which other processes may join, such as "127.0.0.1:0" or "localhost:4222"; port 0 is a
	// free one. "": the server is for this process alone.
	Listen string
	// SyncAlways makes the server sync every write to the disk before it acknowledges it, so that a loss of power loses
	// nothing. It costs a trip to the disk each.
	SyncAlways bool
	// SyncInterval is how often what was written is synced to the disk otherwise: a loss of power takes what was
	// acknowledged in that time. Each costs the disk some work while much is written. 0: [DefaultSyncInterval], 5 s. At least 10 ms.
	SyncInterval time.Duration
	// MaxBody is the size of the largest message's body in bytes; 1 MiB more is left for headers. 0: [DefaultMaxBody], 16 MiB.
	MaxBody int
	// StoreLimit is how many bytes the server stores at most; beyond it writes are refused. 0: three quarters of
	// what was free on the disk when the server started.
	StoreLimit int64
	// Logger gets what the server has to say: its notices at debug level, its warnings at warn level, its errors at error
	// level. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns o with its defaults, the host and the port to listen on, and all problems.
func (o Options) complete() (Options, string, int, error) {
	var errs []error
	host, port, err := loopback(o.Listen)
	if err != nil {
		errs = append(errs, err)
	}
	switch {
	case o.SyncInterval == 0:
		o.SyncInterval = DefaultSyncInterval
	case o.SyncInterval < 10*time.Millisecond:
		errs = append(errs, errors.New("embedded: SyncInterval is below 10ms; use SyncAlways"))
	}
	switch {
	case o.MaxBody == 0:
		o.MaxBody = DefaultMaxBody
	case o.MaxBody < 0:
		errs = append(errs, errors.New("embedded: MaxBody is negative"))
	case o.MaxBody > math.MaxInt32/16-headroom:
		errs = append(errs, fmt.Errorf("embedded: MaxBody is above %d", math.MaxInt32/16-headroom))
	}
	if o.StoreLimit < 0 {
		errs = append(errs, errors.New("embedded: StoreLimit is negative"))
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, host, port, errors.Join(errs...)
}

// loopback takes Listen apart. Other addresses than loopback ones are refused: the server speaks plain text.
func loopback(listen string) (host string, port int, err error) {
	if listen == "" {
		return "", 0, nil
	}
	host, number, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, errors.New("embedded: Listen must be host:port, such as 127.0.0.1:0")
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return "", 0, errors.New("embedded: Listen: the port must be a number from 0 to 65535")
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.Unmap().IsLoopback() {
		return "", 0, errors.New("embedded: Listen must be a loopback address: the server has no TLS; run nats-server to serve other machines")
	}
	return host, int(n), nil
}
