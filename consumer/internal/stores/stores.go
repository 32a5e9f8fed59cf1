// Package stores chooses the result store of a task, and the one in which its submitter waits.
//
// A submitter waits for the result in the store that its own metadata name: the task's definition
// and options over its static configuration. The metadata of the consumer may select another store,
// or none. The consumer then also stores the end of the task, without its result, in the store
// where the submitter waits.
package stores

import (
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Stores holds the result stores of a consumer. Safe for concurrent use.
type Stores struct {
	Results resultstore.ResultStore            // nil: results are dropped
	Named   map[string]resultstore.ResultStore // by the name in the metadata
	// Warn logs a warning at its first call with this key.
	Warn func(key, msg string, attrs ...slog.Attr)
}

// Of returns the result store for tasks with this metadata: the named one, else Results. Returns
// nil if the metadata ignore the result, or if that store is not configured. The latter is logged
// once; for Results only if replyTo says that a submitter waits.
func (s *Stores) Of(meta *task.Metadata, replyTo string) resultstore.ResultStore {
	if meta.IgnoreResult.Or(false) {
		return nil
	}
	if name := meta.ResultStore.Or(""); name != "" {
		if named, ok := s.Named[name]; ok {
			return named
		}
		s.Warn("store", "results are dropped: the tasks' metadata name a store that Config.Stores does not contain",
			slog.String("store", utf.Cut(name, 64)))
		return nil
	}
	if s.Results == nil && replyTo != "" {
		s.Warn("results", "results are dropped although submitters wait for them: Config.Results is not set")
	}
	return s.Results
}

// OfSubmitter returns the store in which the submitter of a task waits, if the end of the task must
// be stored there as well. base (may be nil) and meta are the submitter's metadata, keeps the store
// with the result (may be nil). It returns nil if replyTo is "", if the submitter ignores the
// result or waits in keeps, or if its store is not configured.
func (s *Stores) OfSubmitter(base, meta *task.Metadata, replyTo string, keeps resultstore.ResultStore) resultstore.ResultStore {
	if replyTo == "" {
		return nil
	}
	ignore, name := meta.IgnoreResult, meta.ResultStore
	if base != nil {
		if !ignore.IsSet() {
			ignore = base.IgnoreResult
		}
		if !name.IsSet() {
			name = base.ResultStore
		}
	}
	if ignore.Or(false) {
		return nil
	}
	store := s.Results
	if n := name.Or(""); n != "" {
		store = s.Named[n]
	}
	if store == nil || store == keeps {
		return nil
	}
	return store
}

// NoResult returns the error that tells a submitter why its store has no result of a succeeded
// task. meta are the metadata of the task, and keeps is the store of its result. It wraps
// [task.ErrNoResult]. The reason is IgnoreResult, a store that is not configured, or the name of
// the other store.
func NoResult(meta *task.Metadata, keeps resultstore.ResultStore) error {
	name := utf.Cut(meta.ResultStore.Or(""), 64)
	switch {
	case meta.IgnoreResult.Or(false):
		return fmt.Errorf("%w: the task succeeded, but the consumer keeps no results (IgnoreResult in its metadata)", task.ErrNoResult)
	case keeps == nil:
		return fmt.Errorf("%w: the task succeeded, but the consumer's metadata name the store %q, which Config.Stores does not contain", task.ErrNoResult, name)
	}
	return fmt.Errorf("%w: the task succeeded, but the consumer keeps the result in the store %q", task.ErrNoResult, name)
}
