package sqlite

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// logWatch implements [sqlconn.LogWatch] with the operating system's reports. Not safe for
// concurrent use.
//
// Only the log is watched: on some systems a watch opens and closes its file, and closing the
// database file would end all locks of this process on it.
type logWatch struct {
	log     string
	watcher *fsnotify.Watcher // nil if the system offers none
	added   bool              // the log is watched; it is not before a connection has created it
}

// watchLog returns a watch of the file log. Close it after use.
func watchLog(log string) sqlconn.LogWatch {
	l := &logWatch{log: log}
	if w, err := fsnotify.NewWatcher(); err == nil {
		l.watcher = w
	}
	l.Add()
	return l
}

// Add implements [sqlconn.LogWatch].
func (l *logWatch) Add() bool {
	if l.watcher != nil && !l.added {
		l.added = l.watcher.Add(l.log) == nil
	}
	return l.added
}

// Wait implements [sqlconn.LogWatch].
func (l *logWatch) Wait(ctx context.Context, s wake.Signal, d time.Duration) (written, ok bool) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	if l.watcher != nil {
		events, failures = l.watcher.Events, l.watcher.Errors
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case e := <-events:
		if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
			l.added = false
		}
		return true, true
	case <-failures: // too many reports at once, so that some are lost
		return true, true
	case <-s:
	case <-t.C:
	case <-ctx.Done():
		return false, false
	}
	return false, true
}

// Close implements [sqlconn.LogWatch]. A failure leaves nothing behind that matters here.
func (l *logWatch) Close() {
	if l.watcher != nil {
		_ = l.watcher.Close()
	}
}
