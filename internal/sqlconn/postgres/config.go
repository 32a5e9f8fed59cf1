package postgres

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// config is a checked configuration.
type config struct {
	sqlconn.Config
	pool   *pgxpool.Config
	schema string          // quoted
	listen *pgx.ConnConfig // of the connection for notifications; nil: poll
	// local has a statement that sets the parameters of a transaction. It is empty if the sessions
	// have these parameters.
	local []string
}

// settings are the parameters of the server for statements of the adapters, in the order of their
// names.
var settings = [][2]string{
	// Statements outside a transaction must see the commits of the holders of their locks, whatever
	// the database's default. For a single transaction this has no effect: one that conflicts with
	// another then fails, and is repeated.
	{"default_transaction_isolation", "read committed"},
	// The statements rely on their indexes. A plan that the server makes for an empty table would
	// scan a full table. Planning at each call would cost more than the call.
	{"enable_bitmapscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_seqscan", "off"},
	// A process that is frozen during a transaction must release its locks.
	{"idle_in_transaction_session_timeout", "30000"},
	{"jit", "off"},
	// A transaction of a caller may hold a lock for long. A statement that waits for it must give its
	// connection to others in between: it fails and is repeated.
	{"lock_timeout", "2000"},
	{"plan_cache_mode", "force_generic_plan"},
}

// The parameters of a URL that are not for the client.
const (
	paramSchema    = "schema"
	paramPgBouncer = "pgbouncer"
	paramListenURL = "listen_url"
)

// maxSchema is the largest size of the name of a schema, in bytes. The name of the channel has 63.
const maxSchema = 48

// check checks cfg. Without a pool it parses the URL with the client, whose errors quote the URL,
// so check does not return them.
func check(cfg sqlconn.Config, given *pgxpool.Pool) (config, error) {
	p := config{Config: cfg}
	var err error
	if given != nil {
		p.pool = given.Config()
	} else if p.pool, err = p.parse(); err != nil {
		return p, err
	}
	if p.Schema == "" {
		p.Schema = "public"
	}
	if !naming.ValidName(p.Schema) || strings.Contains(p.Schema, ".") || len(p.Schema) > maxSchema || strings.HasPrefix(p.Schema, "pg_") {
		return p, fmt.Errorf("sql: the name of the schema must be 1 to %d letters, digits, '_' and '-', and not begin with pg_", maxSchema)
	}
	p.schema = pgx.Identifier{p.Schema}.Sanitize()
	if !p.PgBouncer {
		p.listen = p.pool.ConnConfig
	}
	if p.ListenURL != "" {
		direct := config{Config: sqlconn.Config{URL: p.ListenURL, TLS: p.TLS, Name: p.Name}}
		pool, err := direct.parse()
		if err != nil {
			return p, fmt.Errorf("%w (in the URL for notifications)", err)
		}
		p.listen = pool.ConnConfig
	}
	return p, p.setParameters(given != nil)
}

// parse returns the configuration of a pool for the URL, and sets the fields of p that the URL has
// parameters for.
func (p *config) parse() (*pgxpool.Config, error) {
	u, err := url.Parse(p.URL)
	switch {
	case err != nil:
		return nil, errors.New("sql: the URL of PostgreSQL cannot be read")
	case u.Scheme != "postgres" && u.Scheme != "postgresql":
		return nil, errors.New("sql: the URL of PostgreSQL begins with postgres://")
	}
	q := u.Query()
	if err := p.takeParameters(q); err != nil {
		return nil, err
	}
	// The client reads a + in other ways than q does. So the other parameters stay as they are.
	u.RawQuery = strings.Join(slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		return name == paramSchema || name == paramPgBouncer || name == paramListenURL
	}), "&")
	mode := q.Get("sslmode")
	switch {
	case p.TLS != nil && mode != "" && mode != "verify-full":
		return nil, fmt.Errorf("sql: sslmode=%s and a TLS configuration contradict each other", mode)
	case p.TLS != nil && p.TLS.InsecureSkipVerify:
		return nil, errors.New("sql: InsecureSkipVerify: the server's certificate is always verified; trust a private authority with RootCAs")
	}
	pool, err := p.parsePool(u, mode)
	if err != nil {
		return nil, err
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
	p.setTLS(pool)
	return pool, nil
}

