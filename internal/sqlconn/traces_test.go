package sqlconn

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTraces shows that changed never misses a write. It may return true without a write.
func TestTraces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.db")
	log := file + "-wal"
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	grow := func(name string, age time.Duration) { // sets the age of the last write
		t.Helper()
		at := time.Now().Add(-age)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "1")
	grow(file, time.Hour)
	tr := traces{file: file}
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"the first look", func() {}, true},
		{"nothing since", func() {}, false},
		{"a log appears", func() { write(log, "12"); grow(log, time.Minute) }, true},
		{"nothing since the log appeared", func() {}, false},
		{"the log was written over, and is as long as before", func() { write(log, "34"); grow(log, time.Second) }, true},
		{"a write of this moment", func() { write(log, "56") }, true},
		{"perhaps another one in the same moment", func() { grow(log, 0) }, true},
		{"the log is longer", func() { write(log, "567"); grow(log, time.Second) }, true},
		{"nothing since it grew", func() {}, false},
		{"a file of the future", func() { grow(log, -time.Hour) }, true},
		{"it is still there", func() {}, true},
		{"the log is gone", func() { _ = os.Remove(log) }, true},
		{"nothing since it went", func() {}, false},
		{"the database has not been asked for long", func() { tr.asked = time.Now().Add(-surely) }, true},
	} {
		step.do()
		if got := tr.changed(); got != step.want {
			t.Errorf("%s: changed %v", step.what, got)
		}
	}
}
