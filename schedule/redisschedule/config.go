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

// DefaultName is the name of the schedule of a Config that names none.
const DefaultName = "default"

// Config says where Redis is and which schedule it is about. Redis is the only field that must be set.
type Config struct {
	// Redis says where the servers are and how to reach them, as the client has it: one address,
	// several of a cluster (or IsClusterMode), or Sentinels with MasterName. It is copied. The client
	// never repeats a command; MinRetryBackoff and MaxRetryBackoff are the first and the longest time
	// between attempts to reach a server, with full jitter. 0: 100 ms and 5 s. ClientName is shown in
	// the server's list of connections. "": "swarmiji".
	Redis *redis.UniversalOptions
	// Name is the name of the schedule, of which the keys are made as it is: 1 to 255 bytes of text. On a cluster it must have a hash
	// tag, as "{app-tasks}" has. "": "default".
	Name string
	// Clock is the time by which entries are due. nil: the server's (TIME), which is the same for all.
	Clock func() time.Time
	// OnDrop is told of members of S:next that were dropped, because they are no JSON with an id, or because their entry does not exist.
	// The Logger is told, too. nil: nobody.
	OnDrop func(member string)
	// Logger is told of what no call returns: settings of the server that weaken the promise, and members that were dropped. nil:
	// slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems but those of the connection.
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

// tagged reports whether keys that begin with the name lie in one slot of a cluster.
func tagged(name string) bool {
	_, after, _ := strings.Cut(name, "{")
	tag, _, closed := strings.Cut(after, "}")
	return closed && tag != ""
}

// New checks c and makes a Store. It does no I/O and starts nothing. All problems of c are reported together.
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
	s.theirs, s.ours = layout{c.Name + ":jobs", c.Name + ":next", own}, layout{own + ":jobs", own + ":next", own}
	return s, nil
}
