package natsresults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	var raw message
	err := s.ask(ctx, func(ctx context.Context, nc *nats.Conn) (err error) {
		if st.direct {
			raw, err = s.getDirect(ctx, nc, id)
		} else {
			raw, err = s.getFromLeader(ctx, nc, id)
		}
		return err
	})
	switch {
	case errors.Is(err, natsconn.ErrNotFound):
		return kept{}, nil
	case err != nil:
		return kept{}, err
	}
	k := kept{seq: raw.seq}
	if ttl := raw.ttl(); ttl > 0 && !st.now().Before(raw.at.Add(ttl)) {
		k.over = true
		return k, nil
	}
	if k.rec, err = wire.DecodeRecord(raw.body); err == nil && k.rec.ID != id {
		err = fmt.Errorf("%w: it is of another task", resultstore.ErrMalformed)
	}
	return k, err
}

// ask calls fn with a connection until it has an answer.
func (s *Store) ask(ctx context.Context, fn func(ctx context.Context, nc *nats.Conn) error) error {
	for {
		err := s.conn.Do(ctx, func(ctx context.Context, sess *natsconn.Session) error { return fn(ctx, sess.NATS) })
		if !errors.Is(err, natsconn.ErrIndeterminate) || errors.Is(err, natsconn.ErrClosed) || ctx.Err() != nil {
			return err
		}
	}
}

// message is a message of the stream.
type message struct {
	seq    uint64
	at     time.Time
	header nats.Header
	body   []byte
}

// ttl returns how long the message counts. 0: for ever.
func (m *message) ttl() time.Duration {
	if v := m.header.Get(headerTTL); v != "" {
		if ms, err := strconv.ParseInt(v, 10, 64); err == nil && ms > 0 && ms <= maxTTL.Milliseconds() {
			return time.Duration(ms) * time.Millisecond
		}
	}
	if v := m.header.Get(natsTTL); v != "" {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 0 && n <= int64(maxTTL/time.Second) {
			return time.Duration(n) * time.Second
		}
	}
	return 0
}

// getDirect asks any server that has the stream.
func (s *Store) getDirect(ctx context.Context, nc *nats.Conn, id task.ID) (message, error) {
	m, err := nc.RequestMsgWithContext(ctx, nats.NewMsg(s.names.direct+s.names.record(id)))
	if err != nil {
		return message{}, err
	}
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		return message{}, natsconn.ErrNotFound
	default:
		return message{}, fmt.Errorf("%w: status %q", errAnswer, status)
	}
	seq, err := strconv.ParseUint(m.Header.Get(natsSeq), 10, 64)
	if err != nil {
		return message{}, errAnswer
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(natsTime))
	if err != nil {
		return message{}, errAnswer
	}
	return message{seq: seq, at: at, header: m.Header, body: m.Data}, nil
}

// getFromLeader asks the server that leads the stream.
func (s *Store) getFromLeader(ctx context.Context, nc *nats.Conn, id task.ID) (message, error) {
	question, err := json.Marshal(map[string]string{"last_by_subj": s.names.record(id)})
	if err != nil {
		return message{}, err
	}
	m, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: s.names.get, Data: question})
	if err != nil {
		return message{}, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Seq    uint64    `json:"seq"`
			Header []byte    `json:"hdrs"`
			Data   []byte    `json:"data"`
			Time   time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return message{}, errAnswer
	}
	if answer.Error != nil {
		return message{}, natsconn.Classify(fmt.Errorf("the stream: %w", answer.Error))
	}
	header, err := parseHeader(answer.Message.Header)
	if err != nil || answer.Message.Seq == 0 {
		return message{}, errAnswer
	}
	return message{seq: answer.Message.Seq, at: answer.Message.Time, header: header, body: answer.Message.Data}, nil
}

// parseHeader reads the headers of a stored message.
func parseHeader(b []byte) (nats.Header, error) {
	if len(b) == 0 {
		return nil, nil
	}
	_, lines, ok := bytes.Cut(b, []byte("\r\n")) // the first is NATS/1.0
	if !ok {
		return nil, errAnswer
	}
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(lines))).ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	out := make(nats.Header, len(h))
	for _, name := range []string{headerTTL, natsTTL} {
		if v := h.Get(name); v != "" {
			out.Set(name, v)
		}
	}
	return out, nil
}
