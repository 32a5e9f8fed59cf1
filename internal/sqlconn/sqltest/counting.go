package sqltest

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/postgres"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqlite"
)

// Counting opens the database of a URL and returns it with a counter of its transactions and views.
// The database is closed at the end of the test.
func Counting(t testing.TB, url string) (*sqlconn.DB, *atomic.Int64) {
	t.Helper()
	d := counting{postgres.Driver{}, new(atomic.Int64)}
	if strings.HasPrefix(url, "sqlite:") {
		d.Driver = sqlite.Driver{}
	}
	db, err := sqlconn.Open(d, sqlconn.Config{URL: url, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := db.Close(ctx); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db, d.n
}

// counting is a driver whose databases count.
type counting struct {
	sqlconn.Driver
	n *atomic.Int64
}

// Open implements [sqlconn.Driver]: it returns the database of the driver as one that counts.
func (c counting) Open(cfg sqlconn.Config) (sqlconn.Database, error) {
	db, err := c.Driver.Open(cfg)
	return counted{db, c.n}, err
}

// counted is a database that counts its transactions and views in n.
type counted struct {
	sqlconn.Database
	n *atomic.Int64
}

// Update implements [sqlconn.Database]: it adds 1 to the counter and calls Update of the database.
func (c counted) Update(ctx, life context.Context, kind sqlconn.Kind, fn sqlconn.Func) ([]string, error) {
	c.n.Add(1)
	return c.Database.Update(ctx, life, kind, fn)
}

// View implements [sqlconn.Database]: it adds 1 to the counter and calls View of the database.
func (c counted) View(ctx, life context.Context, fn sqlconn.Func) error {
	c.n.Add(1)
	return c.Database.View(ctx, life, fn)
}
