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

// The defaults of [Options].
const (
	DefaultMaxBody      = 16 << 20
	DefaultSyncInterval = 5 * time.Second
)

// headroom is the size by which a whole message may exceed its body, in bytes, because the server's
// limit includes the headers.
const headroom = 1 << 20

// Options holds the settings of [Open]. The zero value is usable.
type Options struct {
	// Listen is the loopback address on which other processes may join, such as "127.0.0.1:0" or
	// "localhost:4222". Port 0 selects a free port. "": only this process can connect.
	Listen string
	// SyncAlways makes the server sync every write to the disk before it acknowledges it, so that a
	// loss of power loses no message. It costs a disk sync for each write.
	SyncAlways bool
	// SyncInterval is the interval of disk syncs without SyncAlways. A loss of power loses the
	// messages acknowledged since the last sync. Default: [DefaultSyncInterval], 5 s. Minimum: 10 ms.
	SyncInterval time.Duration
	// MaxBody limits the body of a message, in bytes. 1 MiB more is left for headers. Default:
	// [DefaultMaxBody], 16 MiB.
	MaxBody int
	// StoreLimit limits the data that the server stores, in bytes. Further writes are refused.
	// Default: three quarters of the free disk space when the server starts.
	StoreLimit int64
	// Logger receives the server's log: notices at debug level, warnings at warn level, errors at
	// error level. Default: slog.Default().
	Logger *slog.Logger
}

// complete returns o with its defaults set, the host and the port of Listen, and all problems
// joined: a Listen that is not on the loopback, a SyncInterval below 10 ms, a MaxBody out of range,
// a negative StoreLimit.
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

// loopback returns the host and the port of Listen; "localhost" becomes 127.0.0.1. For "" it
// returns "" and 0. It returns an error for an address that is not a loopback address, because
// the server speaks plain text.
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
