package main

import (
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/open"
)

// settings checks the URL itself.
func (a *app) settings(f *findings) {
	if a.API != "" { // its server knows the URL of the broker
		return
	}
	f.ok("broker", "%s", open.Redact(a.Broker))
	_, query, _ := strings.Cut(a.Broker, "?")
	params, _ := url.ParseQuery(query) // an unreadable query is refused when the URL is opened
	for _, at := range []string{a.Broker, a.Results, a.Events, params.Get("results"), params.Get("events")} {
		if at != "" {
			checkEncryption(f, at)
		}
	}
	scheme, _, _ := strings.Cut(open.Redact(a.Broker), "://")
	if strings.Contains(a.Broker, "queue_type=classic") {
		f.warn("durability", "classic queues live on one node of RabbitMQ; with its disk they are lost. Quorum queues are the default")
	}
	if u, err := url.Parse(a.Broker); err == nil && scheme == "nats-embedded" && u.Query().Get("sync") != "always" {
		f.warn("durability", "the embedded server writes to the disk from time to time; a power cut loses what it confirmed since. sync=always does not")
	}
	if strings.HasPrefix(scheme, "hworker") {
		f.warn("durability", "hworker's keys can neither count, delay nor bury for a reason; see docs/capabilities.md for all that is weaker")
	}
}

// checkEncryption warns if traffic to another machine is not encrypted.
func checkEncryption(f *findings, at string) {
	scheme, hosts, _ := strings.Cut(open.Redact(at), "://")
	verified := strings.Contains(at, "sslmode=verify-") || !strings.Contains(at, "sslmode=") && strings.HasPrefix(os.Getenv("PGSSLMODE"), "verify-")
	if strings.HasPrefix(scheme, "postgres") && !verified && !local(hosts) {
		f.warn("encryption", "%s://%s sends results and passwords in plain text; over a network that others use, add sslmode=verify-full", scheme, hosts)
	}
	if slices.Contains([]string{"amqp", "nats", "redis", "redis-cluster", "redis-sentinel", "hworker+redis"}, scheme) && !local(hosts) {
		f.warn("encryption", "%s://%s sends tasks and passwords in plain text; over a network that others use, take the scheme through TLS", scheme, hosts)
	}
}

// local reports whether all hosts of a redacted URL are this machine.
func local(hosts string) bool {
	for host := range strings.SplitSeq(hosts, ",") {
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = host // without a port
		}
		if ip := net.ParseIP(name); name != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// collector gathers the warnings that adapters log about the settings of their servers. Safe for
// concurrent use.
type collector struct {
	mu    sync.Mutex
	lines []string
}

func (c *collector) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(groups []string, at slog.Attr) slog.Attr {
		if len(groups) == 0 && (at.Key == slog.TimeKey || at.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return at
	}}))
}

// Write adds a log line, at most 100, each one once. It implements io.Writer and never fails.
func (c *collector) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := strings.TrimSpace(string(line)); len(c.lines) < 100 && !slices.Contains(c.lines, text) {
		c.lines = append(c.lines, text)
	}
	return len(line), nil
}

func (c *collector) taken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}
