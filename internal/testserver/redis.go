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

// RedisConfig tunes a Redis server. The zero value is one that keeps all data and evicts none.
type RedisConfig struct {
	Conf string // further lines of redis.conf, such as "maxmemory 10mb"; they come last and win
	// AOF is when the append-only file goes to the disk: "always", the default, "everysec" or "no"; "off" keeps no file, so
	// that the data end with the process. It is not Redis' own default: with "everysec" Redis holds writes back while an
	// earlier one goes to the disk, so that a Kill loses writes which were answered, up to two seconds of them.
	AOF string
	TLS *TLSFiles // the server listens with TLS on a second port; nil: it does not
	// RequireClientCert refuses TLS clients that show no certificate of TLS's authority.
	RequireClientCert bool
}

// Redis is a Redis server of our own. All methods may be called from any goroutine; those that change whether the server
// runs wait for each other.
type Redis struct {
	node
	box      *sandbox
	conf     string   // path of the file, which the server may rewrite
	args     []string // after the file's name
	port     int
	tlsPort  int
	busPort  int // of a cluster's nodes among themselves
	password string
}

// redisUser may do everything. The default user may as well, with the same password.
const redisUser = "swarmiji"

// StartRedis starts a server and waits until it answers, a few milliseconds. The error wraps [ErrMissing] when Redis is not
// installed.
func StartRedis(ctx context.Context, cfg RedisConfig) (*Redis, error) {
	return startRedis(ctx, redisPlan{RedisConfig: cfg, name: "redis", password: redisPassword()})
}

// redisPlan is what a server needs to be told beside its configuration.
type redisPlan struct {
	RedisConfig
	name     string
	password string
	cluster  bool     // a node of a Redis Cluster
	sentinel bool     // a sentinel instead of a server
	lines    []string // further ones, before Conf
}

func redisPassword() string { return "secret-" + rand.Text() }

// startRedis starts one server. Another process may take a port since it was found free, so it is tried again.
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

// lines are the server's redis.conf.
func (r *Redis) lines(plan redisPlan) []string {
	lines := []string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(r.port),
		"dir " + r.box.dir,
		"daemonize no",
		`logfile ""`, // the console is what Log reads
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

// dataLines are those of a server that holds data.
func (r *Redis) dataLines(plan redisPlan) []string {
	lines := []string{
		`save ""`,
		"maxmemory-policy noeviction",
		"enable-debug-command yes",
		"masteruser " + redisUser,
		"masterauth " + plan.password,
		"repl-diskless-sync-delay 0", // a replica need not wait for others
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

// answers reports whether the server takes commands and has loaded its data: before that it answers LOADING.
func (r *Redis) answers(ctx context.Context) error {
	if err := dialTCP(ctx, r.port); err != nil { // the client would print that nobody listens yet
		return err
	}
	_, err := r.Do(ctx, "PING")
	return err
}

// Do runs one command on a connection of its own and returns the answer, as the client decodes it. It is for a test's
// commands to the server, such as CONFIG SET, CLIENT KILL or DEBUG SLEEP. Nothing is tried twice.
func (r *Redis) Do(ctx context.Context, args ...any) (any, error) {
	c := r.client()
	defer func() { _ = c.Close() }() // it has no more to say
	return c.Do(ctx, args...).Result()
}

func (r *Redis) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: r.Addr(), Username: redisUser, Password: r.password,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// URL is the address of database 0, with user and password: redis://user:password@127.0.0.1:port/0.
func (r *Redis) URL() string { return r.url("redis", r.port) }

// TLSURL is the address of database 0 through TLS, rediss://...; "" when the server was started without.
func (r *Redis) TLSURL() string {
	if r.tlsPort == 0 {
		return ""
	}
	return r.url("rediss", r.tlsPort)
}

func (r *Redis) url(scheme string, port int) string {
	u := url.URL{Scheme: scheme, User: url.UserPassword(redisUser, r.password), Host: address(port), Path: "/0"}
	return u.String()
}

// Addr is host:port of the plain listener, for a [Proxy] or a [Relay].
func (r *Redis) Addr() string { return address(r.port) }

// TLSAddr is host:port of the TLS listener.
func (r *Redis) TLSAddr() string { return address(r.tlsPort) }

// User is the user in [Redis.URL], who may do everything. The server's default user has the same password.
func (r *Redis) User() string { return redisUser }

// Password is the password in [Redis.URL], for tests that look for it where it must not be. No text of Redis or of the
// module holds it by chance.
func (r *Redis) Password() string { return r.password }

// CloseAllConnections makes the server close the connection of every client, subscribers too.
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
