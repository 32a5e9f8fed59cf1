package sqlresults_test

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/backoff"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func open(t testing.TB, cfg sqlresults.Config) *sqlresults.Store {
	t.Helper()
	cfg.Backoff = backoff.Exponential{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond}
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := sqlresults.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// within is a ctx that ends long after what is awaited should have happened.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func fileURL(t testing.TB) string {
	u := url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "results.db")}
	return u.String()
}

var _ = os.Getenv
