package sqlbroker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
)

// A scan whose ctx ends while it shows the last letter returns ctx's error. The letters that were
// chosen until then are removed, as those of an earlier page are.
func TestScanEndsWithTheLastLetter(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} {
			if err := b.PutDead(ctx, "q", broker.Dead{Message: &broker.Message{ID: id}}); err != nil {
				t.Fatal(err)
			}
		}
		scan, cancel := context.WithCancel(ctx)
		defer cancel()
		err := b.ScanDead(scan, "q", func(d *broker.Dead) broker.DeadAction {
			if d.Message.ID == "b" {
				cancel()
			}
			return broker.DeadRemove
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ScanDead: %v", err)
		}
		if left, err := broker.ListDead(ctx, b, "q", 10); err != nil || len(left) != 0 {
			t.Errorf("%d letters are left, %v", len(left), err)
		}
	})
}
