package open

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/events"
)

// target is a parsed URL with the constructors of its adapters.
type target struct {
	Target
	registry  *Registry
	text      string // the whole URL; may contain secrets
	namespace string
	retain    events.Retention
	options   Options
	driver    Driver
	parts     Parts
	running   Running
}

// prepare starts the resources that the constructors need, such as an embedded server, and stores
// them in t.running. A shared database is stored there too, so that it is closed. Call prepare
// once, before the constructors.
func (t *target) prepare(ctx context.Context) (err error) {
	if db := t.parts.Database; db != nil {
		t.running.Close = db.Close
	}
	if t.parts.Start != nil {
		t.running, err = t.parts.Start(ctx)
	}
	return err
}

// close stops the resources that prepare has started. It does nothing if prepare has started
// nothing.
func (t *target) close(ctx context.Context) error {
	if t.running.Close == nil {
		return nil
	}
	return t.running.Close(ctx)
}

// parse parses a URL, or a list of URLs of one server, and checks all that can be checked without a
// server. It returns the target with the constructors of its adapters. It connects to no server and
// starts nothing; the driver may read certificate files.
//
// Returns an error if the scheme has no driver, the URL or a parameter is invalid, or the URL
// contradicts the options. The error never quotes a part of a URL that could be part of a password.
// So parse does not pass on the errors of the URL parser.
func (r *Registry) parse(list string, o Options) (*target, error) {
	return r.parseFor(list, forTasks, o)
}

// parseFor is parse for this purpose.
func (r *Registry) parseFor(list string, p purpose, o Options) (*target, error) {
	e, err := r.find(list, p)
	if err != nil {
		return nil, err
	}
	s := e.scheme
	o.TLS = present(o.TLS)
	t := &target{
		Target:   Target{Scheme: s, Params: make(map[string]string), Name: o.Name, TLS: o.TLS, Logger: o.Logger},
		registry: r, text: list, options: o, driver: e.driver,
	}
	urls := split(list)
	if s.Place == PlaceDatabase {
		urls = []string{strings.TrimSpace(list)} // the name of a file may contain commas
	}
	if s.Place != PlaceHosts && len(urls) > 1 {
		return nil, fmt.Errorf("a %s:// URL is given once; a comma inside of it is %%2C", s.Name)
	}
	for i, raw := range urls {
		if err := t.takeApart(raw); err != nil {
			if errors.Is(err, errEscape) {
				err = fmt.Errorf("the %s:// URL %w", s.Name, err)
			}
			if len(urls) > 1 {
				err = fmt.Errorf("URL %d: %w", i+1, err)
			}
			return nil, err
		}
	}
	if t.namespace = t.Params[paramNamespace]; t.namespace == "" {
		t.namespace = o.Namespace
	}
	if o.Namespace != "" && t.namespace != o.Namespace {
		return nil, fmt.Errorf("the URL's namespace %q differs from the one of the options, %q; give one of them", t.namespace, o.Namespace)
	}
	if err := t.setRetain(); err != nil {
		return nil, err
	}
	// without this error the password would be sent in plain text
	if s.Place == PlaceHosts && !s.Secure && o.TLS != nil {
		err := fmt.Errorf("the options set up TLS, which %s:// does not use", s.Name)
		if s.Secured != "" {
			err = fmt.Errorf("%w; write %s://", err, s.Secured)
		}
		return nil, err
	}
	t.parts, err = e.driver.Parts(&t.Target)
	return t, err
}

// present returns c, or nil if c is a nil pointer, such as a nil *tls.Config.
func present(c TLSConfig) TLSConfig {
	if v := reflect.ValueOf(c); c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return c
}

// split splits a list of URLs at its commas and trims white space. A part with a scheme begins a
// new URL. Another part is a further host of the URL before it.
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
	errUnknownFlag = errors.New("unknown parameter without a value, beside a password; percent-encode reserved characters in the password (& is %26)")
	errEscape      = errors.New("cannot be parsed; percent-encode reserved characters in user, password, path and parameters " +
		"(@ is %40, / is %2F, ? is %3F, # is %23, a comma is %2C), a port is a number, and user and password come before the first host")
	errQuery = errors.New("the URL's parameters cannot be parsed; write ?name=value&name=value, percent-encoded")
)

