package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisConfig configures a Redis server. The zero value is a server that keeps all data and evicts
// no key.
type RedisConfig struct {
	Conf string // further lines of redis.conf, such as "maxmemory 10mb"; they come last and win
	// AOF selects when the append-only file is written to disk: "always", "everysec" or "no". With
	// "off" the server writes no file, so the data end with the process. Default: "always".
	//
	// Redis' own default is "everysec". With it Redis delays disk writes while an earlier write is in
	// progress, so a Kill loses up to two seconds of answered writes.
	AOF string
	TLS *TLSFiles // the server also listens with TLS on a second port; nil: it does not
	// RequireClientCert refuses TLS clients without a certificate of TLS's authority.
	RequireClientCert bool
}

// Redis is a private Redis server.
//
// Safe for concurrent use. Methods that start, stop, pause or resume the server run one at a time.
type Redis struct {
	node
	box      *sandbox
	conf     string   // path of the file, which the server may rewrite
	args     []string // arguments after the file's name
	port     int
	tlsPort  int
	busPort  int // for the cluster's nodes among themselves
	password string
}

// redisUser has all permissions. The default user has them too, with the same password.
const redisUser = "swarmiji"

// StartRedis starts a server and waits until it answers, a few milliseconds. The error wraps
// [ErrMissing] if Redis is not installed.
func StartRedis(ctx context.Context, cfg RedisConfig) (*Redis, error) {
	return startRedis(ctx, redisPlan{RedisConfig: cfg, name: "redis", password: redisPassword()})
}

// redisPlan holds the settings that a server needs beside its configuration.
type redisPlan struct {
	RedisConfig
	name     string
	password string
	cluster  bool     // a node of a Redis Cluster
	sentinel bool     // a sentinel instead of a server
	lines    []string // further lines, before Conf
}

// redisPassword returns a new random password.
func redisPassword() string { return "secret-" + rand.Text() }

// startRedis starts one server and waits until it answers. It tries three times, because another
// process may take a port after this one found it free.
func startRedis(ctx context.Context, plan redisPlan) (*Redis, error) {
	var err error
	for range 3 {
		var r *Redis
		if r, err = tryRedis(ctx, plan); err == nil {
			return r, nil
		}
		if errors.Is(err, ErrMissing) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%s: %w", plan.name, err)
}

// tryRedis makes one attempt of startRedis. After an error nothing is left of it.
func tryRedis(ctx context.Context, plan redisPlan) (*Redis, error) {
	program, err := redisProgram()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	box, err := newSandbox("swarmiji-redis-")
	if err != nil {
		return nil, err
	}
	r := &Redis{box: box, conf: filepath.Join(box.dir, "redis.conf"), port: ports[0], busPort: ports[2], password: plan.password}
	if plan.TLS != nil {
		r.tlsPort = ports[1]
	}
	if plan.sentinel {
		r.args = []string{"--sentinel"}
	}
	r.node = node{name: plan.name, probe: r.answers, start: func() (*process, error) {
		return box.start("server", filepath.Join(box.dir, "console.log"), environment(nil, nil),
			program, append([]string{r.conf}, r.args...)...)
	}}
	err = os.WriteFile(r.conf, []byte(strings.Join(r.lines(plan), "\n")+"\n"), 0o600)
	if err == nil {
		err = r.restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, box.close())
	}
	return r, nil
}

// redisProgram returns the path of redis-server. The error wraps ErrMissing if it is not installed.
func redisProgram() (string, error) {
	if !supported {
		return "", fmt.Errorf("%w: servers are started on Unix only", ErrMissing)
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("%w: redis-server (Debian: apt-get install redis-server): %w", ErrMissing, err)
	}
	return program, nil
}

