package sqlevents_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestNumbersFallBack shows that a listener hears events again after a crash of PostgreSQL that has
// lost rows which the listener had read: the server gives their numbers to later rows.
func TestNumbersFallBack(t *testing.T) {
	t.Parallel()
	namespace := testserver.Namespace()
	schema := "s" + strings.ToLower(strings.ReplaceAll(namespace, "-", ""))
	up := testserver.RequirePostgres(t).URL() + "&schema=" + schema
	db := sqltest.OpenSQL(t, up)
	line := testserver.NewRelay(t, sqltest.Addr(t, up))
	ears, mouth := opened(t, config(t, line.URL(up), namespace)), opened(t, config(t, up, namespace))
	numbersFrom := func(n string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+schema+".swarmiji_event ALTER seq RESTART WITH "+n); err != nil {
			t.Fatal(err)
		}
	}
	subscribe(t, ears, "first") // makes the tables
	numbersFrom("1000000")
	s := subscribe(t, ears, "x")
	publish(t, mouth, "x", 1)
	receive(t, s, "x")

	line.SetDown(true)
	if _, err := db.ExecContext(t.Context(), "DELETE FROM "+schema+".swarmiji_event"); err != nil {
		t.Fatal(err)
	}
	numbersFrom("10")
	begun := time.Now()
	testwait.Until(t, "a read has failed", func() bool { return time.Since(begun) > 2*time.Second })
	line.SetDown(false)
	testwait.Until(t, "an event is heard", func() bool {
		publish(t, mouth, "x", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		e, err := s.Receive(ctx)
		return err == nil && e.Type == "x"
	})
}
