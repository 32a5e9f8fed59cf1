package natsschedule

import (
	"context"
	"crypto/sha1" //nolint:gosec // it makes a name shorter, and protects nothing
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/schedule"
)

// DefaultName is the schedule's name if [Config] has none.
const DefaultName = "default"

const maxReplicas = 5

// Config of [New]. Connect is the only field that must be set.
type Config struct {
	// Connect says where NATS is and how to reach it.
	Connect natsconnect.Config
	// Name is the schedule's name, which has a stream of its own. "": [DefaultName], "default".
	Name string
	// Replicas is on how many servers of a cluster the stream is kept when this store creates it: 1 to 5. 0: 1.
	Replicas int
	// Logger is told of TLS without verification. nil: slog.Default().
	Logger *slog.Logger
}

// New makes a store, or says all that is wrong with c. It does not connect.
func New(c Config) (*Store, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	errs := []error{schedule.CheckName(c.Name)}
	if c.Replicas < 0 || c.Replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("replicas must be 0 to %d", maxReplicas))
	}
	conn, err := natsconn.New(c.Connect, "schedule "+c.Name, c.Logger)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("natsschedule: %w", err)
	}
	token := token(c.Name)
	s := &Store{
		conn: conn, name: c.Name, replicas: max(c.Replicas, 1), backoff: c.Connect.Backoff,
		stream: "SWJSCHEDULE_" + token, prefix: "swj.schedule." + token + ".",
		copy: newTable(), bump: make(chan struct{}), watchers: make(map[int]func()),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// plain are texts that may stand in a subject and in a stream's name.
func plain(s string) bool {
	return len(s) > 0 && len(s) <= 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// token is a schedule's name as a part of a subject.
func token(name string) string {
	if plain(name) {
		return "n-" + name
	}
	sum := sha1.Sum([]byte(name)) //nolint:gosec // as above
	return "h-" + hex.EncodeToString(sum[:])
}