// lines returns the lines of the server's redis.conf.
func (r *Redis) lines(plan redisPlan) []string {
	lines := []string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(r.port),
		"dir " + r.box.dir,
		"daemonize no",
		`logfile ""`, // Log reads the console
		"requirepass " + r.password,
		"user " + redisUser + " on >" + r.password + " ~* &* +@all",
	}
	if t := plan.TLS; t != nil {
		lines = append(lines,
			"tls-port "+strconv.Itoa(r.tlsPort),
			"tls-ca-cert-file "+t.CA,
			"tls-cert-file "+t.Cert,
			"tls-key-file "+t.Key,
			"tls-auth-clients "+map[bool]string{true: "yes", false: "optional"}[plan.RequireClientCert])
	}
	if !plan.sentinel {
		lines = append(lines, r.dataLines(plan)...)
	}
	return append(append(lines, plan.lines...), plan.Conf)
}

// dataLines returns the lines for a server that holds data.
func (r *Redis) dataLines(plan redisPlan) []string {
	lines := []string{
		`save ""`,
		"maxmemory-policy noeviction",
		"enable-debug-command yes",
		"masteruser " + redisUser,
		"masterauth " + plan.password,
		"repl-diskless-sync-delay 0", // a replica need not wait for other replicas
		"repl-ping-replica-period 1",
	}
	switch plan.AOF {
	case "off":
		lines = append(lines, "appendonly no")
	case "":
		lines = append(lines, "appendonly yes", "appendfsync always")
	default:
		lines = append(lines, "appendonly yes", "appendfsync "+plan.AOF)
	}
	if plan.cluster {
		lines = append(lines,
			"cluster-enabled yes",
			"cluster-port "+strconv.Itoa(r.busPort),
			"cluster-node-timeout 2000")
	}
	return lines
}

// answers returns nil if the server accepts commands and has loaded its data. Before that the
// server answers LOADING.
func (r *Redis) answers(ctx context.Context) error {
	// the client would print an error while the server does not listen yet
	if err := dialTCP(ctx, r.port); err != nil {
		return err
	}
	_, err := r.Do(ctx, "PING")
	return err
}

// Do runs one command on a separate connection and returns the answer, as the client decodes it. It
// does not retry. It is for a test's commands to the server, such as CONFIG SET, CLIENT KILL or
// DEBUG SLEEP.
func (r *Redis) Do(ctx context.Context, args ...any) (any, error) {
	c := r.client()
	defer func() { _ = c.Close() }() // the connection has sent all its commands
	return c.Do(ctx, args...).Result()
}

// client returns a client for this package's own requests, which never repeats a command. The
// caller must close it.
func (r *Redis) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: r.Addr(), Username: redisUser, Password: r.password,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// URL returns the address of database 0, with user and password:
// redis://user:password@127.0.0.1:port/0.
func (r *Redis) URL() string { return r.url("redis", r.port) }

// TLSURL returns the address of database 0 through TLS, rediss://..., or "" if the server was
// started without TLS.
func (r *Redis) TLSURL() string {
	if r.tlsPort == 0 {
		return ""
	}
	return r.url("rediss", r.tlsPort)
}

// url returns the address of database 0 at the port with this scheme, user and password.
func (r *Redis) url(scheme string, port int) string {
	u := url.URL{Scheme: scheme, User: url.UserPassword(redisUser, r.password), Host: address(port), Path: "/0"}
	return u.String()
}

// Addr returns host:port of the plain listener, for a [Proxy] or a [Relay].
func (r *Redis) Addr() string { return address(r.port) }

// TLSAddr returns host:port of the TLS listener.
func (r *Redis) TLSAddr() string { return address(r.tlsPort) }

// User returns the user in [Redis.URL], which has all permissions. The server's default user has
// the same password.
func (r *Redis) User() string { return redisUser }

// Password returns the password in [Redis.URL]. Tests search texts that must not contain it. The
// password is random, so no text of Redis or of the module contains it by chance.
func (r *Redis) Password() string { return r.password }

// CloseAllConnections makes the server close the connection of every client, including subscribers.
func (r *Redis) CloseAllConnections(ctx context.Context) error {
	for _, kind := range []string{"normal", "pubsub"} {
		if _, err := r.Do(ctx, "CLIENT", "KILL", "TYPE", kind); err != nil {
			return err
		}
	}
	return nil
}

// Close kills the server and removes its data. It is idempotent.
func (r *Redis) Close() error {
	r.Kill()
	return r.box.close()
}
