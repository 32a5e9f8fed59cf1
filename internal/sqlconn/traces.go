package sqlconn

import (
	"os"
	"time"
)

const (
	// fresh is the age below which a file's time does not exclude a later change. File systems count
	// time in steps of some milliseconds, and another write may follow in the same step. A commit
	// becomes visible only after its write has reached the disk.
	fresh = 250 * time.Millisecond
	// surely is the time after which the database is asked although its files look unchanged.
	surely = time.Second
)

// traces remembers the size and time of the files of a SQLite database. Checking the files costs a
// tenth of asking the database, so a long wait costs little. Not safe for concurrent use.
type traces struct {
	file  string
	seen  [2]trace // of the database file and of its log
	asked time.Time
}

// trace is the size and time of a file. The zero value means that the file does not exist.
type trace struct {
	size int64
	time time.Time
}

// changed reports whether the database may have changed since the last call. It returns true
// without a change at times, and at least once in the time surely. It reads the sizes and times of
// the files, and counts a file that cannot be read as missing.
func (t *traces) changed() bool {
	now := time.Now()
	look := [2]trace{traceOf(t.file), traceOf(t.file + "-wal")}
	same := look == t.seen
	t.seen = look
	for _, l := range look {
		if age := now.Sub(l.time); age < fresh { // also for a time in the future
			same = false
		}
	}
	if same && now.Sub(t.asked) < surely {
		return false
	}
	t.asked = now
	return true
}

// traceOf returns size and time of a file, or the zero value if the file cannot be read.
func traceOf(file string) trace {
	info, err := os.Stat(file)
	if err != nil {
		return trace{}
	}
	return trace{info.Size(), info.ModTime()}
}
