package bursts

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Mark is the content of [task.Envelope.Burst].
type Mark struct {
	Latest bool          // task.WithLatest; false: task.WithDebounce
	Quiet  time.Duration // in whole milliseconds, as Most
	Most   time.Duration
	// Version names the submission whose arguments the message has.
	Version string
	// Copy names the message. Retries of a task that has started keep it.
	Copy string
	Key  string
}

const (
	kindDebounce = "debounce"
	kindLatest   = "latest"
	longestMost  = 7 * 24 * time.Hour
)

// NewMark returns the mark of a new submission.
func NewMark(b *task.Burst) Mark {
	m := Mark{Latest: b.Latest, Quiet: b.Quiet, Most: b.Most, Version: rand.Text(), Copy: rand.Text(), Key: b.Key}
	if !m.Latest && m.Most == 0 {
		m.Most = longestMost
	}
	return m
}

// Check returns an error that wraps [task.ErrBadMetadata] if a task cannot have the burst b.
func Check(b *task.Burst) error {
	switch {
	case len(b.Key) == 0 || len(b.Key) > 255 || !utf8.ValidString(b.Key):
		return fmt.Errorf("%w: the key of a burst must be UTF-8 of 1 to 255 bytes", task.ErrBadMetadata)
	case b.Latest && (b.Quiet != 0 || b.Most != 0):
		return fmt.Errorf("%w: a burst with Latest has no Quiet and no Most", task.ErrBadMetadata)
	case b.Latest:
		return nil
	case b.Quiet < time.Millisecond || b.Quiet > 24*time.Hour:
		return fmt.Errorf("%w: the quiet time of a burst is %v; need 1ms to 24h", task.ErrBadMetadata, b.Quiet)
	case b.Most != 0 && (b.Most < b.Quiet || b.Most > longestMost):
		return fmt.Errorf("%w: the longest wait of a burst is %v; need its quiet time %v to 7 days, or 0", task.ErrBadMetadata, b.Most, b.Quiet)
	}
	return nil
}

// again returns the mark of another message with the arguments of version.
func (m Mark) again(version string) Mark {
	m.Version, m.Copy = version, rand.Text()
	return m
}

// String returns the content of task.Envelope.Burst.
func (m Mark) String() string {
	kind := kindDebounce
	if m.Latest {
		kind = kindLatest
	}
	return fmt.Sprintf("%s %d %d %s %s %s", kind, m.Quiet.Milliseconds(), m.Most.Milliseconds(), m.Version, m.Copy, m.Key)
}

// ReadMark reads the content of task.Envelope.Burst. Returns [serializer.ErrMalformed] for any
// other text.
func ReadMark(text string) (Mark, error) {
	parts := strings.SplitN(text, " ", 6)
	if len(parts) != 6 || parts[0] != kindDebounce && parts[0] != kindLatest {
		return Mark{}, fmt.Errorf("%w: %.64q is no burst", serializer.ErrMalformed, text)
	}
	quiet, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return Mark{}, fmt.Errorf("%w: %.64q is no burst", serializer.ErrMalformed, text)
	}
	most, err := strconv.ParseUint(parts[2], 10, 32)
	if err != nil {
		return Mark{}, fmt.Errorf("%w: %.64q is no burst", serializer.ErrMalformed, text)
	}
	return Mark{
		Latest: parts[0] == kindLatest, Quiet: time.Duration(quiet) * time.Millisecond, Most: time.Duration(most) * time.Millisecond,
		Version: parts[3], Copy: parts[4], Key: parts[5],
	}, nil
}

// storeKey returns the key of the record of the burst of a task name.
func (m *Mark) storeKey(name string) string {
	if m.Latest {
		return "burst/" + kindLatest + "/" + name + "/" + m.Key
	}
	return "burst/" + kindDebounce + "/" + name + "/" + m.Key
}
