package testserver_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

func through(t *testing.T, r *testserver.Relay) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", r.Addr(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRelaySever(t *testing.T) {
	r := testserver.NewRelay(t, echo(t))
	old := through(t, r)
	mustTalk(t, old)
	r.Sever()
	mustEnd(t, old)
	mustTalk(t, through(t, r))
}

func TestRelayDown(t *testing.T) {
	r := testserver.NewRelay(t, echo(t))
	old := through(t, r)
	mustTalk(t, old)
	r.SetDown(true)
	mustEnd(t, old)
	mustEnd(t, through(t, r))
	r.SetDown(false)
	mustTalk(t, through(t, r))
}

func TestRelayRedirect(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := dead.Addr().String()
	dead.Close()
	r := testserver.NewRelay(t, addr)
	mustEnd(t, through(t, r)) // no process listens there
	r.Redirect(echo(t))
	mustTalk(t, through(t, r))
}

func TestRelayURL(t *testing.T) {
	r := testserver.NewRelay(t, "127.0.0.1:1")
	if got, want := r.URL("redis://user:pa%20ss@127.0.0.1:1/0?x=y"), "redis://user:pa%20ss@"+r.Addr()+"/0?x=y"; got != want {
		t.Errorf("URL = %q, want %q", got, want)
	}
	if !strings.HasPrefix(r.Addr(), "127.0.0.1:") {
		t.Errorf("it listens on %s, want the loopback address only", r.Addr())
	}
}
