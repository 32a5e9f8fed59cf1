package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// TestLogWatch shows that a write to a log is reported, also to a log that comes later or takes the
// place of another.
func TestLogWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db-wal")
	l := watchLog(file).(*logWatch)
	defer l.Close()
	if l.Add() {
		t.Fatal("a log that does not exist is watched")
	}
	write := func() {
		t.Helper()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("frame"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	reported := func() {
		t.Helper()
		if written, ok := l.Wait(testwait.Long(t), nil, time.Hour); !written || !ok {
			t.Fatalf("a write is not reported: %v, %v", written, ok)
		}
	}
	write()
	for range 2 {
		if !l.Add() {
			t.Fatal("a log that exists is not watched")
		}
		write()
		reported()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		for l.added {
			reported()
		}
		write()
	}
	s := wake.New()
	s.Notify()
	if written, ok := l.Wait(testwait.Long(t), s, time.Hour); written || !ok {
		t.Errorf("after a notification wait returns %v, %v", written, ok)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if written, ok := l.Wait(ctx, nil, time.Hour); written || ok {
		t.Errorf("after the end of ctx wait returns %v, %v", written, ok)
	}
}

// TestNoReports shows that a system without reports of writes leaves the polls.
func TestNoReports(t *testing.T) {
	l := &logWatch{log: filepath.Join(t.TempDir(), "app.db-wal")}
	defer l.Close()
	if l.Add() {
		t.Error("a log is watched without a watcher")
	}
	if written, ok := l.Wait(t.Context(), nil, time.Millisecond); written || !ok {
		t.Errorf("wait returns %v, %v, want false and true after the time", written, ok)
	}
}