// takeParameters copies the parameters that are not for the client from q to the fields of p.
// Returns an error if a parameter and its field differ.
func (p *config) takeParameters(q url.Values) error {
	for name, field := range map[string]*string{paramSchema: &p.Schema, paramListenURL: &p.ListenURL} {
		if value := q.Get(name); value != "" {
			if *field != "" && *field != value {
				return fmt.Errorf("sql: the parameter %s and the configuration differ; give one of them", name)
			}
			*field = value
		}
	}
	if q.Has(paramPgBouncer) {
		on, err := strconv.ParseBool(q.Get(paramPgBouncer))
		if err != nil {
			return fmt.Errorf("sql: the parameter %s is true or false", paramPgBouncer)
		}
		p.PgBouncer = p.PgBouncer || on
	}
	return nil
}

// setParameters sets the settings: for the sessions of an own pool, otherwise for each transaction.
// PgBouncer refuses most parameters of a session, so those of the URL are set for each transaction
// too.
func (p *config) setParameters(given bool) error {
	cc := p.pool.ConnConfig
	mode := cc.DefaultQueryExecMode
	if given && mode != pgx.QueryExecModeCacheDescribe && (p.PgBouncer || mode != pgx.QueryExecModeCacheStatement) {
		// The other modes guess the types of parameters, or need several round trips on one session.
		return errors.New("sql: set DefaultQueryExecMode of the pool to pgx.QueryExecModeCacheDescribe, which also works through PgBouncer; without PgBouncer the default works too")
	}
	if p.PgBouncer {
		switch {
		case cc.RuntimeParams["options"] != "":
			return errors.New("sql: PgBouncer refuses the parameter options: write each setting as a parameter of the URL")
		case !given:
			cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
	}
	if !p.PgBouncer && !given {
		for _, s := range settings {
			if _, ok := cc.RuntimeParams[s[0]]; !ok {
				cc.RuntimeParams[s[0]] = s[1]
			}
		}
		return nil
	}
	local := make(map[string]string)
	for _, s := range settings {
		local[s[0]] = s[1]
	}
	if !given {
		for name, value := range cc.RuntimeParams {
			if name != "application_name" { // PgBouncer passes this one on
				local[name] = value
				delete(cc.RuntimeParams, name)
			}
		}
	}
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(local)) {
		calls = append(calls, "set_config("+literal(name)+", "+literal(local[name])+", true)")
	}
	p.local = []string{"SELECT " + strings.Join(calls, ", ")}
	return nil
}

// literal returns a text as a constant of SQL.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

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
		otherwise := "verify-full"
		if local(pool) {
			otherwise = "disable"
		}
		pool, err = parse(cmp.Or(os.Getenv("PGSSLMODE"), otherwise))
	}
	if err != nil || !unverified(pool) {
		return pool, err
	}
	return nil, fmt.Errorf("sql: %s verifies no certificate; verify-full does, disable says that there is no TLS", said)
}

// local reports whether all hosts are this machine: sockets, localhost and loopback addresses.
func local(pool *pgxpool.Config) bool {
	here := func(host string) bool {
		if network, _ := pgconn.NetworkAddress(host, 0); network == "unix" || host == "localhost" {
			return true
		}
		ip := net.ParseIP(host)
		return ip != nil && ip.IsLoopback()
	}
	cc := &pool.ConnConfig.Config
	return here(cc.Host) && !slices.ContainsFunc(cc.Fallbacks, func(f *pgconn.FallbackConfig) bool { return !here(f.Host) })
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

// setTLS sets p.TLS, if it is not nil, for all hosts of pool. It raises the minimum version to
// TLS 1.2.
func (p *config) setTLS(pool *pgxpool.Config) {
	cc := &pool.ConnConfig.Config
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
