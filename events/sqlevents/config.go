package sqlevents

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/sqldb"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultBuffer    = 8192
)

// maxNamespace is the longest namespace in bytes. It is the same for all adapters.
const maxNamespace = 64

// Config holds the settings of [New]. DB is the only required field.
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. Adapters share it. The
	// Bus does not close it. Required.
	DB sqldb.DB
	// Namespace separates programs that share a database: 1 to 64 letters, digits, '_' and '-', the
	// first a letter or a digit. All nodes must use the same one. Default: "default".
	Namespace string
	// Batch configures how events are collected into messages and how many may wait. Zero: the
	// defaults of [events.BatcherConfig].
	Batch events.BatcherConfig
	// Buffer is the number of events that wait in this process for each slow subscription. Beyond
	// it the oldest are dropped and counted. Default: 8,192. A subscription of Replay has no
	// buffer: its unread events wait in the database.
	Buffer int
	// Retain selects the events that are kept for [Bus.Replay]. The zero value keeps none. Age is
	// at least 10 s if events are kept.
	Retain events.Retention
	// Logger receives a warning when a listener is interrupted, or when a reader of kept events has
	// missed some. Default: slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger, and with a copy
// of Retain.Types. The error joins all problems: a negative Buffer, an invalid Namespace, and those
// of Retain. It does not check DB.
func (c Config) complete() (Config, error) {
	var errs []error
	if c.Buffer < 0 {
		errs = append(errs, errors.New("sqlevents: Buffer is negative"))
	}
	c.Buffer = cmp.Or(c.Buffer, DefaultBuffer)
	retain, err := c.Retain.Complete()
	if err != nil {
		errs = append(errs, fmt.Errorf("sqlevents: Retain: %w", err))
	}
	c.Retain = retain
	c.Retain.Types = slices.Clone(retain.Types)
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	// No adapter allows a '.' in a namespace, so that adapters can be exchanged.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("sqlevents: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
