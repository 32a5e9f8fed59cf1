package natsresults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Save implements [resultstore.ResultStore]: it stores r and, if r is terminal, publishes a
// notification for its submitter, also if the same record was stored already. It waits until the
// stream has stored r. It makes the stream if that does not exist. Two terminal records are the
// same if task, token and state are equal. Checkpoints are dropped after that, by another request.
//
// While the outcome is unknown it tries again until ctx ends. After [resultstore.ErrUnavailable]
// the record may have been stored; saving it again is safe. It also returns:
//
//   - [resultstore.ErrStale] if the stored record is newer, or final and different and r does not
//     reopen it
//   - [task.ErrBadID] for an invalid ID
//   - [resultstore.ErrMalformed] for a state that is not recorded or a record that cannot be
//     encoded
//   - [resultstore.ErrTooLarge] for a record above the limits
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	if err := check(ctx, r.ID); err != nil {
		return err
	}
	if !s.begin() {
		return resultstore.ErrClosed
	}
	defer s.end()
	m, err := s.message(&r)
	if err != nil {
		return err
	}
	err = s.withStream(ctx, func(st *stream) error { return s.put(ctx, st, &r, m) })
	if err != nil {
		if errors.Is(err, natsconn.ErrTooLarge) {
			err = fmt.Errorf("%w: %d bytes; the server's max_payload or the stream's limit is lower", err, len(m.Data))
		}
		return failure("save", err)
	}
	if r.State.Terminal() {
		s.notify(r.ReplyTo, m.Data)
	}
	if r.DropCheckpoints {
		return failure("save", s.dropCheckpoints(ctx, r.ID))
	}
	return nil
}

// SaveBatch implements [resultstore.BatchSaver]: it publishes the records one after the other and
// then waits for all answers. If another record was written before, the outcome of a record is
// [resultstore.ErrUnavailable]. Its other errors are those of Save.
func (s *Store) SaveBatch(ctx context.Context, rs []resultstore.Record) []error {
	errs := make([]error, len(rs))
	if !s.begin() {
		for i := range errs {
			errs[i] = resultstore.ErrClosed
		}
		return errs
	}
	defer s.end()
	ctx, cancel := context.WithTimeout(ctx, s.try)
	defer cancel()
	st, opened := s.open(ctx)
	pubs, at := make([]natsconn.Pub, 0, len(rs)), make([]int, 0, len(rs))
	for i := range rs {
		r := &rs[i]
		m, err := s.message(r)
		if err = cmp.Or(check(ctx, r.ID), err, failure("save", opened)); err != nil {
			errs[i] = err
			continue
		}
		s.setLifetime(st, r, m)
		expect(m, s.recent.last(r))
		pubs, at = append(pubs, natsconn.Pub{Msg: m}), append(at, i)
	}
	s.conn.PublishBatch(ctx, pubs)
	var drops sync.WaitGroup
	for k := range pubs {
		p, r := &pubs[k], &rs[at[k]]
		if p.Err != nil {
			errs[at[k]] = failure("save", p.Err)
			continue
		}
		s.recent.note(r, p.Ack.Sequence)
		if r.State.Terminal() {
			s.notify(r.ReplyTo, p.Msg.Data)
		}
		if r.DropCheckpoints {
			drops.Go(func() { errs[at[k]] = failure("save", s.dropCheckpoints(ctx, r.ID)) })
		}
	}
	drops.Wait()
	return errs
}

