package redisconn

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestTLS shows that a trusted server is accepted, and that an untrusted one is refused before it
// receives a password.
func TestTLS(t *testing.T) {
	t.Parallel()
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	others, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	srv := testserver.OwnRedis(t, testserver.RedisConfig{TLS: files})
	good, err := files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	bad, err := others.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := good.Clone()
	elsewhere.ServerName = "elsewhere.example"
	old := good.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	for name, tt := range map[string]struct {
		cfg  *tls.Config
		addr string
		want string
	}{
		"the right authority": {good, srv.TLSAddr(), ""},
		"another authority":   {bad, srv.TLSAddr(), "unknown authority"},
		"another host":        {elsewhere, srv.TLSAddr(), "elsewhere.example"},
		"too old":             {old, srv.TLSAddr(), "version"},
		"TLS to a plain port": {good, srv.Addr(), "deadline"},
		"plain to a TLS port": {nil, srv.TLSAddr(), "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, Config{Redis: &redis.UniversalOptions{
				Addrs: []string{tt.addr}, Username: srv.User(), Password: srv.Password(), TLSConfig: tt.cfg, ReadTimeout: 2 * time.Second,
			}})
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			v, err := c.Eval(ctx, NewScript("return 1"), []string{"k"})
			if tt.want == "" {
				if v != int64(1) || err != nil {
					t.Errorf("Eval: %v, %v", v, err)
				}
				var e ear
				if err := c.Listen(e.config()).Subscribe(testwait.Long(t), "c"); err != nil {
					t.Errorf("Subscribe: %v", err)
				}
				return
			}
			wantIs(t, err, ErrUnavailable, name)
			if err != nil && !strings.Contains(err.Error(), tt.want) && !strings.Contains(err.Error(), "reset") {
				t.Errorf("%v says nothing of %q", err, tt.want)
			}
		})
	}
}
