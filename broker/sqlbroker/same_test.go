package sqlbroker_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestSameIDs publishes stored ids among new ones. The first time PostgreSQL refuses the plain
// statement. Each message is stored once, and later batches with stored ids need one transaction.
func TestSameIDs(t *testing.T) {
	t.Parallel()
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testwait.Long(t)
			db, n := sqltest.Counting(t, url)
			b := open(t, sqlbroker.Config{DB: db, Namespace: testserver.Namespace()})
			if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
				t.Fatal(err)
			}
			publish := func(ids ...string) int64 {
				t.Helper()
				var ms []broker.Outgoing
				for _, id := range ids {
					ms = append(ms, broker.Outgoing{Queue: "q", Message: &broker.Message{ID: id, Body: []byte(fmt.Sprint(len(ids)))}})
				}
				before := n.Load()
				if err := b.PublishBatch(ctx, ms); err != nil {
					t.Fatal(err)
				}
				return n.Load() - before
			}
			publish("a", "b", "c")
			publish("b", "d", "d", "c")
			if made := publish("a", "e"); made > 1 {
				t.Errorf("a second batch with a stored id took %d transactions", made)
			}
			s := subscribed(ctx, t, b, "q", 10)
			var got []string
			for range 5 {
				d := received(ctx, t, s)
				got = append(got, d.Message().ID+string(d.Message().Body))
				if err := broker.AckSync(ctx, d); err != nil {
					t.Error(err)
				}
			}
			slices.Sort(got)
			if want := []string{"a3", "b3", "c3", "d4", "e2"}; !slices.Equal(got, want) {
				t.Errorf("received %q, want %q", got, want)
			}
			if st, err := b.Stats(ctx, "q"); err != nil || st.Ready != 0 {
				t.Errorf("%+v and %v after all were acknowledged", st, err)
			}
			if err := b.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
