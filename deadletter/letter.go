package deadletter

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// ErrFilter is the error of an invalid [Filter], such as one with a negative age.
var ErrFilter = errors.New("deadletter: bad filter")

// Letter is a dead letter with its message decoded. Its bytes belong to the broker: copy what is
// used after the call.
type Letter struct {
	// Dead is what the broker keeps: the message as it was, the queue, the reason, the stack, the
	// attempts and the time.
	broker.Dead
	// ID is the task's.
	ID task.ID
	// Life is how often the task was requeued before.
	Life int
	// Task is what the message says. Of a sealed one without its key the arguments and successors
	// are missing. nil: the message cannot be read.
	Task *task.Envelope
	// ContentType is that of the arguments as they travelled, before they were opened and
	// decompressed.
	ContentType string
	// Unread says why the message, or its arguments, cannot be read. nil: they can.
	Unread error

	codec *wire.Codec
}

// Name returns the task's name, "" where the message cannot be read.
func (l *Letter) Name() string {
	if l.Task == nil {
		return ""
	}
	return l.Task.Name
}

// Bind reads the task's arguments into v. Returns Unread if they cannot be read, and
// [task.ErrBadArgs] if they do not fit v.
func (l *Letter) Bind(v any) error {
	if l.Unread != nil {
		return l.Unread
	}
	return l.codec.BindArgs(l.Task.ContentType, l.Task.Args, v)
}

// suspects is what older versions added to the name of a queue for tasks that may end their
// process.
const suspects = ".suspects"

// home is the queue to which a letter of queue goes back.
func home(queue string) string { return strings.TrimSuffix(queue, suspects) }

func (l *Letters) read(d *broker.Dead) *Letter {
	letter := &Letter{Dead: *d, ID: task.ID(d.Message.ID), Life: wire.Life(d.Message), codec: l.codec}
	e, _, err := l.codec.Decode(d.Message)
	if err != nil {
		letter.Unread = err
		return letter
	}
	letter.ContentType = e.ContentType
	letter.Task, letter.Unread = e, l.codec.Open(home(d.Queue), e)
	if e.ID != "" {
		letter.ID = e.ID
	}
	return letter
}

// Filter selects letters. The zero value selects all; a letter has to fit each field that is set.
type Filter struct {
	// IDs are ids of tasks. nil: any.
	IDs []task.ID
	// Task is the task's name, or a pattern of it in which "*" stands for any text and "?" for one
	// character. "": any. A letter that cannot be read has no name.
	Task string
	// Error is a text that is part of the reason. "": any.
	Error string
	// OlderThan and YoungerThan bound the time since the task was dead-lettered. 0: any. A letter
	// whose time the broker does not know, such as hworker's, fits neither.
	OlderThan, YoungerThan time.Duration
	// Limit is how many letters at most, the oldest first; letters that Requeue refuses do not
	// count. 0: no limit.
	Limit int
}

func (f *Filter) all() bool {
	return f.IDs == nil && f.Task == "" && f.Error == "" && f.OlderThan == 0 && f.YoungerThan == 0 && f.Limit == 0
}

// matcher is a compiled Filter.
type matcher struct {
	f    *Filter
	now  time.Time
	ids  map[string]bool
	glob glob.Pattern
}

func (f *Filter) matcher(now time.Time) (*matcher, error) {
	if f.OlderThan < 0 || f.YoungerThan < 0 || f.Limit < 0 {
		return nil, fmt.Errorf("%w: older than %v, younger than %v, limit %d", ErrFilter, f.OlderThan, f.YoungerThan, f.Limit)
	}
	m := &matcher{f: f, now: now, glob: glob.Compile(f.Task)}
	if f.IDs != nil {
		m.ids = make(map[string]bool, len(f.IDs))
		for _, id := range f.IDs {
			if err := id.Check(); err != nil {
				return nil, err
			}
			m.ids[string(id)] = true
		}
	}
	return m, nil
}

// early reports whether d fits the fields that need no decoding.
func (m *matcher) early(d *broker.Dead) bool {
	age := m.now.Sub(d.At)
	if d.At.IsZero() && (m.f.OlderThan > 0 || m.f.YoungerThan > 0) {
		return false
	}
	return (m.f.OlderThan == 0 || age > m.f.OlderThan) && (m.f.YoungerThan == 0 || age < m.f.YoungerThan) &&
		strings.Contains(d.Reason, m.f.Error)
}

// late reports whether l fits the other fields. A message that names its task in its body may have another id than its task.
func (m *matcher) late(l *Letter) bool {
	return (m.ids == nil || m.ids[string(l.ID)]) && (m.f.Task == "" || l.Task != nil && m.glob.Match(l.Task.Name))
}
