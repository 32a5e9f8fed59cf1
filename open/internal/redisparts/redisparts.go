// Package redisparts constructs the adapters of Redis, for the drivers redis and hworker.
package redisparts

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/redisevents"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/redislimit"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/params"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/redisresults"
	"github.com/swarmiji/swarmiji/schedule/redisschedule"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/redissettings"
)

// Parameters of a URL that the driver of hworker also has.
const (
	ParamDB       = "db"
	ParamPoolSize = "pool_size"
)

const (
	paramWaitReplicas     = "wait_replicas"
	paramSentinelUser     = "sentinel_user"
	paramSentinelPassword = "sentinel_password"
)

const (
	maxDB       = 1<<16 - 1
	maxPoolSize = 10_000
	maxReplicas = 100
)

// kind is the kind of installation: one server, a cluster, or servers with Sentinels.
type kind int

const (
	single kind = iota
	cluster
	sentinel
)

// Schemes returns the schemes of Redis, with and without TLS.
func Schemes() []open.Scheme {
	var all []open.Scheme
	for _, k := range []kind{single, cluster, sentinel} {
		all = append(all, WithTLS(scheme(k))...)
	}
	return all
}

// Single returns the scheme of one server without TLS.
func Single() open.Scheme { return scheme(single) }

// WithTLS returns plain and the scheme of the same server with TLS.
func WithTLS(plain open.Scheme) []open.Scheme {
	secure := plain
	secure.Name, secure.Form = secured(plain.Name), secured(plain.Form)
	plain.Secured, secure.Secure = secure.Name, true
	return []open.Scheme{plain, secure}
}

// secured returns a name or form of a scheme with "rediss" in place of its first "redis".
func secured(name string) string { return strings.Replace(name, "redis", "rediss", 1) }

// kindOf returns the kind of installation for a scheme.
func kindOf(scheme string) kind {
	switch {
	case strings.HasSuffix(scheme, "-cluster"):
		return cluster
	case strings.HasSuffix(scheme, "-sentinel"):
		return sentinel
	}
	return single
}

// scheme returns the scheme of a kind, without TLS: its name, form of URL, port, and parameters.
func scheme(k kind) open.Scheme {
	s := open.Scheme{
		Name: "redis", Port: "6379", Place: open.PlaceHosts,
		Server: "Redis", Start: "start one (redis-server), or use mem:// to try without",
		Params: []string{ParamPoolSize, paramWaitReplicas, params.DeadTTL, params.DeadMax},
	}
	switch k {
	case single:
		s.Form = "redis://user:password@host:6379/0"
		s.Params = append(s.Params, ParamDB)
	case cluster:
		s.Name, s.Form = "redis-cluster", "redis-cluster://user:password@host1:6379,host2:6379"
	case sentinel:
		s.Name, s.Form = "redis-sentinel", "redis-sentinel://user:password@sentinel1:26379,sentinel2:26379/master"
		s.Port, s.Server, s.Start = "26379", "Redis Sentinel", "start one (redis-sentinel), or name a single server with redis://"
		s.Params = append(s.Params, ParamDB, paramSentinelUser, paramSentinelPassword)
	}
	return s
}

