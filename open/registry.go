package open

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/sqldb"
)

// registered is the Registry of the package's functions: the only global state of the module.
var registered Registry

// Register adds a driver for the functions of this package. The packages below open call it when
// they are imported. It panics where [Registry.Register] returns an error. Safe for concurrent use.
func Register(d Driver) {
	if err := registered.Register(d); err != nil {
		panic(err)
	}
}

// Registry finds the driver of a URL by its scheme. Its methods are those of the package, for a
// program without a global list of schemes. The zero value knows only mem://. Safe for concurrent
// use. It must not be copied.
type Registry struct {
	mu   sync.RWMutex
	list []entry
}

// entry holds a scheme and its driver.
type entry struct {
	scheme Scheme
	driver Driver
}

// Register adds the schemes of a driver. It returns an error and adds nothing if d is nil or has no
// schemes. The same happens if the name of a scheme is malformed, registered already, or mem.
func (r *Registry) Register(d Driver) error {
	if d == nil {
		return errors.New("open: Register: the driver is nil")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var added []entry
	for _, s := range d.Schemes() {
		if !isWord(s.Name) {
			return fmt.Errorf("open: Register: %T: the name of scheme %q is malformed", d, s.Name)
		}
		same := func(e entry) bool { return e.scheme.Name == s.Name }
		if s.Name == memory || slices.ContainsFunc(r.list, same) || slices.ContainsFunc(added, same) {
			return fmt.Errorf("open: Register: %T: scheme %s:// is registered already", d, s.Name)
		}
		added = append(added, entry{s, d})
	}
	if len(added) == 0 {
		return fmt.Errorf("open: Register: %T has no scheme", d)
	}
	r.list = append(r.list, added...)
	return nil
}

// entries returns all schemes with their drivers: mem:// first, then those of homes in its order,
// then further schemes in the order of their registration. The slice belongs to the caller.
func (r *Registry) entries() []entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := []entry{{memScheme(), memDriver{}}}
	for row := range len(homes) + 1 {
		for _, e := range r.list {
			if homeIndex(e.scheme.Name) == row {
				all = append(all, e)
			}
		}
	}
	return all
}

// purpose is the use of a URL.
type purpose struct {
	advice string   // in errors about a URL without a usable scheme; "": that of advise
	keeps  string   // what its server must keep, in errors
	homes  []string // the packages below open whose servers keep it; nil: all
}

// The purposes of URLs.
var (
	forTasks    = purpose{}
	forJobs     = purpose{"write sqlite:jobs.db, postgres://user:password@host/database or mem://", "jobs", databases}
	forDatabase = purpose{"write sqlite:app.db or postgres://user:password@host/database", "SQL tables", databases}
	forSchedule = purpose{
		"write sqlite:app.db, postgres://user:password@host/database, redis://:password@host:6379 or mem://", "schedules",
		append([]string{"nats", "natsembedded", "redis"}, databases...),
	}
)

// find returns the entry for the scheme of a URL. Returns an error with a remedy if the URL is
// empty, or its scheme is missing, malformed or unknown. For a scheme of this module without a
// driver the error names the package to import. If that package is of no use it has p.advice.
func (r *Registry) find(text string, p purpose) (entry, error) {
	all := r.entries()
	text = strings.TrimSpace(text)
	if p.advice == "" {
		p.advice = advise(text, all)
	}
	if text == "" {
		return entry{}, fmt.Errorf("the URL is empty; %s", p.advice)
	}
	name, rest, found := strings.Cut(text, ":")
	name = strings.ToLower(name)
	i := slices.IndexFunc(all, func(e entry) bool { return e.scheme.Name == name })
	slashes := strings.HasPrefix(rest, "//")
	switch {
	case found && i >= 0 && (slashes || all[i].scheme.Place == PlaceDatabase):
		return all[i], nil
	case found && i < 0 && (slashes || isDatabase(name)) && home(name) != "":
		if p.homes != nil && !slices.Contains(p.homes, home(name)) {
			return entry{}, fmt.Errorf("%s:// keeps no %s; %s", name, p.keeps, p.advice)
		}
		return entry{}, r.missing(name)
	// neither host:port nor user:password@host
	case found && !slashes && isWord(name) && strings.Trim(rest[:min(len(rest), 1)], "0123456789") != "" && !strings.Contains(rest, "@"):
		if i >= 0 {
			return entry{}, fmt.Errorf("two slashes are missing after %s: in the URL; %s", name, p.advice)
		}
		return entry{}, fmt.Errorf("the URL has the unknown scheme %s; %s", name, p.advice)
	case !slashes:
		return entry{}, fmt.Errorf("the URL has no scheme; %s", p.advice)
	case !isWord(name):
		return entry{}, fmt.Errorf("the URL's scheme is malformed; %s", p.advice)
	case name == "sqlite3":
		return entry{}, fmt.Errorf("there is no adapter for sqlite3://; write sqlite:// in its place")
	}
	return entry{}, fmt.Errorf("there is no adapter for %s://; known are %s and the variants that package open lists; correct the scheme", name, strings.Join(schemeNames(all), ", "))
}

