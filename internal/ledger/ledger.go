// Package ledger is the event log of a soak run, with the rules that such a log must obey. The
// programs of the run write into it which events of tasks they see. Several processes append to one
// file. A killed process leaves all the lines it has written.
//
// A line is "<event> <id> <unix milliseconds> <writer>". The lines of one process are in the order
// of writing. Each line is one write to a file opened for appending, so lines of different
// processes are in the order of cause and effect.
package ledger

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Event is a step in the life of a task. The zero value "" is not an event.
type Event string

// The events. The producer writes the first five, the consumer the next three, and a test the last
// one.
const (
	Submitted Event = "submitted" // before each call of Submit
	Confirmed Event = "confirmed" // Submit returned nil
	Failed    Event = "failed"    // Submit refused the task, and certainly no message was queued
	Result    Event = "result"    // the future has an outcome
	Revoked   Event = "revoked"   // the revocation was confirmed
	// a worker is free for it; a task that runs at most once is acknowledged after this
	Taken    Event = "taken"
	Started  Event = "started"  // first statement of the handler
	Finished Event = "finished" // last statement of the handler
	Dead     Event = "dead"     // found in the dead-letter queue at the end of the run
)

// Line is one line of a ledger.
type Line struct {
	Event Event
	ID    string
	At    time.Time // by the writer's clock; zero if the line has no time
	By    string    // name of the writer; "" if the line has no name
}

// Writer appends to a ledger. Safe for concurrent use, also by other processes with the same file.
type Writer struct {
	file *os.File
	name string
}

// Create opens a ledger for appending and creates a missing file. name marks the lines of this
// process. It must not contain white space. "": the lines have no name.
func Create(path, name string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // any path
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &Writer{file: f, name: name}, nil
}

// Write appends one line with one system call, so that another writer or a kill cannot split it.
// The id must not be empty or contain white space; Write does not check that. Returns the error of
// the file.
func (w *Writer) Write(e Event, id string) error {
	line := make([]byte, 0, 96)
	line = append(line, e...)
	line = append(line, ' ')
	line = append(line, id...)
	line = append(line, ' ')
	line = strconv.AppendInt(line, time.Now().UnixMilli(), 10)
	if w.name != "" {
		line = append(line, ' ')
		line = append(line, w.name...)
	}
	line = append(line, '\n')
	if _, err := w.file.Write(line); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Read returns the lines of a ledger. A file that does not exist has no lines. Read ignores an end
// without a newline, because a process may be writing it. Any other line that does not parse is an
// error.
func Read(path string) ([]Line, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the caller names the ledger
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	end := bytes.LastIndexByte(data, '\n')
	if end < 0 {
		return nil, nil
	}
	var lines []Line
	for text := range strings.Lines(string(data[:end+1])) {
		l, err := parse(strings.TrimSuffix(text, "\n"))
		if err != nil {
			return nil, fmt.Errorf("ledger: line %d of %s: %w", len(lines)+1, path, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// parse returns the line in text: event, id, and optionally time and name. Returns an error for
// another text.
func parse(text string) (Line, error) {
	event, rest, _ := strings.Cut(text, " ")
	id, rest, stamped := strings.Cut(rest, " ")
	stamp, by, _ := strings.Cut(rest, " ")
	l := Line{Event: Event(event), ID: id, By: by}
	switch l.Event {
	case Submitted, Confirmed, Failed, Result, Revoked, Taken, Started, Finished, Dead:
	default:
		return Line{}, fmt.Errorf("%q begins with no event", text)
	}
	if id == "" {
		return Line{}, fmt.Errorf("%q has no id", text)
	}
	if stamped {
		ms, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil {
			return Line{}, fmt.Errorf("%q has no time in milliseconds at its end", text)
		}
		l.At = time.UnixMilli(ms)
	}
	return l, nil
}
