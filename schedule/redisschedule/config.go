package redisschedule

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/schedule"
)

// DefaultName is the schedule's name if Config.Name is "".
const DefaultName = "default"

// Config configures a [Store]. Only Redis must be set.
type Config struct {
	// Redis holds the addresses and settings of the client: one server, several of a cluster (or
	// IsClusterMode), or Sentinels with MasterName. It is copied.
	//
	// The client never repeats a command. MinRetryBackoff and MaxRetryBackoff are the shortest and the
	// longest delay between attempts to reach a server, with full jitter. Default: 100 ms and 5 s.
	// ClientName is shown in the server's list of connections. Default: "swarmiji".
	Redis *redis.UniversalOptions
	// Name is the schedule's name: 1 to 255 bytes of text. The keys contain it unchanged. On a cluster
	// it must contain a hash tag, as in "{app-tasks}". Default: "default".
	Name string
	// Clock returns the time that decides which entries are due. Default: the server's time (TIME),
	// which is the same for all processes.
	Clock func() time.Time
	// OnDrop is called for each dropped member of S:next: a member that is not JSON with an id, or
	// whose entry does not exist. It is called in addition to the log. Default: nil.
	OnDrop func(member string)
	// Logger gets warnings about server settings that weaken the guarantees, and about dropped
	// members. Default: slog.Default().
	Logger *slog.Logger
}

// check sets the defaults of Name and Logger. Returns an error that wraps [schedule.ErrBadEntry] if
// the name is invalid.
func (c *Config) check() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := schedule.CheckName(c.Name); err != nil {
		return fmt.Errorf("redisschedule: %w", err)
	}
	return nil
}

// tagged reports whether the name contains a hash tag that is not empty, as in "{app}-tasks". Then
// all keys are in one slot of a cluster.
func tagged(name string) bool {
	_, after, _ := strings.Cut(name, "{")
	tag, _, closed := strings.Cut(after, "}")
	return closed && tag != ""
}

// New returns a Store. It does no I/O and starts nothing. An empty Name becomes [DefaultName]. Its
// error joins all problems of the configuration: an invalid name, invalid Redis options, or, on a
// cluster, a name without a hash tag ([schedule.ErrUnsupported]).
func New(c Config) (*Store, error) {
	errs := []error{c.check()}
	conn, err := redisconn.New(redisconn.Config{Redis: c.Redis, Logger: c.Logger})
	if err != nil {
		errs = append(errs, fmt.Errorf("redisschedule: %w", err))
	} else if conn.Clustered() && !tagged(c.Name) {
		errs = append(errs, fmt.Errorf("redisschedule: %w: on a cluster the name of a schedule needs a hash tag, as in %q", schedule.ErrUnsupported, "{"+c.Name+"}"))
	}
	scripts, err := loadScripts()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	s := &Store{c: c, conn: conn, scripts: scripts}
	own := c.Name + ":swarmiji"
	s.published, s.own = layout{c.Name + ":jobs", c.Name + ":next", own}, layout{own + ":jobs", own + ":next", own}
	return s, nil
}
