package open_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/open"
)

// oneJob saves a job and finds it.
func oneJob(ctx context.Context, store jobs.Store) (found []jobs.Row, err error) {
	err = store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		j := jobs.Row{Job: jobs.Job{Name: "mail", State: jobs.Queued, Data: []byte(`{"to":"a"}`), Created: now, Changed: now, NextRun: now}, Due: now}
		if err := tx.Save(ctx, &j); err != nil {
			return err
		}
		found, err = tx.Due(ctx, jobs.Due{Selector: jobs.Selector{Pattern: "m*"}}, 1)
		return err
	})
	return found, err
}

// TestJobs shows that every URL opens a store that stores jobs.
func TestJobs(t *testing.T) {
	for name, url := range map[string]string{
		"mem": "mem://", "sqlite": "sqlite://" + t.TempDir() + "/jobs.db", "memory": "sqlite::memory:", "postgres": testserver.RequirePostgres(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			store, err := open.Jobs(ctx, url, open.JobsOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := store.Close(ctx); err != nil {
					t.Error(err)
				}
			}()
			if found, err := oneJob(ctx, store); err != nil || len(found) != 1 || found[0].Name != "mail" {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
}

// TestJobsRefused shows that an unsuitable URL gives an error of one sentence, without a secret.
func TestJobsRefused(t *testing.T) {
	for url, want := range map[string]string{
		"amqp://user:hunter2@host":     "amqp:// keeps no jobs; mem://, sqlite://",
		"redis://:hunter2@host":        "redis:// keeps no jobs",
		"mysql://user:hunter2@host/db": "there is no adapter for mysql://",
		"sqlite:":                      "names no SQLite file; write sqlite:app.db",
		"mem:jobs":                     "two slashes are missing after mem: in the URL",
		"postgres://u:hunter2@host/d?sslmode=require": "verifies no certificate",
		"jobs.db":       "no scheme; write sqlite:jobs.db, postgres://",
		"":              "empty; write sqlite:jobs.db, postgres://",
		"sqlit:jobs.db": "unknown scheme sqlit; write sqlite:jobs.db",
		"host:6379":     "no scheme",
		"u:hunter2@h":   "no scheme",
	} {
		s, err := open.Jobs(t.Context(), url, open.JobsOptions{})
		if err == nil {
			_ = s.Close(t.Context())
			t.Errorf("%s is opened", url)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("%s: %v; want %q", url, err, want)
		}
	}
	for _, url := range []string{"mem://", "sqlite::memory:"} {
		if _, err := open.Jobs(t.Context(), url, open.JobsOptions{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}); err == nil {
			t.Errorf("TLS with %s", url)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open.Jobs(ended, "mem://", open.JobsOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// ExampleJobs opens the job store of a URL, which a program can read from a flag or the
// environment.
func ExampleJobs() {
	ctx := context.Background()
	store, err := open.Jobs(ctx, "mem://", open.JobsOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close(ctx) }()
	found, err := oneJob(ctx, store)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(found[0].ID, found[0].Name, string(found[0].Data))
	// Output:
	// 1 mail {"to":"a"}
}