// message checks a record and returns its message without the headers, which depend on the stream.
// Returns ErrMalformed for a state that is not recorded or a record that cannot be encoded, and
// ErrTooLarge for a record above the limits.
func (s *Store) message(r *resultstore.Record) (*nats.Msg, error) {
	if !r.State.Recorded() {
		return nil, fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	if len(r.Result) > s.cfg.MaxResult {
		return nil, fmt.Errorf("%w: the result has %d bytes, more than the MaxResult of %d", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	body, err := wire.EncodeRecord(r)
	if err != nil {
		return nil, err
	}
	if len(body) > s.cfg.MaxResult+maxRest {
		return nil, fmt.Errorf("%w: the record has %d bytes, at most %d are allowed", resultstore.ErrTooLarge, len(body), s.cfg.MaxResult+maxRest)
	}
	return &nats.Msg{Subject: s.names.record(r.ID), Header: make(nats.Header, 3), Data: body}, nil
}

// put stores the record with compare-and-set and sets the headers of m for that. If another record
// was written before, put reads it and tries again, or returns ErrStale if checkToken forbids it.
// If the same final record is stored already, it returns nil.
//
// It also repeats a publish without an answer, until ctx ends: because of the expected sequence the
// message is stored at most once. It returns other errors at once. It waits for the server, and
// remembers the sequence of an open record in s.recent.
func (s *Store) put(ctx context.Context, st *stream, r *resultstore.Record, m *nats.Msg) error {
	s.setLifetime(st, r, m)
	expected := s.recent.last(r)
	for attempt := 0; ; attempt++ {
		expect(m, expected)
		ack, err := s.publish(ctx, m)
		switch {
		case err == nil:
			s.recent.note(r, ack.Sequence)
			return nil
		case errors.Is(err, natsconn.ErrWrongSequence):
		case errors.Is(err, natsconn.ErrIndeterminate) && !errors.Is(err, natsconn.ErrClosed) && ctx.Err() == nil:
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // not sent within this try
		default:
			return err
		}
		if attempt > 1 && !pause(ctx, attempt) {
			return fmt.Errorf("%w: %w", natsconn.ErrUnavailable, ctx.Err())
		}
		k, err := s.fetch(ctx, st, r.ID)
		if err != nil {
			return err
		}
		if k.seq != 0 && !k.expired {
			if again, err := checkToken(&k.rec, r); again || err != nil {
				return err
			}
		}
		expected = k.seq
	}
}

// setLifetime sets the headers of m, the message of r, that say how long the record is kept.
func (s *Store) setLifetime(st *stream, r *resultstore.Record, m *nats.Msg) {
	seconds, exact := s.lifetime(r.TTL)
	if st.ttl {
		m.Header[natsTTL] = []string{strconv.FormatInt(seconds, 10)}
	} else {
		delete(m.Header, natsTTL)
	}
	if !st.ttl || exact != time.Duration(seconds)*time.Second {
		m.Header[headerTTL] = []string{strconv.FormatInt(exact.Milliseconds(), 10)}
	}
}

// expect sets the header of m that says which message of its subject it replaces, by the sequence
// of that message. 0: none.
func expect(m *nats.Msg, seq uint64) {
	m.Header[natsExpect] = []string{strconv.FormatUint(seq, 10)}
}

// publish publishes m and waits for the answer for at most s.try. If a server behind the connected
// one dies, the answer never comes although the connection stays open. Then it returns the error
// of the time limit.
func (s *Store) publish(ctx context.Context, m *nats.Msg) (natsconn.Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, s.try)
	defer cancel()
	return s.conn.Publish(ctx, m)
}

// checkToken decides whether r may replace the stored record old. It returns false and nil if it
// may. It returns ErrStale if r is older, or if old is final, differs from r, and r does not
// reopen it. The result again is true if r equals the final record old, so that there is nothing
// to store.
func checkToken(old, r *resultstore.Record) (again bool, err error) {
	switch {
	case r.Older(old):
		return false, resultstore.ErrStale
	case !old.State.Terminal(), r.Reopens(old):
		return false, nil
	case old.Older(r) || old.State != r.State:
		return false, resultstore.ErrStale
	default:
		return true, nil
	}
}

// pause waits a random time before the next attempt: at most attempt milliseconds and at most 50
// ms. It returns false if ctx ended.
func pause(ctx context.Context, attempt int) bool {
	return wake.Sleep(ctx, rand.N(time.Duration(min(attempt, 50))*time.Millisecond))
}

// maxRecent limits the number of tasks in recent.
const maxRecent = 8192

// recent remembers the sequences of open records that this store wrote. Save then needs no read
// before it writes the next record of the same task. An entry may be outdated because other stores
// write too; the server compares the sequence. Safe for concurrent use.
type recent struct {
	mu   sync.Mutex
	tags map[task.ID]tag
}

// tag holds the sequence of an open record in the stream, and the fencing token of that record.
type tag struct {
	seq                    uint64
	generation, deliveries int
}

// last returns the remembered sequence of the record that r may replace. It returns 0 if none is
// remembered or the remembered one is newer than r. It takes m.mu.
func (m *recent) last(r *resultstore.Record) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tags[r.ID]
	if !ok || r.Older(&resultstore.Record{Generation: t.generation, Deliveries: t.deliveries}) {
		return 0
	}
	return t.seq
}

// note remembers the sequence seq of the open record r, or forgets the task if r is terminal. If
// maxRecent tasks are known it forgets all of them first. It takes m.mu.
func (m *recent) note(r *resultstore.Record, seq uint64) {
	if r.State.Terminal() {
		m.forget(r.ID)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tags == nil || len(m.tags) >= maxRecent {
		m.tags = make(map[task.ID]tag)
	}
	m.tags[r.ID] = tag{seq, r.Generation, r.Deliveries}
}

// forget forgets the sequence of the task id. It takes m.mu.
func (m *recent) forget(id task.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tags, id)
}
