package sqlconn

import (
	"os"
	"time"
)

const (
	// fresh is how young the time of a file may be that tells nothing yet: file systems count in steps of some milliseconds, in which there may be another write.
	fresh = 50 * time.Millisecond
	// surely is after what time the database is asked although its files look as they did.
	surely = time.Second
)

// traces are what writers leave at the files of a SQLite database. To look at them costs a tenth of what it costs to ask the database, so that who waits
// for a long time costs little.
type traces struct {
	file  string
	seen  [2]trace // of the database and of its log
	asked time.Time
}

// trace is what a file looks like. Zero: it is not there.
type trace struct {
	size int64
	time time.Time
}

// changed reports whether the database may have changed since it was called last. It is true too often rather than too rarely.
func (t *traces) changed() bool {
	now := time.Now()
	look := [2]trace{traceOf(t.file), traceOf(t.file + "-wal")}
	same := look == t.seen
	t.seen = look
	for _, l := range look {
		if age := now.Sub(l.time); age < fresh { // one in the future, too
			same = false
		}
	}
	if same && now.Sub(t.asked) < surely {
		return false
	}
	t.asked = now
	return true
}

func traceOf(file string) trace {
	info, err := os.Stat(file)
	if err != nil {
		return trace{}
	}
	return trace{info.Size(), info.ModTime()}
}
