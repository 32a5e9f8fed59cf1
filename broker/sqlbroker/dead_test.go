package sqlbroker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// putDead declares the queue q and adds two dead letters, a and b.
func putDead(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
	t.Helper()
	if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := b.PutDead(ctx, "q", broker.Dead{Message: &broker.Message{ID: id}}); err != nil {
			t.Fatal(err)
		}
	}
}

// A scan whose ctx ends while fn runs shows no further letter. It removes those that were chosen,
// and returns ctx's error only if letters are left. The broker in memory does the same.
func TestScanEndsWithItsContext(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		for _, c := range []struct {
			at     string // the letter at which ctx ends
			action broker.DeadAction
			ended  bool
			left   int
		}{
			{"a", broker.DeadStop, false, 2},
			{"b", broker.DeadKeep, false, 2},
			{"a", broker.DeadRemove, true, 1},
			{"b", broker.DeadRemove, false, 0},
		} {
			if _, err := b.PurgeDead(ctx, "q"); err != nil && !errors.Is(err, broker.ErrNoQueue) {
				t.Fatal(err)
			}
			putDead(ctx, t, b)
			scan, cancel := context.WithCancel(ctx)
			err := b.ScanDead(scan, "q", func(d *broker.Dead) broker.DeadAction {
				if d.Message.ID == c.at {
					cancel()
				}
				return c.action
			})
			if c.ended != errors.Is(err, context.Canceled) || !c.ended && err != nil {
				t.Errorf("%v at letter %s: %v, want ctx's error: %v", c.action, c.at, err, c.ended)
			}
			if left, err := broker.ListDead(ctx, b, "q", 10); err != nil || len(left) != c.left {
				t.Errorf("%v at letter %s: %d letters are left, %v; want %d", c.action, c.at, len(left), err, c.left)
			}
		}
	})
}

// A scan whose ctx ends while the database is away returns soon, although it has letters to remove.
func TestScanEndsWhileTheDatabaseIsAway(t *testing.T) {
	p := testserver.RequirePostgres(t)
	url, err := p.Database(t.Context(), strings.ToLower(testserver.Namespace()))
	if err != nil {
		t.Fatal(err)
	}
	proxy := testserver.NewProxy(t, p.Addr())
	b := open(t, config(t, strings.Replace(url, p.Addr(), proxy.Addr(), 1), "n"))
	putDead(t.Context(), t, b)
	scan, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.ScanDead(scan, "q", func(*broker.Dead) broker.DeadAction {
			proxy.Cut()
			cancel()
			return broker.DeadRemove
		})
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ScanDead: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("ScanDead has not returned a minute after its ctx was cancelled")
	}
	proxy.Heal()
	if err := b.Close(testwait.Long(t)); err != nil {
		t.Error(err)
	}
}
