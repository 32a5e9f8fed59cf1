package natsresults

import (
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

// Save implements [resultstore.ResultStore]. Besides its errors it returns [task.ErrBadID] for an ID that is none and
// [resultstore.ErrMalformed] for a state that is not recorded. After [resultstore.ErrUnavailable] the record may have been
// stored; saving it again is safe. "The same terminal record" is one of the same task, token and state.
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
		s.tell(r.ReplyTo, m.Data)
	}
	return nil
}

// message checks a record and writes it. What depends on the stream is not in the message yet.
func (s *Store) message(r *resultstore.Record) (*nats.Msg, error) {
	if !r.State.Recorded() {
		return nil, fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	if len(r.Result) > s.cfg.MaxResult {
		return nil, fmt.Errorf("%w: a result of %d bytes, at most %d are kept", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	body, err := wire.EncodeRecord(r)
	if err != nil {
		return nil, err
	}
	if len(body) > s.cfg.MaxResult+maxRest {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", resultstore.ErrTooLarge, len(body), s.cfg.MaxResult+maxRest)
	}
	return &nats.Msg{Subject: s.names.record(r.ID), Header: make(nats.Header, 3), Data: body}, nil
}

// put stores the record if its token allows it. Whatever is stored in between is looked at, so that of two writers one
// learns of the other. It repeats what went without an answer: the expected sequence lets no message in twice.
func (s *Store) put(ctx context.Context, st *stream, r *resultstore.Record, m *nats.Msg) error {
	seconds, exact := s.lifetime(r.TTL)
	if st.ttl {
		m.Header[natsTTL] = []string{strconv.FormatInt(seconds, 10)}
	} else {
		delete(m.Header, natsTTL)
	}
	if !st.ttl || exact != time.Duration(seconds)*time.Second {
		m.Header[headerTTL] = []string{strconv.FormatInt(exact.Milliseconds(), 10)}
	}
	expected := s.recent.last(r)
	for attempt := 0; ; attempt++ {
		m.Header[natsExpect] = []string{strconv.FormatUint(expected, 10)}
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
		if k.seq != 0 && !k.over {
			if again, err := judge(&k.rec, r); again || err != nil {
				return err
			}
		}
		expected = k.seq
	}
}

// publish waits for the answer for one try at most: a server that dies behind the one we are connected to takes its answer
// along, and the connection lives.
func (s *Store) publish(ctx context.Context, m *nats.Msg) (natsconn.Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, s.try)
	defer cancel()
	return s.conn.Publish(ctx, m)
}

// judge decides what becomes of r where old is kept: err refuses it, again means that it is there already.
func judge(old, r *resultstore.Record) (again bool, err error) {
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

// pause waits a little before another attempt, longer after many. It reports whether ctx is still alive.
func pause(ctx context.Context, attempt int) bool {
	return wake.Sleep(ctx, rand.N(time.Duration(min(attempt, 50))*time.Millisecond))
}

// maxRecent bounds what is remembered.
const maxRecent = 8192

// recent remembers the records that this store wrote and that are not final, so that the next one of the same task needs no
// look at what is there. It may be wrong, since others write too: the server compares the sequence.
type recent struct {
	mu   sync.Mutex
	tags map[task.ID]tag
}

type tag struct {
	seq                    uint64
	generation, deliveries int
}

// last returns the sequence after which r may be stored, as far as is remembered, or 0: nothing is there.
func (m *recent) last(r *resultstore.Record) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tags[r.ID]
	if !ok || r.Older(&resultstore.Record{Generation: t.generation, Deliveries: t.deliveries}) {
		return 0
	}
	return t.seq
}

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

func (m *recent) forget(id task.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tags, id)
}
