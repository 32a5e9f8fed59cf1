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
	"github.com/swarmiji/swarmiji/task"
)

// DefaultName is the name of the schedule of a Config that names none.
const DefaultName = "default"

// Config says where Redis is and which schedule it is about. Redis is the only field that must be set.
type Config struct {
	// Redis says where the servers are: a single one, Sentinel (MasterName), or a cluster. It is copied. Retries of the client are
	// switched off; the store has its own.
	Redis *redis.UniversalOptions
	// Name is the name of the schedule, of which the keys are made as it is: 1 to 255 bytes of text. On a cluster it must have a hash
	// tag, as "{app-tasks}" has. "": "default".
	Name string
	// ClientName is shown in the server's list of connections, if the options have no ClientName. "": "swarmiji".
	ClientName string
	// Clock is the time by which entries are due. nil: the server's (TIME), which is the same for all.
	Clock func() time.Time
	// OnDrop is told of members of S:next that were dropped, because they are no JSON with an id, or because their entry does not exist.
	// The Logger is told, too. nil: nobody.
	OnDrop func(member string)
	// Backoff is between attempts to reach the server. Zero: full jitter up to 100 ms at first and up to 5 s in the end.
	Backoff task.Backoff
	// Logger is told of what no call returns: settings of the server that weaken the promise, and members that were dropped. nil:
	// slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems but those of the connection.
func (c *Config) check() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.ClientName == "" {
		c.ClientName = "swarmiji"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := schedule.CheckName(c.Name); err != nil {
		return fmt.Errorf("redisschedule: %w", err)
	}
	return nil
}

// tagged reports whether keys that begin with the name lie in one slot of a cluster.
func tagged(name string) bool {
	_, after, _ := strings.Cut(name, "{")
	tag, _, closed := strings.Cut(after, "}")
	return closed && tag != ""
}

// New checks c and makes a Store. It does no I/O and starts nothing. All problems of c are reported together.
func New(c Config) (*Store, error) {
	errs := []error{c.check()}
	conn, err := redisconn.New(redisconn.Config{Redis: c.Redis, Name: c.ClientName, Backoff: c.Backoff, Logger: c.Logger})
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
	s.theirs, s.ours = layout{c.Name + ":jobs", c.Name + ":next", own}, layout{own + ":jobs", own + ":next", own}
	return s, nil
}
