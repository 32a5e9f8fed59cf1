package sqljobs_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// TestRenewalWritesLittle shows that a renewal of a lease writes less than 1 KiB, however large the
// job or the deferred task is.
func TestRenewalWritesLittle(t *testing.T) {
	dsn := postgresURL(t)
	conn, service := watching(t, dsn), serviceOf(t, open(t, dsn))
	t.Run("job", func(t *testing.T) {
		if _, err := service.Create(bound(t), jobs.Spec{Name: "large", Data: largeData(t)}); err != nil {
			t.Fatal(err)
		}
		got, err := service.Get(bound(t), jobs.Request{Selector: jobstore.Selector{Names: []string{"large"}}, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		wantLittle(t, conn, func() error {
			errs, _, err := service.RenewAll(bound(t), []*jobs.Row{&got[0].Row}, time.Hour)
			if err == nil {
				err = errs[0]
			}
			return err
		})
		wantLittle(t, conn, func() error { return service.Renew(bound(t), got[0].ID, got[0].Token, time.Hour) })
	})
	t.Run("deferral", func(t *testing.T) {
		d, err := deferrals.New(deferrals.Config{Jobs: service})
		if err != nil {
			t.Fatal(err)
		}
		a := deferral.Attempt{Queue: "q", Name: "ask", Task: "t1", State: largeData(t)}
		if _, err := d.Defer(bound(t), a, "k", time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Complete(bound(t), "ask", "k", 1); err != nil {
			t.Fatal(err)
		}
		sub, err := d.Subscribe(bound(t), []string{"q"}, broker.SubscribeOptions{Lease: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		got, err := sub.Receive(bound(t))
		if err != nil {
			t.Fatal(err)
		}
		wantLittle(t, conn, func() error { // the subscription renews the lease itself
			was := dueOf(t, conn)
			until(t, "a renewal", func() bool { return dueOf(t, conn) != was })
			return nil
		})
		if err := got.Ack(bound(t)); err != nil {
			t.Error(err)
		}
		if err := sub.Close(bound(t)); err != nil {
			t.Error(err)
		}
	})
}

// largeData returns 256 KiB of JSON that does not compress well.
func largeData(t *testing.T) []byte {
	t.Helper()
	var text strings.Builder
	for text.Len() < 256<<10 {
		text.WriteByte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[rand.IntN(64)])
	}
	data, err := json.Marshal(map[string]string{"x": text.String()})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// wantLittle fails the test if renew writes 1 KiB or more. The smallest of five measurements
// counts. Other processes write too, and the first change of a page after a checkpoint writes the
// whole page.
func wantLittle(t *testing.T, conn *sqlconn.Conn, renew func() error) {
	t.Helper()
	least := int64(1 << 40)
	for range 5 {
		before := written(t, conn)
		if err := renew(); err != nil {
			t.Fatal(err)
		}
		least = min(least, written(t, conn)-before)
	}
	t.Logf("a renewal writes %d bytes", least)
	if least >= 1<<10 {
		t.Errorf("a renewal writes %d bytes", least)
	}
}

// written returns the number of bytes in the server's write-ahead log.
func written(t *testing.T, conn *sqlconn.Conn) (n int64) {
	t.Helper()
	read(t, conn, "SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS bigint)", &n)
	return n
}

func dueOf(t *testing.T, conn *sqlconn.Conn) (due int64) {
	t.Helper()
	read(t, conn, "SELECT coalesce(max(due), 0) FROM swarmiji_deferral", &due)
	return due
}

func read(t *testing.T, conn *sqlconn.Conn, query string, to *int64) {
	t.Helper()
	if err := conn.View(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error { return tx.Row(ctx, query).Scan(to) }); err != nil {
		t.Fatal(err)
	}
}
