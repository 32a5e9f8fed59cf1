package redisconn_test

import (
	"os"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestRefusedConnectionsAreClosed makes connections that the server refuses, because the password
// is wrong. None of them stays open. go-redis 9.20 to 9.22 leaves each of them open.
func TestRefusedConnectionsAreClosed(t *testing.T) {
	srv := testserver.RequireRedis(t)
	o := options(srv, srv.Addr())
	o.Username, o.Password = "nobody", "wrong"
	c := connect(t, o)
	open := func() int {
		t.Helper()
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	attempt := func() {
		t.Helper()
		if _, err := c.Do(testwait.Long(t), "PING"); err == nil || !strings.Contains(err.Error(), "invalid username-password pair") {
			t.Fatalf("a wrong password: %v", err)
		}
	}
	attempt()
	before := open()
	for range 50 {
		attempt()
	}
	if n := open() - before; n > 10 {
		t.Errorf("after 50 refused connections %d are still open", n)
	}
}