// missing returns the error for a scheme of this module without a registered driver. It names the
// package to import, or for a Registry of the program the package of the Driver.
func (r *Registry) missing(name string) error {
	path := module + "/open/" + home(name)
	if r == &registered {
		return fmt.Errorf("no driver for %s:// is imported; add import _ %q, or _ %q for all schemes", name, path, module+"/open/all")
	}
	return fmt.Errorf("the Registry has no driver for %s://; give it the Driver of package %q", name, path)
}

// Open constructs all adapters of a URL with the drivers of r, as the function [Open] does. It
// connects to no server, but reads certificate files and starts an embedded server. Close the Swarm
// after use.
//
// Returns an error with a remedy if the URL or an option is invalid, or r has no driver for the
// scheme. Then nothing stays open.
func (r *Registry) Open(ctx context.Context, url string, o Options) (*Swarm, error) {
	ts, err := r.parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	s := &Swarm{targets: ts}
	if err := s.make(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open: %w", err), s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// Broker constructs the broker of a URL with the drivers of r, as the function [Broker] does. It
// connects at first use; Close also stops an embedded server. Returns an error if any URL is
// invalid, or the broker's server carries no tasks.
func (r *Registry) Broker(ctx context.Context, url string, o Options) (broker.Broker, error) {
	ts, err := r.parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return lone(ctx, ts.broker, (*target).broker, ownBroker)
}

// Results constructs the result store of a URL with the drivers of r, as the function [Results]
// does. It connects at first use; Close also stops an embedded server. Returns an error if any URL
// is invalid, or the server has no result store.
func (r *Registry) Results(ctx context.Context, url string, o Options) (resultstore.ResultStore, error) {
	ts, err := r.parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return lone(ctx, ts.results, (*target).results, ownResults)
}

// Events constructs the event bus of a URL with the drivers of r, as the function [Events] does. It
// connects at first use; Close also stops an embedded server. Returns an error if any URL is
// invalid, or the server has no event bus.
func (r *Registry) Events(ctx context.Context, url string, o Options) (events.EventBus, error) {
	ts, err := r.parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return lone(ctx, ts.events, (*target).events, ownEvents)
}

// Revocations constructs the bus for revocations with the drivers of r, as the function
// [Revocations] does: on the server of the events, in a namespace of its own. It connects at first
// use; Close also stops an embedded server.
func (r *Registry) Revocations(ctx context.Context, url string, o Options) (events.EventBus, error) {
	ts, err := r.parseAll(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return lone(ctx, ts.events.revocations(), (*target).events, ownEvents)
}

// Schedule constructs the schedule store of a URL with the drivers of r, as the function [Schedule]
// does. It connects at first use; Close also stops an embedded server. Returns an error if the URL
// is invalid, or its server has no schedule store.
func (r *Registry) Schedule(ctx context.Context, url string, o ScheduleOptions) (ScheduleStore, error) {
	t, err := r.parseOne(ctx, url, forSchedule, Options{TLS: o.TLS, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("open: schedule: %w", err)
	}
	construct := func(t *target) (ScheduleStore, error) { return t.schedule(o.Name) }
	return lone(ctx, t, construct, ownSchedule)
}

// Jobs constructs the job store of a URL with the drivers of r, as the function [Jobs] does. It
// connects at first use. Returns an error if the URL is invalid, its server has no job store, or
// mem:// gets TLS.
func (r *Registry) Jobs(ctx context.Context, url string, o JobsOptions) (jobs.Store, error) {
	t, err := r.parseOne(ctx, url, forJobs, Options{TLS: o.TLS, Logger: o.Logger})
	if err == nil && t.TLS != nil && t.Scheme.Port == "" { // in memory, or a file
		err = fmt.Errorf("%s:// has no use for TLS", t.Scheme.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("open: jobs: %w", err)
	}
	return lone(ctx, t, (*target).jobs, ownJobs)
}

// Database returns the SQL database of a URL with the drivers of r, as the function [Database]
// does. It does not connect. Close it after use.
func (r *Registry) Database(ctx context.Context, url string, o Options) (sqldb.DB, error) {
	t, err := r.parseOne(ctx, url, forDatabase, o)
	if err == nil && t.parts.Database == nil {
		err = fmt.Errorf("%s:// is no SQL database; %s", t.Scheme.Name, forDatabase.advice)
	}
	if err != nil {
		return nil, fmt.Errorf("open: database: %w", err)
	}
	return t.parts.Database, nil
}

// Outbox constructs the outbox in a database with the drivers of r, as the function [Outbox] does.
// It connects at first use. Returns an error if the URL is invalid, or its server has no outbox.
func (r *Registry) Outbox(ctx context.Context, url string, o OutboxOptions) (OutboxStore, error) {
	t, err := r.parseOne(ctx, url, forDatabase, Options{Namespace: o.Namespace, TLS: o.TLS, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("open: outbox: %w", err)
	}
	return lone(ctx, t, (*target).outbox, ownOutbox)
}

// Redact returns a URL for logs, without user, password and parameters, as the function [Redact]
// does. It returns "unreadable" for a URL that r refuses.
func (r *Registry) Redact(url string) string {
	t, err := r.parse(url, Options{})
	if err != nil {
		return "unreadable"
	}
	return t.redacted()
}
