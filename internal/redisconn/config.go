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

// Default timeouts of the options in a [Config].
const (
	DefaultDialTimeout = 5 * time.Second
	DefaultReadTimeout = 5 * time.Second
)

// Config holds the settings of [New]. Redis, with at least one address, is the only required field.
type Config struct {
	// Redis holds the addresses of the servers and how to connect to them; New copies it. MasterName
	// selects Sentinel, several addresses or IsClusterMode select a cluster, and otherwise it is a
	// single server.
	//
	// The package always sets these options itself: MaxRetries (none), ContextTimeoutEnabled,
	// DialerRetries (one), no client-side cache, no maintenance notifications. InsecureSkipVerify and
	// reading from replicas are errors.
	//
	// Defaults: Protocol 2, DialTimeout 5 s, ReadTimeout 5 s, WriteTimeout equal to ReadTimeout,
	// ClientName "swarmiji". The minimum TLS version is 1.2. MinRetryBackoff and MaxRetryBackoff are
	// the first and the longest delay between attempts of this package, with full jitter. Zero: 100 ms
	// and 5 s.
	Redis *redis.UniversalOptions
	// Logger receives only warnings about server settings that weaken durability. Nil: slog.Default().
	Logger *slog.Logger
}

// OptionsOf returns options with which a Conn reaches the same server as c, with the same
// credentials and dialer. The Conn makes its own connections: c is not changed and may be closed.
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

// options checks the configuration and returns a copy of its options with the settings and defaults
// of this package. It returns all problems joined in one error:
//
//   - no options, or an empty address
//   - reading from replicas, or a database other than 0 on a cluster
//   - a negative timeout, or a certificate that is not verified
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
			errs = append(errs, fmt.Errorf("redis: the timeout %v is negative, but every wait must be limited", d))
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
	// the client's own delays, used for redirections of a cluster
	o.MinRetryBackoff, o.MaxRetryBackoff = 0, 0
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