// takeApart checks one URL, adds its hosts to t.Servers or sets t.Directory or t.URL, and moves the
// parameters of package open into t.Params.
//
// Its errors name a remedy. The scheme must be that of the first URL, reserved characters must be
// percent-encoded, and the place must fit the scheme. takeParams checks the parameters.
func (t *target) takeApart(raw string) error {
	s := &t.Scheme
	if s.Place == PlaceDatabase {
		return t.takeDatabase(raw)
	}
	name, rest, _ := strings.Cut(raw, "://")
	if strings.ToLower(name) != s.Name {
		return fmt.Errorf("it is no %s:// URL as the first one is; all must have one scheme, and a comma inside of a URL is %%2C", s.Name)
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
	for part := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(part, "="); (name == paramResults || name == paramEvents) && strings.ContainsAny(value, "@,") {
			return fmt.Errorf("the value of %s must be percent-encoded: @ is %%40, a comma is %%2C, & is %%26, %% is %%25", name)
		}
	}
	if strings.Contains(raw, "#") || strings.Contains(path+query, "@") || strings.ContainsAny(strings.TrimSuffix(user, "@"), "@,") || strings.Contains(path+query, ",") {
		return errEscape
	}
	left, err := t.takeParams(query)
	if err != nil {
		return err
	}
	switch s.Place {
	case PlaceNone:
		if rest != "" {
			return fmt.Errorf("%s:// has neither host nor path: each is a server of its own; share what Open returned", s.Name)
		}
		return nil
	case PlaceDirectory:
		return t.takeDirectory(authority, path)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u := s.Name + "://" + user + strings.TrimSpace(host) + path + left
		if err := t.takeServer(u); err != nil {
			return err
		}
	}
	return nil
}

// takeServer adds the server of a URL with one host to t.Servers. If the URL names no port, it uses
// the scheme's port. Returns an error if the URL cannot be parsed or names no host.
func (t *target) takeServer(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return errEscape
	}
	if u.Hostname() == "" {
		return fmt.Errorf("the URL names no host; write %s", t.Scheme.Form)
	}
	port := u.Port()
	if port == "" {
		port = t.Scheme.Port
	}
	t.Servers = append(t.Servers, Server{
		URL: raw, Addr: net.JoinHostPort(u.Hostname(), port), User: u.User, Path: strings.TrimPrefix(u.Path, "/"),
	})
	return nil
}

// takeDirectory sets t.Directory to the unescaped path. Returns an error if the URL has a host, or
// no path but "/".
func (t *target) takeDirectory(authority, path string) error {
	if authority != "" || path == "" || path == "/" {
		return fmt.Errorf("the URL names no directory; write %s with an absolute path", t.Scheme.Form)
	}
	dir, err := url.PathUnescape(path)
	if err != nil {
		return errEscape
	}
	t.Directory = dir
	return nil
}

// takeParams moves the parameters of package open from a query into t.Params. It returns the others
// for the client, with a leading "?". Returns an error for an unknown, empty or repeated parameter,
// and for one that differs from an earlier URL of the list.
func (t *target) takeParams(raw string) (left string, err error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return "", errQuery
	}
	own, names := t.Scheme.own(), slices.Sorted(maps.Keys(query))
	login := slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, "password") })
	for _, name := range names {
		values := query[name]
		switch {
		case len(values) > 1:
			return "", fmt.Errorf("parameter %s is given twice; give it once", printable(name))
		case !slices.Contains(own, name) && t.Scheme.leaves(name):
			continue
		case !slices.Contains(own, name):
			if login && values[0] == "" { // perhaps the rest of the password
				return "", errUnknownFlag
			}
			return "", t.registry.unknown(t.Scheme, name)
		case values[0] == "":
			return "", fmt.Errorf("parameter %s is empty; give it a value or leave it out", name)
		}
		if other, ok := t.Params[name]; ok && other != values[0] {
			return "", fmt.Errorf("parameter %s differs between the URLs; give it once", name)
		}
		t.Params[name] = values[0]
		query.Del(name)
	}
	if len(query) > 0 {
		left = "?" + query.Encode()
	}
	return left, nil
}
