package deadletter

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// MaxKinds limits the different names and the different reasons that a [Summary] counts. Further
// ones count as "other".
const MaxKinds = 100

// maxReason limits a reason in a [Summary], in bytes.
const maxReason = 120

// Summary describes the letters of a queue that match a filter.
type Summary struct {
	Letters int
	Bytes   int64 // of the bodies of their messages
	// Oldest and Newest are the times of the oldest and the newest letter. Zero: no letter has a time.
	Oldest, Newest time.Time
	// Tasks counts the letters of each task's name, "" for letters that cannot be decoded. It has at
	// most MaxKinds names and "other".
	Tasks map[string]int
	// Reasons counts the letters of each reason, cut to its beginning. It has at most MaxKinds reasons
	// and "other".
	Reasons map[string]int
	// More says that the filter's Limit was reached and that further letters match.
	More bool
}

// other is the name of all further kinds.
const other = "other"

// Summarize counts the letters of a queue that match f, and changes nothing. Call it before
// [Letters.Requeue] or [Letters.Drop] with the same filter. Letters that Requeue would refuse are
// counted too. It reads all letters up to f.Limit. Returns the errors of [Letters.List].
func (l *Letters) Summarize(ctx context.Context, queue string, f Filter) (Summary, error) {
	s := Summary{Tasks: make(map[string]int), Reasons: make(map[string]int)}
	limit := f.Limit
	if limit > 0 {
		f.Limit++ // one more tells whether there are further letters
	}
	err := l.scan(ctx, queue, f, func(letter *Letter) (broker.DeadAction, error) {
		if s.More = limit > 0 && s.Letters == limit; s.More {
			return broker.DeadStop, nil
		}
		s.add(letter)
		return broker.DeadKeep, nil
	})
	return s, err
}

// add counts a letter.
func (s *Summary) add(l *Letter) {
	s.Letters++
	s.Bytes += int64(len(l.Message.Body))
	if !l.At.IsZero() {
		if s.Oldest.IsZero() || l.At.Before(s.Oldest) {
			s.Oldest = l.At
		}
		if l.At.After(s.Newest) {
			s.Newest = l.At
		}
	}
	count(s.Tasks, l.Name())
	count(s.Reasons, utf.Cut(l.Reason, maxReason))
}

// count adds 1 to the count of a kind, or of other if there are too many kinds.
func count(kinds map[string]int, kind string) {
	if _, known := kinds[kind]; !known && len(kinds) >= MaxKinds {
		kind = other
	}
	kinds[kind]++
}
