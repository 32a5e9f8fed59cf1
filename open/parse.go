package open

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/events"
)

// target is a URL taken apart, and what its adapters share.
type target struct {
	text      string // all of it, as given; may hold secrets
	scheme    scheme
	servers   []server          // of the place servers
	directory string            // of the place directory
	database  string            // of the place database: the URL without the parameters that end here
	params    map[string]string // those that end here
	namespace string
	retain    events.Retention
	tls       *tls.Config
	options   Options

	embedded *embedded.Server                // of nats-embedded, where it runs in this process
	redis    *redis.UniversalOptions         // of the schemes of Redis
	alone    bool                            // one adapter is made, which then owns what prepare made
	closer   func(ctx context.Context) error // of what prepare made; nil: nothing
}

// server is one host of a URL.
type server struct {
	url  string // of this host alone, without the parameters that end here
	addr string // host:port, all that is ever shown
	user *url.Userinfo
	path string // unescaped
}

// login is user and password, encoded; "" without any.
func (s *server) login() string {
	if s.user == nil {
		return ""
	}
	return s.user.String()
}

// urls are the servers' URLs, for clients that take URLs.
func (t *target) urls() []string {
	urls := make([]string, len(t.servers))
	for i, s := range t.servers {
		urls[i] = s.url
	}
	return urls
}

// addrs are the servers' addresses.
func (t *target) addrs() []string {
	addrs := make([]string, len(t.servers))
	for i, s := range t.servers {
		addrs[i] = s.addr
	}
	return addrs
}

// prepare makes ready what the constructors need.
func (t *target) prepare(ctx context.Context) error {
	if t.scheme.prepare == nil {
		return nil
	}
	return t.scheme.prepare(ctx, t)
}

// close releases what the adapters shared.
func (t *target) close(ctx context.Context) error {
	if t.closer == nil {
		return nil
	}
	return t.closer(ctx)
}

// parse checks everything that can be checked without a server. Its errors never quote a part of a URL that could be a
// part of a password, which is why the parser's own are not passed on.
func parse(list string, o Options) (*target, error) {
	s, err := schemeOf(list)
	if err != nil {
		return nil, err
	}
	t := &target{text: list, scheme: s, options: o, params: make(map[string]string)}
	urls := split(list)
	if s.where == database {
		urls = []string{strings.TrimSpace(list)} // a file's name may have commas
	}
	if s.where != servers && len(urls) > 1 {
		return nil, fmt.Errorf("a %s:// URL is given once; a comma inside of it is %%2C", s.name)
	}
	for i, raw := range urls {
		if err := t.takeApart(raw); err != nil {
			if len(urls) > 1 {
				err = fmt.Errorf("URL %d: %w", i+1, err)
			}
			return nil, err
		}
	}
	if t.namespace = t.params[paramNamespace]; t.namespace == "" {
		t.namespace = o.Namespace
	}
	if o.Namespace != "" && t.namespace != o.Namespace {
		return nil, fmt.Errorf("the URL's namespace %q differs from the one of the options, %q; give one of them", t.namespace, o.Namespace)
	}
	if err := t.setRetain(); err != nil {
		return nil, err
	}
	if _, _, err := t.deadBounds(); err != nil {
		return nil, err
	}
	switch {
	case s.secure:
		if t.tls, err = tlsConfig(t.params, o.TLS); err != nil {
			return nil, err
		}
	case s.where == servers && o.TLS != nil: // ignored, it would send the password in plain text
		return nil, fmt.Errorf("the options set up TLS, which %s:// does not use; write %s://", s.name, secured(s.name))
	}
	if s.check != nil {
		err = s.check(t)
	}
	return t, err
}

// secured names the scheme through TLS that belongs to one without.
func secured(name string) string {
	switch name {
	case "amqp":
		return "amqps"
	case "nats":
		return "tls"
	}
	return strings.Replace(name, "redis", "rediss", 1)
}

// split splits a list at its commas. What follows a comma is a URL when it has a scheme, and else a further host.
func split(list string) []string {
	var urls []string
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		if len(urls) > 0 && !strings.Contains(part, "://") {
			urls[len(urls)-1] += "," + part
		} else {
			urls = append(urls, part)
		}
	}
	return urls
}

var (
	errEscape = errors.New("the URL cannot be parsed; percent-encode reserved characters in user, password, path and parameters " +
		"(@ is %40, / is %2F, ? is %3F, # is %23, a comma is %2C), and give user and password before the first host")
	errQuery = errors.New("the URL's parameters cannot be parsed; write ?name=value&name=value, percent-encoded")
)

// takeApart checks one URL, adds its hosts, and moves the parameters that end here into t.
func (t *target) takeApart(raw string) error {
	s := &t.scheme
	if s.where == database {
		return t.takeDatabase(raw)
	}
	name, rest, _ := strings.Cut(raw, "://")
	if strings.ToLower(name) != s.name {
		return fmt.Errorf("it is no %s:// URL as the first one is; all must have one scheme, and a comma inside of a URL is %%2C", s.name)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	if strings.Contains(raw, "#") || strings.Contains(path+query, "@") || strings.ContainsAny(strings.TrimSuffix(user, "@"), "@,") || strings.Contains(path+query, ",") {
		return errEscape
	}
	left, err := t.takeParams(query)
	if err != nil {
		return err
	}
	switch s.where {
	case nowhere:
		if rest != "" {
			return fmt.Errorf("%s:// has neither host nor path: each is a server of its own; share what Open returned", s.name)
		}
		return nil
	case directory:
		return t.takeDirectory(authority, path)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u := s.name + "://" + user + strings.TrimSpace(host) + path + left
		if err := t.takeServer(u); err != nil {
			return err
		}
	}
	return nil
}

// takeServer adds the server of a URL with one host.
func (t *target) takeServer(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return errEscape
	}
	if u.Hostname() == "" {
		return fmt.Errorf("the URL names no host; write %s", t.scheme.form)
	}
	port := u.Port()
	if port == "" {
		port = t.scheme.port
	}
	t.servers = append(t.servers, server{url: raw, addr: net.JoinHostPort(u.Hostname(), port), user: u.User, path: strings.TrimPrefix(u.Path, "/")})
	return nil
}

// takeDirectory sets the directory.
func (t *target) takeDirectory(authority, path string) error {
	if authority != "" || path == "" || path == "/" {
		return fmt.Errorf("the URL names no directory; write %s with an absolute path", t.scheme.form)
	}
	dir, err := url.PathUnescape(path)
	if err != nil {
		return errEscape
	}
	t.directory = dir
	return nil
}

// takeParams moves the parameters that end here into t, and returns the others with a "?", for the client.
func (t *target) takeParams(raw string) (left string, err error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return "", errQuery
	}
	own := t.scheme.own()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		switch {
		case len(values) > 1:
			return "", fmt.Errorf("parameter %s is given twice; give it once", printable(name))
		case !slices.Contains(own, name) && t.scheme.leaves(name):
			continue
		case !slices.Contains(own, name):
			return "", t.scheme.unknown(name)
		case values[0] == "":
			return "", fmt.Errorf("parameter %s is empty; give it a value or leave it out", name)
		}
		if other, ok := t.params[name]; ok && other != values[0] {
			return "", fmt.Errorf("parameter %s differs between the URLs; give it once", name)
		}
		t.params[name] = values[0]
		query.Del(name)
	}
	if len(query) > 0 {
		left = "?" + query.Encode()
	}
	return left, nil
}
