package sqlconn_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// TestLocksStay opens handles of a SQLite file that other handles of this process use. The first
// handle keeps its lock: without it another process could remove the log that the handle writes to.
func TestLocksStay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	use := func() {
		t.Helper()
		c := open(t, sqlconn.Config{URL: "sqlite://" + file})
		err := c.Update(t.Context(), func(ctx context.Context, tx *sqlconn.Tx) error { _, err := tx.Now(ctx); return err })
		if err != nil {
			t.Fatal(err)
		}
		if n := locksOf(t, file); n == 0 {
			t.Error("this process has no lock on the file")
		}
	}
	use()
	use()
}

// locksOf returns the number of locks that this process holds on a file.
func locksOf(t *testing.T, file string) int {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	inode, n := info.Sys().(*syscall.Stat_t).Ino, 0
	for line := range strings.Lines(string(all)) {
		// such as "1: POSIX  ADVISORY  READ 4711 fe:00:123 1073741826 1073742335"
		f := strings.Fields(line)
		if len(f) >= 6 && f[4] == fmt.Sprint(os.Getpid()) && strings.HasSuffix(f[5], fmt.Sprintf(":%d", inode)) {
			n++
		}
	}
	return n
}
