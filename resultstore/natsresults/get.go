package natsresults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// kept is what the stream holds of a task. The zero value is nothing.
type kept struct {
	rec  resultstore.Record
	seq  uint64 // 0: nothing is there
	over bool   // its time is over; the server has not removed it yet
}

// errAnswer: the server's answer is not what its interface says.
var errAnswer = errors.New("an answer of the server that cannot be read")

// fetch reads what the stream holds of a task. It repeats a question whose answer was lost.
func (s *Store) fetch(ctx context.Context, st *stream, id task.ID) (kept, error) {
	get := s.fromLeader
	if st.direct {
		get = s.fromAny
	}
	raw, err := get(ctx, id)
	switch {
	case errors.Is(err, natsconn.ErrNotFound):
		return kept{}, nil
	case err != nil:
		return kept{}, err
	}
	k := kept{seq: raw.Seq}
	if ttl := lifetimeOf(raw.Header); ttl > 0 && !st.now().Before(raw.Time.Add(ttl)) {
		k.over = true
		return k, nil
	}
	if k.rec, err = wire.DecodeRecord(raw.Data); err == nil && k.rec.ID != id {
		err = fmt.Errorf("%w: it is of another task", resultstore.ErrMalformed)
	}
	return k, err
}

// lifetimeOf returns how long a message counts. 0: for ever.
func lifetimeOf(h nats.Header) time.Duration {
	if v := h.Get(headerTTL); v != "" {
		if ms, err := strconv.ParseInt(v, 10, 64); err == nil && ms > 0 && ms <= maxTTL.Milliseconds() {
			return time.Duration(ms) * time.Millisecond
		}
	}
	if v := h.Get(natsTTL); v != "" {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 0 && n <= int64(maxTTL/time.Second) {
			return time.Duration(n) * time.Second
		}
	}
	return 0
}

// fromLeader asks the server that leads the stream.
func (s *Store) fromLeader(ctx context.Context, id task.ID) (*natsconn.Stored, error) {
	return s.conn.GetLast(ctx, s.names.stream, s.names.record(id))
}

// oneTry is how long an answer is waited for before the question is repeated: who should give it may have died.
const oneTry = 5 * time.Second

// fromAny asks any server that has the stream, which costs them less. It repeats a question whose answer was lost.
func (s *Store) fromAny(ctx context.Context, id task.ID) (*natsconn.Stored, error) {
	for {
		var m *nats.Msg
		err := s.conn.Do(ctx, func(ctx context.Context, sess *natsconn.Session) (err error) {
			ctx, cancel := context.WithTimeout(ctx, s.try)
			defer cancel()
			m, err = sess.NATS.RequestMsgWithContext(ctx, nats.NewMsg(s.names.direct+s.names.record(id)))
			return err
		})
		switch {
		case err == nil:
			return stored(m)
		case !errors.Is(err, natsconn.ErrIndeterminate) || errors.Is(err, natsconn.ErrClosed) || ctx.Err() != nil:
			return nil, err
		}
	}
}

// stored reads an answer to fromAny.
func stored(m *nats.Msg) (*natsconn.Stored, error) {
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		return nil, natsconn.ErrNotFound
	default:
		return nil, fmt.Errorf("%w: status %q", errAnswer, status)
	}
	seq, err := strconv.ParseUint(m.Header.Get(natsSeq), 10, 64)
	if err != nil {
		return nil, errAnswer
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(natsTime))
	if err != nil {
		return nil, errAnswer
	}
	return &natsconn.Stored{Seq: seq, Time: at, Header: m.Header, Data: m.Data}, nil
}
