// Package ledger is the log that the programs of a soak run keep of what they saw happen to tasks, and the rules that such
// a log must obey. Several processes append to one file; a process that is killed leaves all the lines it has written.
//
// A line is "<event> <id> <unix milliseconds> <writer>". Lines of one process stand in the order in which it wrote them; since each
// is one write to a file opened for appending, so do lines of different processes of which one caused the other.
package ledger

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Event is what happened to a task. The zero value "" is no event.
type Event string

// The events. The producer writes the first five, the consumer the next three, a test the last one.
const (
	Submitted Event = "submitted" // before Submit is called, each time
	Confirmed Event = "confirmed" // Submit returned nil
	Failed    Event = "failed"    // Submit refused the task, and it is certain that nothing was queued
	Result    Event = "result"    // the future has an outcome
	Revoked   Event = "revoked"   // the revocation was confirmed
	Taken     Event = "taken"     // a worker is free for it; a task that runs at most once is acknowledged after this
	Started   Event = "started"   // first statement of the handler
	Finished  Event = "finished"  // last statement of the handler
	Dead      Event = "dead"      // found among the dead letters at the end of the run
)

// Line is one line of a ledger.
type Line struct {
	Event Event
	ID    string
	At    time.Time // of the writer's clock; the zero time when the line has none
	By    string    // name of the writer; "" when the line has none
}

// Writer appends to a ledger. It is safe for concurrent use, also by other processes with the same file.
type Writer struct {
	file *os.File
	name string
}

// Create opens a ledger for appending; the file is made if there is none. name tells the lines of
// this process from those of others. It must not hold white space. "": the lines have no name.
func Create(path, name string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the caller names the ledger
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &Writer{file: f, name: name}, nil
}

// Write appends one line, with one system call, so that neither a neighbour's line nor a kill can tear it. The id must
// not be empty or hold white space.
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

// Read returns the lines of a ledger; a file that does not exist has none. An end without a newline is left out: it is
// being written. Any other line that is no line of a ledger is an error.
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
