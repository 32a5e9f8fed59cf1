package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [Config].
const (
	DefaultTTL       = task.DefaultResultTTL // also Celery's result_expires
	DefaultMaxResult = 16 << 20
	DefaultBuffer    = 4 << 10
)

// maxKeyPrefix is the longest KeyPrefix in bytes.
const maxKeyPrefix = 128

// Config holds the settings of [New]. URL is the only required field.
type Config struct {
	// URL is Celery's result_backend: redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for TLS.
	// The port is 6379 and the database 0 if they are missing. Its only parameter is ssl_cert_reqs
	// with the value required; use TLS for others.
	URL string
	// TLS is the configuration of connections to a rediss URL. Default: the system's certificates.
	TLS *tls.Config
	// Name is shown in the server's list of connections. Default: "swarmiji".
	Name string
	// KeyPrefix is Celery's global_keyprefix, before each key and channel: letters, digits and any of
	// "_-:.", at most 128 bytes. Default: none.
	KeyPrefix string
	// Msgpack writes documents in msgpack, for Celery's result_serializer msgpack. Both encodings are
	// read. Default: false, JSON.
	Msgpack bool
	// TTL is the retention of a record whose own TTL is 0, in whole milliseconds. 0: [DefaultTTL], 24
	// hours.
	TTL time.Duration
	// MaxResult is the largest Result in bytes. Save returns [resultstore.ErrTooLarge] for a larger
	// one. 0: [DefaultMaxResult], 16 MiB.
	MaxResult int
	// Buffer is the number of notifications that wait for a slow submitter, each a whole document.
	// Beyond it the oldest are lost, and the submitter finds those records with Load. 0:
	// [DefaultBuffer], 4,096.
	Buffer int
	// Logger receives a warning when a stream of notifications was interrupted. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger. The error joins
// all problems. It does not check the URL.
func (c Config) complete() (Config, error) {
	var errs []error
	for _, n := range []struct {
		field     string
		v         *int
		otherwise int
	}{{"MaxResult", &c.MaxResult, DefaultMaxResult}, {"Buffer", &c.Buffer, DefaultBuffer}} {
		if *n.v < 0 {
			errs = append(errs, fmt.Errorf("celery/redis: %s is negative", n.field))
		}
		if *n.v == 0 {
			*n.v = n.otherwise
		}
	}
	if c.TTL < 0 || c.TTL > 0 && c.TTL < time.Millisecond {
		errs = append(errs, errors.New("celery/redis: TTL is negative or shorter than 1ms"))
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if len(c.KeyPrefix) > maxKeyPrefix || strings.ContainsFunc(c.KeyPrefix, notInPrefix) {
		errs = append(errs, fmt.Errorf("celery/redis: KeyPrefix must be at most %d letters, digits, '_', '-', ':' and '.'", maxKeyPrefix))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

// notInPrefix reports whether a KeyPrefix may not contain r.
func notInPrefix(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-:.", r)
}

// options returns the options of the client for the URL. No error holds a password.
func (c *Config) options() (*goredis.UniversalOptions, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("celery/redis: URL is not valid")
	}
	o := &goredis.UniversalOptions{ClientName: c.Name, Username: u.User.Username()}
	o.Password, _ = u.User.Password()
	switch u.Scheme {
	case "redis":
	case "rediss":
		if o.TLSConfig = c.TLS; o.TLSConfig == nil {
			o.TLSConfig = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
		}
	default:
		return nil, errors.New("celery/redis: URL must begin with redis:// or rediss://")
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "6379"
	}
	o.Addrs = []string{net.JoinHostPort(host, port)}
	if database := strings.Trim(u.Path, "/"); database != "" {
		if o.DB, err = strconv.Atoi(database); err != nil || o.DB < 0 {
			return nil, errors.New("celery/redis: the path of URL must be the number of a database")
		}
	}
	for name, values := range u.Query() {
		if value := values[0]; name != "ssl_cert_reqs" || value != "required" && value != "CERT_REQUIRED" {
			return nil, fmt.Errorf("celery/redis: URL has the parameter %q; it is not supported, or not with this value", name)
		}
	}
	return o, nil
}

// content returns the content type of the documents.
func (c *Config) content() string {
	if c.Msgpack {
		return serializer.ContentMsgpack
	}
	return serializer.ContentJSON
}
