package sqlconn

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/internal/reach"
)

// target returns the path of the file to which a symbolic link leads, also if that file does not
// exist. SQLite puts the log beside that file. It returns other paths, and those that cannot be
// read, unchanged but for links of their directory.
func target(file string) string {
	const mostLinks = 40 // as Linux
	for range mostLinks {
		dir, name := filepath.Split(file)
		if resolved, err := filepath.EvalSymlinks(filepath.Clean(dir)); err == nil {
			dir = resolved
		}
		file = filepath.Join(dir, name)
		to, err := os.Readlink(file)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		file = to
	}
	return file
}

// remember sets l.made to the file that the user's pool has open, at the first connection. Without
// it checkPlace checks nothing. It takes l.mu.
func (l *lite) remember() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil && l.file != "" {
		l.made, _ = os.Stat(l.file)
	}
}

// create creates the file with mode 0600 if it does not exist, and sets l.made. SQLite would make
// it readable by other users. SQLite gives its additional files the same mode. For a database in
// memory it does nothing. Returns ErrAccess, without the path, if the file cannot be created.
//
// It never opens an existing file. Closing it would end all locks of this process on the file,
// those of other connections too. Another process could then remove the log that they write to.
// Source: https://sqlite.org/howtocorrupt.html, section 2.2.
func (l *lite) create() error {
	if l.file == "" {
		return nil
	}
	f, err := os.OpenFile(l.file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	switch {
	case err == nil:
		err = f.Close() // no connection has opened it
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	if err == nil {
		l.made, err = os.Stat(l.file)
	}
	if err == nil && l.made.IsDir() {
		err = errors.New("it is a directory")
	}
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err // the error must not contain the path
		}
		return &failure{ErrAccess, &reach.Error{Server: "the SQLite file of the URL", Found: err.Error(), Next: "make its directory, or correct its path", Cause: err}}
	}
	return nil
}

// errMoved is the cause of the error of a file that is not at its path any more.
var errMoved = errors.New("it was moved, deleted or replaced while this program uses it")

// errNoLog is the cause of the error of a file whose log is not at its path any more.
var errNoLog = errors.New("its log was deleted or replaced while this program uses it")

// checkPlace returns ErrAccess if the file at the path or its log is not the one that is open.
// SQLite would continue with the open one, and the changes would be lost with it. It takes l.mu.
func (l *lite) checkPlace() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil {
		return nil
	}
	if now, err := os.Stat(l.file); err != nil || !os.SameFile(l.made, now) {
		return &failure{ErrAccess, &reach.Error{Server: "the SQLite file of the URL", Found: errMoved.Error(), Next: "put it back, or start the program again", Cause: errMoved}}
	}
	now, err := os.Stat(l.file + "-wal")
	if l.log == nil && err == nil {
		l.log = now
	}
	if l.log != nil && (err != nil || !os.SameFile(l.log, now)) {
		return &failure{ErrAccess, &reach.Error{Server: "the SQLite file of the URL", Found: errNoLog.Error(), Next: "start the program again; changes since then are lost", Cause: errNoLog}}
	}
	return nil
}

// forgetLog makes checkPlace take the log that it finds next for the right one. Call it before the
// writer is closed: SQLite deletes the log with the last connection.
func (l *lite) forgetLog() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = nil
}
