package sqlconn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestRepeatedKey shows that a batch whose insert met a stored key is sent again without a pause:
// the backoff time is for a database that is away.
func TestRepeatedKey(t *testing.T) {
	c := open(t, sqlconn.Config{URL: liteURL(t)})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL)")
	run(t, c, "INSERT INTO t (id) VALUES (1)")
	var pauses, sent atomic.Int64
	var running sync.WaitGroup
	life, end := context.WithCancel(t.Context())
	b := &sqlconn.Batcher[int]{
		Owner: sqlconn.BatchOwner{
			Start:  func(fn func()) bool { running.Go(fn); return true },
			Ready:  func(context.Context) error { return nil },
			Pause:  func(int) bool { pauses.Add(1); return true },
			Life:   life,
			Calls:  t.Context(),
			Closed: sqlconn.ErrClosed,
		},
		Kind:   sqlconn.Always[int](c.Update),
		Resend: func(_ *sqlconn.Entry[int], err error) bool { return sqlconn.IsUnique(err) },
		Send: func(ctx context.Context, tx *sqlconn.Tx, _ []*sqlconn.Entry[int]) error {
			if sent.Add(1) > 1 {
				return nil
			}
			_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (1)")
			return err
		},
	}
	call := sqlconn.NewBatchCall(1)
	e := &sqlconn.Entry[int]{Call: call}
	b.Add(e)
	if err := b.Wait(testwait.Long(t), call, []*sqlconn.Entry[int]{e})[0]; err != nil || sent.Load() != 2 || pauses.Load() != 0 {
		t.Errorf("%v after %d transactions and %d pauses, want 2 and 0", err, sent.Load(), pauses.Load())
	}
	end()
	running.Wait()
}

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
