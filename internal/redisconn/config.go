package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The times that are used where the options of a [Config] name none.
const (
	DefaultDialTimeout = 5 * time.Second
	DefaultReadTimeout = 5 * time.Second
)

// Config says where Redis is. Redis, with at least one address in it, is the only field that must be set.
type Config struct {
	// Redis says where the servers are and how to speak to them; it is copied. MasterName chooses Sentinel, more than one
	// address or IsClusterMode a cluster, anything else a single server. What this package relies on is set whatever the
	// options say: MaxRetries (none), ContextTimeoutEnabled, DialerRetries (one), no client-side cache, no maintenance
	// notifications. Protocol is 2 unless given. Zero DialTimeout is 5 s, zero ReadTimeout and WriteTimeout are 5 s. The
	// minimum of TLS is 1.2. InsecureSkipVerify, and reading from replicas, are errors. MinRetryBackoff and MaxRetryBackoff are
	// the first and the longest time between attempts of this package, with full jitter. Zero: 100 ms and 5 s. A zero
	// ClientName is "swarmiji".
	Redis *redis.UniversalOptions
	// Logger is told of settings that weaken what is promised, and of nothing else. Nil: slog.Default().
	Logger *slog.Logger
}

// OptionsOf returns options by which a Conn reaches the server that c reaches, with the same
// credentials and through the same dialer. The Conn makes connections of its own: c stays as it is,
// and may be closed.
func OptionsOf(c *redis.Client) *redis.UniversalOptions {
	o := c.Options()
	return &redis.UniversalOptions{
		Addrs: []string{o.Addr}, DB: o.DB, ClientName: o.ClientName, Protocol: o.Protocol, TLSConfig: o.TLSConfig,
		Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext: o.CredentialsProviderContext, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		Dialer: o.Dialer, OnConnect: o.OnConnect, DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns,
		MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns, ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
	}
}

// options checks the configuration and returns the options with all that this package needs.
func (c Config) options() (*redis.UniversalOptions, error) {
	if c.Redis == nil {
		return nil, errors.New("redis: no options are given")
	}
	o := *c.Redis
	var errs []error
	if len(o.Addrs) == 0 || slices.Contains(o.Addrs, "") {
		errs = append(errs, errors.New("redis: no address is given"))
	}
	if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
		errs = append(errs, errors.New("redis: ReadOnly, RouteByLatency and RouteRandomly read from replicas, which may lag behind"))
	}
	if o.DB != 0 && o.MasterName == "" && (len(o.Addrs) > 1 || o.IsClusterMode) {
		errs = append(errs, fmt.Errorf("redis: a cluster has no database %d", o.DB))
	}
	for _, d := range []time.Duration{o.DialTimeout, o.ReadTimeout, o.WriteTimeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("redis: a timeout of %v: every wait must be bounded", d))
		}
	}
	if o.TLSConfig != nil {
		if o.TLSConfig.InsecureSkipVerify {
			errs = append(errs, errors.New("redis: InsecureSkipVerify: the server's certificate is always verified; trust a private authority with RootCAs"))
		}
		o.TLSConfig = o.TLSConfig.Clone()
		o.TLSConfig.MinVersion = max(o.TLSConfig.MinVersion, tls.VersionTLS12)
	}
	o.Addrs = slices.Clone(o.Addrs)
	o.MaxRetries = -1
	o.MinRetryBackoff, o.MaxRetryBackoff = 0, 0 // the client's own, for redirections of a cluster
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1
	o.PipelinePoolSize = -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.AutoPipelineOptions = nil
	o.ClientSideCacheConfig, o.ClientSideCache, o.ClientSideCacheRefreshOnInvalidate = nil, nil, false
	o.DisableIdentity = true
	if o.ClientName == "" {
		o.ClientName = "swarmiji"
	}
	if o.Protocol == 0 {
		o.Protocol = 2
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = DefaultDialTimeout
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = DefaultReadTimeout
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = o.ReadTimeout
	}
	return &o, errors.Join(errs...)
}
