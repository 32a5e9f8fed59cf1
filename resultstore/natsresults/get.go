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

// kept holds the stored record of a task and its sequence. The zero value means that nothing is
// stored.
type kept struct {
	rec     resultstore.Record
	seq     uint64 // 0: nothing is stored
	expired bool   // expired, but the server has not removed it yet
}

// errAnswer reports an answer of the server that does not follow its protocol.
var errAnswer = errors.New("the answer of the server cannot be read")

// fetch reads the stored record of a task and waits for the server. It returns the zero value if
// nothing is stored, and only the sequence of an expired record. It repeats a request whose answer
// was lost, until ctx ends. Returns ErrMalformed if the message is not a record of the task, and
// the errors of fromLeader or fromAny.
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
		k.expired = true
		return k, nil
	}
	if k.rec, err = wire.DecodeRecord(raw.Data); err == nil && k.rec.ID != id {
		err = fmt.Errorf("%w: the message is the record of another task", resultstore.ErrMalformed)
	}
	return k, err
}

// lifetimeOf returns the retention of a message: that of the header Swj-TTL, or else that of
// Nats-TTL. It returns 0, no limit, if both are missing or invalid.
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

// fromLeader reads the last message of a key from the stream's leader, and waits for it. It repeats
// a request whose answer was lost, until ctx ends. Returns natsconn.ErrNotFound if no message
// exists.
func (s *Store) fromLeader(ctx context.Context, id task.ID) (*natsconn.Stored, error) {
	return s.conn.GetLast(ctx, s.names.stream, s.names.record(id))
}

// defaultTry is the longest wait for one answer. Then the request is repeated, because the
// answering server may have died.
const defaultTry = 5 * time.Second

// fromAny reads the last message of a key from any server of the stream, which loads the servers
// less than fromLeader. It repeats a request whose answer was lost, until ctx ends. Returns
// natsconn.ErrNotFound if no message exists.
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

// stored converts an answer to fromAny. Returns natsconn.ErrNotFound for status 404 and errAnswer
// for an answer that cannot be read.
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