// New returns the constructors of all adapters but a job store for the URL t, and the options of
// their client, which they share. It reads certificate files. Returns an error if the URL or a
// parameter is invalid.
func New(t *open.Target) (open.Parts, *redis.UniversalOptions, error) {
	at, err := options(t, kindOf(t.Scheme.Name))
	if err != nil {
		return open.Parts{}, nil, err
	}
	replicas, err := params.Number(t, paramWaitReplicas, 0, maxReplicas)
	if err != nil {
		return open.Parts{}, nil, err
	}
	ttl, most, err := params.Dead(t)
	if err != nil {
		return open.Parts{}, nil, err
	}
	return open.Parts{
		Broker: func(namespace string) (broker.Broker, error) {
			return redisbroker.New(redisbroker.Config{
				Redis: at, Namespace: namespace, WaitReplicas: replicas, Logger: t.Logger, DeadTTL: ttl, DeadMax: most,
			})
		},
		Results: func(namespace string) (resultstore.ResultStore, error) {
			return redisresults.New(redisresults.Config{Redis: at, Namespace: namespace, Logger: t.Logger})
		},
		Events: func(namespace string, retain events.Retention) (events.EventBus, error) {
			return redisevents.New(redisevents.Config{Redis: at, Namespace: namespace, Retain: retain, Logger: t.Logger})
		},
		Limiter: func(namespace string) (limit.Limiter, error) {
			return redislimit.New(redislimit.Config{Redis: at, Namespace: namespace, Logger: t.Logger})
		},
		Settings: func(namespace string) (settings.Store, error) {
			return redissettings.New(redissettings.Config{Redis: at, Namespace: namespace, Logger: t.Logger})
		},
		Schedule: func(name string) (open.ScheduleStore, error) {
			return redisschedule.New(redisschedule.Config{Redis: at, Name: name, Logger: t.Logger})
		},
	}, at, nil
}

// options returns the client's options for t: addresses, login, TLS, database and pool size.
// Returns an error if the URLs of a list differ in login or path, or if a user has no password.
// Invalid parameters are errors too.
func options(t *open.Target, k kind) (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
		// the server refuses blanks
		Addrs: t.Addrs(), ClientName: strings.Join(strings.Fields(t.Name), "-"),
		IsClusterMode: k == cluster,
	}
	if t.Scheme.Secure {
		c, err := params.TLS(t)
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		o.TLSConfig = c
	}
	first := t.Servers[0]
	for _, s := range t.Servers[1:] {
		if login(s) != login(first) || s.Path != first.Path {
			return nil, errors.New("the URLs differ in user, password or path; give all hosts in one URL: " + t.Scheme.Form)
		}
	}
	if first.User != nil {
		o.Username = first.User.Username()
		o.Password, _ = first.User.Password()
		if o.Password == "" { // the client would not log in
			return nil, fmt.Errorf("the URL has a user and no password; write %s://:password@host where there is a password alone", t.Scheme.Name)
		}
	}
	err := readPath(t, k, o)
	if err != nil {
		return nil, err
	}
	if o.PoolSize, err = params.Number(t, ParamPoolSize, 1, maxPoolSize); err != nil {
		return nil, err
	}
	return o, nil
}

// readPath reads the path of the URL into o: the number of the database, or the name of the master
// for Sentinel, with the login of the Sentinels. Returns an error if the path is invalid for the
// kind, differs from the parameter db, or if a single server has several hosts.
func readPath(t *open.Target, k kind, o *redis.UniversalOptions) (err error) {
	path := t.Servers[0].Path
	if o.DB, err = params.Number(t, ParamDB, 0, maxDB); err != nil {
		return err
	}
	switch k {
	case cluster:
		if path != "" && path != "0" {
			return fmt.Errorf("a cluster has one database; write %s", t.Scheme.Form)
		}
	case sentinel:
		if path == "" {
			return fmt.Errorf("the URL does not name the master; write %s", t.Scheme.Form)
		}
		o.MasterName = path
		o.SentinelUsername, o.SentinelPassword = t.Params[paramSentinelUser], t.Params[paramSentinelPassword]
	default:
		if len(t.Servers) > 1 {
			return fmt.Errorf("%s:// is one server; write %s:// for a cluster or %s:// for Sentinel", t.Scheme.Name,
				t.Scheme.Name+"-cluster", t.Scheme.Name+"-sentinel")
		}
		if path == "" {
			return nil
		}
		db, err := strconv.Atoi(path)
		switch {
		case err != nil || db < 0 || db > maxDB:
			return fmt.Errorf("the URL's path must be the number of a database; write %s", t.Scheme.Form)
		case t.Params[ParamDB] != "" && o.DB != db:
			return errors.New("the URL's path and parameter db name different databases; give one of them")
		}
		o.DB = db
	}
	return nil
}

// login returns the encoded user and password of s, or "".
func login(s open.Server) string {
	if s.User == nil {
		return ""
	}
	return s.User.String()
}
