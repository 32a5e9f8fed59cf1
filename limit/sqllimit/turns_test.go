package sqllimit_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/limit"
)

// TestLockedKey makes many calls for a key that another process has locked. Only one of them uses a
// connection, so that other keys and adapters have the rest.
func TestLockedKey(t *testing.T) {
	ctx, namespace, url := testwait.Long(t), testserver.Namespace(), testserver.RequirePostgres(t).URL()
	l := opened(t, url, namespace)
	one, two := limit.Permit{Key: "locked", Max: 100}, limit.Permit{Key: "other", Max: 100}
	if d, err := l.Acquire(ctx, "first", time.Minute, one, two); err != nil || !d.Granted {
		t.Fatal(d, err)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte("swarmiji limit " + namespace + " locked"))
	lock := int64(h.Sum64())
	own := sqltest.Begin(t, url)
	if _, err := own.Tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::bigint)", lock); err != nil {
		t.Fatal(err)
	}
	db := sqltest.OpenSQL(t, url)
	waiting := func() (n int) {
		t.Helper()
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND (classid::bigint << 32) | objid::bigint = $1", lock).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	calls, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() { _, _ = l.Acquire(calls, fmt.Sprint("w", i), time.Minute, one) })
	}
	testwait.Until(t, "a call waits for the lock", func() bool { return waiting() > 0 })
	for i := range 20 {
		if d, err := l.Acquire(ctx, fmt.Sprint("other", i), time.Minute, two); err != nil || !d.Granted {
			t.Errorf("another key: %+v, %v", d, err)
		}
		if n := waiting(); n > 1 {
			t.Fatalf("%d connections wait for the lock of one key", n)
		}
	}
	if err := own.Rollback(); err != nil {
		t.Error(err)
	}
	if d, err := l.Acquire(ctx, "last", time.Minute, one); err != nil || !d.Granted {
		t.Errorf("after the lock: %+v, %v", d, err)
	}
	cancel()
	all.Wait()
}
