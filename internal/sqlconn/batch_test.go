package sqlconn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestBatchEndsAfterATime shows that long functions do not share a commit: each caller has its
// result before the next function begins. A caller that left before its function began stores
// nothing.
func TestBatchEndsAfterATime(t *testing.T) {
	const callers = 4
	c := open(t, sqlconn.Config{URL: liteURL(t)})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	release := hold(t, c) // the others wait together for its end
	defer release()
	leaver, leave := context.WithCancel(testwait.Long(t))
	defer leave()
	answered, results := make([]chan struct{}, callers), make([]error, callers)
	for i := range callers {
		answered[i] = make(chan struct{})
		ctx := testwait.Long(t)
		if i == callers-1 {
			ctx = leaver
		}
		go func() {
			defer close(answered[i])
			results[i] = c.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
				if i == 0 {
					leave()
				} else {
					select {
					case <-answered[i-1]:
					case <-time.After(2 * time.Minute):
						return fmt.Errorf("caller %d has no result", i-1)
					}
				}
				for begun := time.Now(); time.Since(begun) <= sqlconn.BatchTime; {
					if _, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES ($1) ON CONFLICT DO NOTHING", i); err != nil {
						return err
					}
				}
				return nil
			})
		}()
		waitQueued(t, c, i+1)
	}
	release()
	for i := range callers {
		<-answered[i]
		if i < callers-1 && results[i] != nil {
			t.Errorf("caller %d: %v", i, results[i])
		}
	}
	if err := results[callers-1]; !errors.Is(err, sqlconn.ErrUnavailable) || errors.Is(err, sqlconn.ErrIndeterminate) {
		t.Errorf("the caller that left: %v", err)
	}
	if n := number(t, c, "SELECT count(*) FROM t"); n != callers-1 {
		t.Errorf("%d rows, not %d", n, callers-1)
	}
}
