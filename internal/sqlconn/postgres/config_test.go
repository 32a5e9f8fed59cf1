package postgres

import (
	"cmp"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

func TestDefaults(t *testing.T) {
	p, err := check(sqlconn.Config{URL: "postgres://u@h:1,i:2/d", Name: "swarmiji", TLS: &tls.Config{MinVersion: tls.VersionTLS10}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cc := p.pool.ConnConfig
	if p.pool.MaxConns != sqlconn.DefaultConnections || cc.ConnectTimeout != sqlconn.DefaultDialTimeout || cc.RuntimeParams["application_name"] != "swarmiji" {
		t.Errorf("%d connections, dial %v, name %q", p.pool.MaxConns, cc.ConnectTimeout, cc.RuntimeParams["application_name"])
	}
	if len(cc.Fallbacks) != 1 || cc.TLSConfig.ServerName != "h" || cc.Fallbacks[0].TLSConfig.ServerName != "i" || cc.TLSConfig.MinVersion != tls.VersionTLS12 {
		t.Errorf("TLS %+v, further hosts %+v", cc.TLSConfig, cc.Fallbacks)
	}
	p, err = check(sqlconn.Config{URL: "postgres://u@localhost/d?pool_max_conns=3&application_name=me"}, nil)
	if err != nil || p.pool.MaxConns != 3 || p.pool.ConnConfig.RuntimeParams["application_name"] != "me" || p.pool.ConnConfig.TLSConfig != nil || len(p.pool.ConnConfig.Fallbacks) != 0 {
		t.Errorf("what the URL says is not taken: %v", err)
	}
	for _, mode := range []string{"", "&sslmode=", "&sslmode=disable"} {
		p, err = check(sqlconn.Config{URL: "postgres://u@[::1]/d?options=-c%20search_path%3Dx&application_name=a+b" + mode}, nil)
		if err != nil {
			t.Fatal(err)
		}
		cc := p.pool.ConnConfig
		if r := cc.RuntimeParams; r["options"] != "-c search_path=x" || r["application_name"] != "a+b" || cc.TLSConfig != nil || len(cc.Fallbacks) != 0 {
			t.Errorf("with %q the parameters are %q, TLS %v", mode, r, cc.TLSConfig)
		}
	}
}

// TestSSLMode shows the order of precedence: the URL, the service file, the environment. Without
// any of these, connections to other machines use verified TLS, and others none.
func TestSSLMode(t *testing.T) {
	service := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(service, []byte("[full]\nsslmode=verify-full\n[require]\nsslmode=require\n[disable]\nsslmode=disable\n[prefer]\nsslmode=prefer\n[none]\nuser=u\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, c := range []struct {
		env, query string
		tls        *tls.Config
		want       string // "" means no TLS
		hosts      string // default: this machine
	}{
		{"", "", nil, "verify-full", "db.example"},
		{"", "", nil, "verify-full", "localhost,10.0.0.1"},
		{"", "?sslmode=disable", nil, "", "10.0.0.1"},
		{"disable", "", nil, "", "10.0.0.1"},
		{"", "", nil, "", "[::1]"},
		{"", "?host=%2Frun%2Fpostgresql", nil, "", "ignored"},
		{"", "", nil, "", ""},
		{"", "?sslmode=", nil, "", ""},
		{"", "?sslmode=verify-full", nil, "verify-full", ""},
		{"", "?ssl=true", nil, "error", ""},
		{"verify-full", "", nil, "verify-full", ""},
		{"verify-full", "?sslmode=", nil, "verify-full", ""},
		{"verify-full", "?sslmode=disable", nil, "", ""},
		{"verify-ca", "?application_name=a+b", nil, "verify-ca", ""},
		{"disable", "", nil, "", ""},
		{"disable", "?sslmode=verify-full", nil, "verify-full", ""},
		{"disable", "", own, "own", ""},
		{"prefer", "", own, "own", ""},
		{"prefer", "", nil, "error", ""},
		{"require", "", nil, "error", ""},
		{"nonsense", "", nil, "error", ""},
		{"", "?service=full", nil, "verify-full", ""},
		{"", "?service=require", nil, "error", ""},
		{"", "?service=none", nil, "", ""},
		{"disable", "?service=full", nil, "verify-full", ""},
		{"verify-full", "?service=disable", nil, "", ""},
		{"verify-full", "?service=require", nil, "error", ""},
		{"verify-full", "?service=none", nil, "verify-full", ""},
		{"verify-ca", "?service=prefer", nil, "verify-ca", ""},
		{"require", "?service=full", nil, "verify-full", ""},
		{"require", "?service=none", nil, "error", ""},
		{"verify-full", "?service=full&sslmode=disable", nil, "", ""},
		{"", "?sslrootcert=system", nil, "verify-full", ""},
	} {
		t.Run(c.hosts+c.env+c.query, func(t *testing.T) {
			t.Setenv("PGSSLMODE", c.env)
			t.Setenv("PGSERVICEFILE", service)
			p, err := check(sqlconn.Config{URL: "postgres://u:secret@" + cmp.Or(c.hosts, "127.0.0.1,localhost") + "/d" + c.query, TLS: c.tls}, nil)
			got := "error"
			if err == nil {
				got = modeOf(p.pool.ConnConfig.TLSConfig)
				for _, f := range p.pool.ConnConfig.Fallbacks {
					if other := modeOf(f.TLSConfig); other != got {
						t.Errorf("one host with %q, another with %q", got, other)
					}
				}
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error holds the password: %v", err)
			}
			if got != c.want {
				t.Errorf("TLS is %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

// modeOf returns the sslmode of a TLS configuration.
func modeOf(t *tls.Config) string {
	switch {
	case t == nil:
		return ""
	case t.MinVersion == tls.VersionTLS13:
		return "own"
	case !t.InsecureSkipVerify:
		return "verify-full"
	case t.VerifyPeerCertificate != nil:
		return "verify-ca"
	}
	return "unverified"
}
