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

// ErrFilter is the error of an invalid [Filter], for example with a negative age.
var ErrFilter = errors.New("deadletter: bad filter")

// Letter is a dead letter with its decoded message. Its bytes belong to the broker: copy them to
// use them after the call.
type Letter struct {
	// Dead holds the unchanged message, the queue, the reason, the stack, the attempts and the time.
	broker.Dead
	// ID is the id of the task.
	ID task.ID
	// Life counts how often the task was requeued before.
	Life int
	// Task is the decoded message. For a sealed message without its key, arguments and successors are
	// missing. nil: the message cannot be decoded.
	Task *task.Envelope
	// ContentType is the content type of the arguments in the message, before they were decrypted and
	// decompressed.
	ContentType string
	// Unread is the error of decoding the message or its arguments. nil: they can be read.
	Unread error

	codec *wire.Codec
}

// Name returns the task's name, or "" if the message cannot be decoded.
func (l *Letter) Name() string {
	if l.Task == nil {
		return ""
	}
	return l.Task.Name
}

// Bind decodes the task's arguments into v. Returns Unread if they cannot be read, and
// [task.ErrBadArgs] if they do not fit v.
func (l *Letter) Bind(v any) error {
	if l.Unread != nil {
		return l.Unread
	}
	return l.codec.BindArgs(l.Task.ContentType, l.Task.Args, v)
}

// suspects is the suffix of the queues that older versions had for tasks that may end their
// process.
const suspects = ".suspects"

// home returns the queue into which a letter of queue is requeued.
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

// Filter selects letters. The zero value selects all. A letter must match each field that is set.
type Filter struct {
	// IDs are ids of tasks. nil: all.
	IDs []task.ID
	// Task is the task's name or a pattern: "*" matches any text and "?" one character. "": all. A
	// letter that cannot be decoded has no name.
	Task string
	// Root is the id of a workflow, see [task.Envelope.RootID]. "": all. A letter that cannot be
	// decoded matches no root.
	Root task.ID
	// Error is a part of the reason. "": all.
	Error string
	// Headers are headers of the task with their values: each must be equal. nil: all. A letter that
	// cannot be decoded has no headers.
	Headers map[string]string
	// OlderThan and YoungerThan limit the time since the task was dead-lettered. 0: all. A letter
	// without a time, such as those of hworker, matches neither.
	OlderThan, YoungerThan time.Duration
	// Limit is the largest number of letters, the oldest first. Letters that Requeue refuses do not
	// count. 0: no limit.
	Limit int
}

func (f *Filter) all() bool {
	return f.IDs == nil && f.Task == "" && f.Root == "" && f.Error == "" && len(f.Headers) == 0 && f.OlderThan == 0 && f.YoungerThan == 0 && f.Limit == 0
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

// early reports whether d matches the fields that need no decoding.
func (m *matcher) early(d *broker.Dead) bool {
	age := m.now.Sub(d.At)
	if d.At.IsZero() && (m.f.OlderThan > 0 || m.f.YoungerThan > 0) {
		return false
	}
	return (m.f.OlderThan == 0 || age > m.f.OlderThan) && (m.f.YoungerThan == 0 || age < m.f.YoungerThan) &&
		strings.Contains(d.Reason, m.f.Error)
}

// late reports whether l matches the other fields. The task's id in the message body may differ
// from the id of the message.
func (m *matcher) late(l *Letter) bool {
	for k, v := range m.f.Headers {
		if l.Task == nil {
			return false
		}
		if got, ok := l.Task.Headers[k]; !ok || got != v {
			return false
		}
	}
	return (m.ids == nil || m.ids[string(l.ID)]) && (m.f.Task == "" || l.Task != nil && m.glob.Match(l.Task.Name)) &&
		(m.f.Root == "" || l.Task != nil && l.Task.RootID() == m.f.Root)
}
