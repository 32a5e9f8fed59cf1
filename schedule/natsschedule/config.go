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

// DefaultName is the schedule's name if Config.Name is "".
const DefaultName = "default"

const maxReplicas = 5

// Config configures a [Store]. Only Connect must be set.
type Config struct {
	// Connect holds the addresses and the connection settings of the NATS servers.
	Connect natsconnect.Config
	// Name is the schedule's name. Each schedule has its own stream. Default: [DefaultName].
	Name string
	// Replicas is the number of servers of a cluster that store the stream, 1 to 5. It is used only
	// when this store creates the stream. Default: 1.
	Replicas int
	// Logger gets a warning if TLS certificates are not verified. Default: slog.Default().
	Logger *slog.Logger
}

// New returns a Store. It does not connect and creates no stream: the first call does so. An empty
// Name becomes [DefaultName], and Replicas 0 becomes 1. Its error joins all problems of the
// configuration: an invalid name or Connect, or Replicas out of range.
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
		cache: newTable(), changed: make(chan struct{}), watchers: make(map[int]func()),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// plain reports whether s may be part of a subject and of a stream's name: 1 to 100 letters,
// digits, "_" and "-".
func plain(s string) bool {
	return len(s) > 0 && len(s) <= 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// token returns the schedule's name as one token of a subject: "n-" and the name, or "h-" and the
// name's SHA-1 in hex if the name is not plain.
func token(name string) string {
	if plain(name) {
		return "n-" + name
	}
	sum := sha1.Sum([]byte(name)) //nolint:gosec // as above
	return "h-" + hex.EncodeToString(sum[:])
}
