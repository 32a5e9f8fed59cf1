package steer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// asideLook is the time between two looks at the length of a queue of moved messages. After
	// emptyLooks without a message it is empty: a consumer that has not learnt of the end of the pause
	// may still move messages there.
	asideLook  = time.Second
	emptyLooks = 3
)

// Empty opens the queue in, whose tasks move the messages of a task that is no longer paused back
// to queue. It blocks until in is empty for all consumers, the task is paused again, or ctx ends.
// At the end it calls leave, which must close in, and deletes the setting of Moving if in is empty.
// source is the name of in. Without an inspector it cannot see that in is empty. Returns the first
// error.
func (s *Steer) Empty(ctx context.Context, queue, name, source string, in *intake.Queue, failed chan<- error, inspector broker.Inspector, leave func(*intake.Workers) error) error {
	if err := in.Open(ctx); err != nil {
		return err
	}
	t := intake.NewWorkers(intake.WorkersConfig{Workers: 1, Overloaded: func(*intake.Workers) bool { return false }}, in)
	t.Prepare(ctx, failed)
	t.Start()
	revision, empty := s.awaitEmpty(ctx, queue, name, source, inspector)
	err := leave(t)
	if !empty || err != nil {
		return err
	}
	return s.emptied(context.WithoutCancel(ctx), queue, name, revision)
}

// awaitEmpty blocks until the queue source was empty at emptyLooks reads of its length in a row,
// without a change of the setting of Moving. It then returns the revision of that setting and true.
// empty is false if the task is paused again, the setting was deleted, or ctx ends.
func (s *Steer) awaitEmpty(ctx context.Context, queue, name, source string, inspector broker.Inspector) (revision uint64, empty bool) {
	looks := 0
	for wake.Sleep(ctx, asideLook) {
		now, ok := s.Asides(queue)[name]
		if !ok {
			return 0, false
		}
		if now != revision {
			revision, looks = now, 0
		}
		if inspector == nil {
			continue
		}
		st, err := inspector.Stats(ctx, source)
		if err != nil || st.Ready > 0 || st.Held > 0 || st.Delayed > 0 {
			looks = 0
			continue
		}
		if looks++; looks >= emptyLooks {
			return revision, true
		}
	}
	return 0, false
}
