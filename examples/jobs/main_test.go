package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/open"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStores(t *testing.T) {
	for name, url := range map[string]string{"memory": "mem://", "SQLite": "sqlite://" + t.TempDir() + "/jobs.db"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out strings.Builder
			if err := run(ctx, &out, url, 100); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			if !strings.HasSuffix(text, "100%\nimport: done\nfeed: from row 0\nfeed: from row 100\nfeed: from row 200\n") {
				t.Errorf("%q", text)
			}
			if strings.Count(text, "\rimport: [") < 3 { // it was seen on its way
				t.Errorf("no progress in %q", text)
			}
		})
	}
}

// TestAnImportThatIsCut: an interrupted import continues at its last row.
func TestAnImportThatIsCut(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + t.TempDir() + "/jobs.db"
	ctx, cut := context.WithTimeout(t.Context(), time.Minute)
	defer cut()
	out := &cutter{cut: cut}
	if err := run(ctx, out, url, 200); err == nil {
		t.Fatal("it was not cut")
	}
	store, err := open.Jobs(t.Context(), url, open.JobsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	j, err := service.Query(t.Context(), 1)
	if err != nil || strings.Contains(string(j.Data), `"done":0`) {
		t.Errorf("%s, %v", j.Data, err)
	}
	if err := service.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := store.Close(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var again strings.Builder
	if err := run(ctx, &again, url, 200); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(again.String(), "  0%") {
		t.Errorf("it began anew: %q", again.String())
	}
}

// cutter ends the program when the import is on its way.
type cutter struct {
	cut context.CancelFunc

	mu   sync.Mutex
	text strings.Builder
}

func (c *cutter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := string(p); strings.HasSuffix(text, "%") && !strings.HasSuffix(text, "  0%") && !strings.HasSuffix(text, "100%") {
		c.cut()
	}
	return c.text.Write(p)
}
