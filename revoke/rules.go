package revoke

import (
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// MaxSelectors is the maximum number of selectors in a list. A further selector removes the
// selector that ends first, with a warning.
const MaxSelectors = 1000

// rules holds the selectors of a list. They are grouped by shape, so that a lookup costs one map
// access for each shape; usually there is only one. match is safe for concurrent use; add is not.
type rules struct {
	shapes []shape
	rules  map[Selector]rule // by the selector without SentBefore
}

// shape is the set of fields that a selector uses.
type shape struct {
	header            string
	name, queue, root bool
}

// rule is the end of a selector, in milliseconds since 1970, and its SentBefore.
type rule struct {
	ends   int64
	before time.Time // zero: no limit
}

// add adds a selector that is valid until ends; now is the current time, both in milliseconds since
// 1970. A selector that is over is ignored. A known selector that differs only in SentBefore is
// widened instead: it gets the later end and the later SentBefore, where zero is the latest. add
// removes selectors that are over. It reports whether another selector was removed for this one.
func (r *rules) add(s Selector, ends, now int64) (lost bool) {
	if ends <= now {
		return false
	}
	next := rule{ends, s.SentBefore}
	s.SentBefore = time.Time{}
	if known, ok := r.rules[s]; ok && known.ends > now {
		next.ends = max(next.ends, known.ends)
		if known.before.IsZero() || !next.before.IsZero() && known.before.After(next.before) {
			next.before = known.before
		}
	}
	if r.rules == nil {
		r.rules = make(map[Selector]rule)
	}
	r.rules[s] = next
	lost = r.trim(now)
	r.reshape()
	return lost
}

// trim removes selectors that are over. If there are still more than [MaxSelectors], it removes the
// one that ends first and returns true.
func (r *rules) trim(now int64) (lost bool) {
	first, ends := Selector{}, int64(0)
	for s, known := range r.rules {
		if known.ends <= now {
			delete(r.rules, s)
		} else if ends == 0 || known.ends < ends {
			first, ends = s, known.ends
		}
	}
	if len(r.rules) <= MaxSelectors {
		return false
	}
	delete(r.rules, first)
	return true
}

// reshape computes r.shapes from the selectors.
func (r *rules) reshape() {
	seen := make(map[shape]bool)
	r.shapes = r.shapes[:0]
	for s := range r.rules {
		if sh := (shape{s.Header, s.Name != "", s.Queue != "", s.Root != ""}); !seen[sh] {
			seen[sh] = true
			r.shapes = append(r.shapes, sh)
		}
	}
}

// match reports whether a selector that is not over at now chooses the task e from queue.
func (r *rules) match(queue string, e *task.Envelope, now int64) bool {
	for _, sh := range r.shapes {
		var s Selector
		if sh.header != "" {
			v, ok := e.Headers[sh.header]
			if !ok {
				continue
			}
			s.Header, s.Value = sh.header, v
		}
		if sh.name {
			s.Name = e.Name
		}
		if sh.queue {
			s.Queue = queue
		}
		if sh.root {
			s.Root = e.RootID()
		}
		if known, ok := r.rules[s]; ok && known.ends > now && (known.before.IsZero() || !e.SentAt.After(known.before)) {
			return true
		}
	}
	return false
}
