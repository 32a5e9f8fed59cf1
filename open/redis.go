package open

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
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/redisresults"
)

const (
	paramDB               = "db"
	paramPoolSize         = "pool_size"
	paramWaitReplicas     = "wait_replicas"
	paramSentinelUser     = "sentinel_user"
	paramSentinelPassword = "sentinel_password"
)

const (
	maxDB       = 1<<16 - 1
	maxPoolSize = 10_000
	maxReplicas = 100
)

// redisKind is how many servers there are and who knows where the data is.
type redisKind int

const (
	single redisKind = iota
	cluster
	sentinel
)

func redisSchemes() []scheme {
	var all []scheme
	for _, s := range []scheme{
		redisScheme("redis", single),
		redisScheme("redis-cluster", cluster),
		redisScheme("redis-sentinel", sentinel),
	} {
		secure := s
		secure.secure = true
		secure.name, secure.form = secured(s.name), secured(s.form)
		all = append(all, s, secure)
	}
	return all
}

// redisScheme is the row of the scheme without TLS.
func redisScheme(name string, kind redisKind) scheme {
	s := scheme{
		name: name, port: "6379", where: servers,
		server: "Redis", start: "start one (redis-server), or use mem:// to try without",
		params: []string{paramPoolSize, paramWaitReplicas, paramDeadTTL, paramDeadMax},
		check:  func(t *target) error { return checkRedis(t, kind) },
		broker: redisBroker, results: redisResults, events: redisEvents, limiter: redisLimiter, schedule: redisSchedule,
	}
	switch kind {
	case single:
		s.form = name + "://user:password@host:6379/0"
		s.params = append(s.params, paramDB)
	case cluster:
		s.form = name + "://user:password@host1:6379,host2:6379"
	case sentinel:
		s.form = name + "://user:password@sentinel1:26379,sentinel2:26379/master"
		s.port, s.server, s.start = "26379", "Redis Sentinel", "start one (redis-sentinel), or name a single server with redis://"
		s.params = append(s.params, paramDB, paramSentinelUser, paramSentinelPassword)
	}
	return s
}

// checkRedis sets the options of the client.
func checkRedis(t *target, kind redisKind) error {
	o := &redis.UniversalOptions{Addrs: t.addrs(), ClientName: t.clientName(), TLSConfig: t.tls, IsClusterMode: kind == cluster}
	if t.scheme.secure && t.tls == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	first := t.servers[0]
	for _, s := range t.servers[1:] {
		if s.login() != first.login() || s.path != first.path {
			return errors.New("the URLs differ in user, password or path; give all hosts in one URL: " + t.scheme.form)
		}
	}
	if first.user != nil {
		o.Username = first.user.Username()
		o.Password, _ = first.user.Password()
		if o.Password == "" { // the client would log in as nobody
			return fmt.Errorf("the URL has a user and no password; write %s://:password@host where there is a password alone", t.scheme.name)
		}
	}
	err := redisPath(t, kind, o)
	if err != nil {
		return err
	}
	if o.PoolSize, err = t.number(paramPoolSize, 0, 1, maxPoolSize); err != nil {
		return err
	}
	if _, err = t.number(paramWaitReplicas, 0, 0, maxReplicas); err != nil {
		return err
	}
	t.redis = o
	return nil
}

// redisPath takes the path of the URL: the database, or with Sentinel the name of the master.
func redisPath(t *target, kind redisKind, o *redis.UniversalOptions) (err error) {
	path := t.servers[0].path
	if o.DB, err = t.number(paramDB, 0, 0, maxDB); err != nil {
		return err
	}
	switch kind {
	case cluster:
		if path != "" && path != "0" {
			return fmt.Errorf("a cluster has one database; write %s", t.scheme.form)
		}
	case sentinel:
		if path == "" {
			return fmt.Errorf("the URL does not name the master; write %s", t.scheme.form)
		}
		o.MasterName = path
		o.SentinelUsername, o.SentinelPassword = t.params[paramSentinelUser], t.params[paramSentinelPassword]
	default:
		if len(t.servers) > 1 {
			return fmt.Errorf("%s:// is one server; write %s:// for a cluster or %s:// for Sentinel", t.scheme.name,
				t.scheme.name+"-cluster", t.scheme.name+"-sentinel")
		}
		if path == "" {
			return nil
		}
		db, err := strconv.Atoi(path)
		switch {
		case err != nil || db < 0 || db > maxDB:
			return fmt.Errorf("the URL's path must be the number of a database; write %s", t.scheme.form)
		case t.params[paramDB] != "" && o.DB != db:
			return errors.New("the URL's path and parameter db name different databases; give one of them")
		}
		o.DB = db
	}
	return nil
}

// clientName is the name in the server's list of clients, which may not have blanks.
func (t *target) clientName() string { return strings.Join(strings.Fields(t.options.Name), "-") }

func redisBroker(t *target) (broker.Broker, error) {
	replicas, err := t.number(paramWaitReplicas, 0, 0, maxReplicas)
	if err != nil {
		return nil, err
	}
	ttl, most, err := t.deadBounds()
	if err != nil {
		return nil, err
	}
	return redisbroker.New(redisbroker.Config{
		Redis: t.redis, Namespace: t.namespace, WaitReplicas: replicas, Logger: t.options.Logger,
		DeadTTL: ttl, DeadMax: most,
	})
}

func redisResults(t *target) (resultstore.ResultStore, error) {
	return redisresults.New(redisresults.Config{Redis: t.redis, Namespace: t.namespace, Logger: t.options.Logger})
}

func redisEvents(t *target) (events.EventBus, error) {
	return redisevents.New(redisevents.Config{Redis: t.redis, Namespace: t.namespace, Retain: t.retain, Logger: t.options.Logger})
}

func redisLimiter(t *target) (limit.Limiter, error) {
	return redislimit.New(redislimit.Config{Redis: t.redis, Namespace: t.namespace, Logger: t.options.Logger})
}
