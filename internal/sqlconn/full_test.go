package sqlconn_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestFullFile shows that a write to a SQLite file without room returns ErrFull and the next step.
// Calls that share their commit with it lose nothing, and later calls succeed when there is room.
func TestFullFile(t *testing.T) {
	c := open(t, sqlconn.Config{URL: liteURL(t)})
	run(t, c, "CREATE TABLE t (id integer PRIMARY KEY, v blob)")
	insert := func(size int) error {
		return c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO t (v) VALUES (zeroblob($1))", size)
			return err
		})
	}
	run(t, c, "PRAGMA max_page_count = 100")
	var committed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				err := insert(10_000)
				if err == nil {
					committed.Add(1)
					continue
				}
				if !errors.Is(err, sqlconn.ErrFull) || !strings.Contains(err.Error(), "free space on its disk") {
					t.Errorf("without room: %v", err)
				}
				return
			}
		})
	}
	all.Wait()
	if n := number(t, c, "SELECT count(*) FROM t"); n != committed.Load() || n == 0 {
		t.Errorf("%d rows, want the %d that were committed", n, committed.Load())
	}
	run(t, c, "PRAGMA max_page_count = 1000")
	if err := insert(10_000); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
