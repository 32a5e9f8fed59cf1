package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"time"

	node "github.com/swarmiji/swarmiji/control"
)

// maxMingle limits a reply to hello, in bytes: a whole list of revoked tasks needs about 5 MB.
const maxMingle = 16 << 20

// mingle sends hello to all workers and revokes the tasks that they have revoked. It waits
// mingleTime for answers, or until ctx ends. A failure is logged.
func (s *Service) mingle(ctx context.Context, n node.Node) {
	within, cancel := context.WithTimeout(ctx, mingleTime)
	defer cancel()
	bus, oid, ticket := s.cfg.Bus, rand.Text(), rand.Text()
	l, err := bus.transport.Listen(within, Mailbox{Exchange: Replies, Keys: []string{oid}}, func(m *Message) {
		bus.clock.adjust(m.Headers["clock"])
		if m.Headers["ticket"] != ticket {
			return
		}
		if err := s.merge(ctx, n, m); err != nil {
			s.ignore(ctx, n, err)
		}
	})
	if err == nil {
		defer s.closeListener(ctx, n, l)
		var body []byte
		body, err = json.Marshal(map[string]any{
			"method": "hello", "arguments": map[string]any{"from_node": s.name(n), "revoked": s.revoked.forMingle(time.Now())},
			"destination": nil, "pattern": nil, "matcher": nil,
			"ticket": ticket, "reply_to": map[string]any{"exchange": Replies.String(), "routing_key": oid},
		})
		if err == nil {
			headers := map[string]any{"clock": bus.clock.forward(), "expires": float64(time.Now().Add(mingleTime).UnixMilli()) / 1000}
			err = bus.transport.Publish(within, &Message{Exchange: Commands, Headers: headers, JSON: true, Body: body})
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			s.log(ctx, n, slog.LevelWarn, "celery/control: asking other workers for revoked tasks failed", slog.Any("error", err))
		}
		return
	}
	<-within.Done()
}

// merge takes over the clock and the revoked tasks of a reply to hello.
func (s *Service) merge(ctx context.Context, n node.Node, m *Message) error {
	if !m.JSON || len(m.Body) > maxMingle {
		return nil
	}
	var replies map[string]*struct {
		Clock   float64        `json:"clock"`
		Revoked map[string]any `json:"revoked"`
	}
	if err := json.Unmarshal(m.Body, &replies); err != nil {
		return err
	}
	for from, r := range replies {
		if from == s.name(n) || r == nil {
			continue
		}
		s.cfg.Bus.clock.adjust(r.Clock)
		if err := s.revokeNew(ctx, n, r.Revoked); err != nil {
			return err
		}
	}
	return nil
}
