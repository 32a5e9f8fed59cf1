package postgres

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// config is a checked configuration.
type config struct {
	sqlconn.Config
	pool *pgxpool.Config
}

// check returns cfg with the configuration of the client's pool, which it parses from the URL and
// the environment. It sets the defaults of the pool, of timeouts and of cfg.Settings that are not
// in the URL. It does not connect.
//
// Returns an error for a URL that cannot be read and for TLS settings that contradict each other.
// Also returns one if a server's certificate would not be verified. The client's errors quote the
// URL, so check does not return them.
func check(cfg sqlconn.Config) (config, error) {
	p := config{Config: cfg}
	u, err := url.Parse(p.URL)
	if err != nil {
		return p, errors.New("sql: the URL of PostgreSQL cannot be read")
	}
	q := u.Query()
	mode := q.Get("sslmode")
	switch {
	case p.TLS != nil && mode != "" && mode != "verify-full":
		return p, fmt.Errorf("sql: sslmode=%s and a TLS configuration contradict each other", mode)
	case p.TLS != nil && p.TLS.InsecureSkipVerify:
		return p, errors.New("sql: InsecureSkipVerify: the server's certificate is always verified; trust a private authority with RootCAs")
	}
	pool, err := p.parsePool(u, mode)
	if err != nil {
		return p, err
	}
	if !q.Has("pool_max_conns") {
		pool.MaxConns = sqlconn.DefaultConnections
	}
	cc := &pool.ConnConfig.Config
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = sqlconn.DefaultDialTimeout
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = p.Name
	}
	if _, ok := cc.RuntimeParams["idle_in_transaction_session_timeout"]; !ok {
		// A process that is frozen during a transaction must release its locks.
		cc.RuntimeParams["idle_in_transaction_session_timeout"] = "30000"
	}
	if _, ok := cc.RuntimeParams["default_transaction_isolation"]; !ok {
		// Statements outside a transaction must see the commits of the holders of their locks, whatever
		// the database's default.
		cc.RuntimeParams["default_transaction_isolation"] = "read committed"
	}
	for name, value := range p.Settings {
		if _, ok := cc.RuntimeParams[name]; !ok {
			cc.RuntimeParams[name] = value
		}
	}
	p.pool = pool
	p.setTLS()
	return p, nil
}

// parsePool lets the client parse the URL, the environment and the service file. mode is the
// sslmode of the URL. It may change u. Without any sslmode it chooses disable, since the client's
// default would continue without TLS after a refusal. Returns an error if the client cannot read
// them, or if a server's certificate would not be verified.
func (p *config) parsePool(u *url.URL, mode string) (*pgxpool.Config, error) {
	parse := func(add string) (*pgxpool.Config, error) {
		if add != "" {
			u.RawQuery = strings.TrimPrefix(u.RawQuery+"&sslmode="+url.QueryEscape(add), "&")
		}
		pool, err := pgxpool.ParseConfig(u.String())
		if err != nil {
			return nil, errors.New("sql: the client cannot read the URL of PostgreSQL, or the variables PG... of the environment: a host, a port or a parameter is wrong")
		}
		return pool, nil
	}
	said := "sslmode=" + mode
	if mode == "" {
		said = "the sslmode of the service file, or else of PGSSLMODE,"
		if p.TLS != nil {
			return parse("disable") // setTLS replaces it with p.TLS
		}
	}
	pool, err := parse("")
	if mode == "" && err == nil && unverified(pool) && optional(pool) {
		// URL and service file have no sslmode. By default the client would try TLS, and continue without
		// TLS if the server refuses it.
		pool, err = parse(cmp.Or(os.Getenv("PGSSLMODE"), "disable"))
	}
	if err != nil || !unverified(pool) {
		return pool, err
	}
	return nil, fmt.Errorf("sql: %s verifies no certificate; verify-full does, disable says that there is no TLS", said)
}

// unverified reports whether the certificate of any host would be accepted without verification.
func unverified(pool *pgxpool.Config) bool {
	return anyTLS(pool, func(t *tls.Config) bool { return t != nil && t.InsecureSkipVerify && t.VerifyPeerCertificate == nil })
}

// optional reports whether the client would connect to any host without TLS.
func optional(pool *pgxpool.Config) bool {
	return anyTLS(pool, func(t *tls.Config) bool { return t == nil })
}

// anyTLS reports whether is returns true for the TLS configuration of any host.
func anyTLS(pool *pgxpool.Config, is func(t *tls.Config) bool) bool {
	cc := &pool.ConnConfig.Config
	return is(cc.TLSConfig) || slices.ContainsFunc(cc.Fallbacks, func(f *pgconn.FallbackConfig) bool { return is(f.TLSConfig) })
}

// setTLS sets p.TLS, if it is not nil, for all hosts, with the name of each host unless p.TLS has
// one. It raises the minimum version to TLS 1.2.
func (p *config) setTLS() {
	cc := &p.pool.ConnConfig.Config
	set := func(host string, t *tls.Config) *tls.Config {
		if p.TLS != nil {
			t = p.TLS.Clone()
			if t.ServerName == "" {
				t.ServerName = host
			}
		}
		if t != nil {
			t.MinVersion = max(t.MinVersion, tls.VersionTLS12)
		}
		return t
	}
	cc.TLSConfig = set(cc.Host, cc.TLSConfig)
	for _, f := range cc.Fallbacks {
		f.TLSConfig = set(f.Host, f.TLSConfig)
	}
}
