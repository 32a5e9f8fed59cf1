package open

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// The parameters that end here, and those that the AMQP client knows.
const (
	paramNamespace  = "namespace"
	paramQueueType  = "queue_type"
	paramCA         = "ca"
	paramCert       = "cert"
	paramKey        = "key"
	paramServerName = "server_name"
)

// scheme is what is known of the URLs of an adapter.
type scheme struct {
	name   string
	own    []string // parameters taken out of the URL
	client []string // parameters left in it
}

var schemes = []scheme{
	{name: "mem", own: []string{paramNamespace}},
	{
		name: "amqp", own: []string{paramNamespace, paramQueueType},
		client: []string{"heartbeat", "connection_timeout", "auth_mechanism"},
	},
	{
		name: "amqps", own: []string{paramNamespace, paramQueueType, paramCA, paramCert, paramKey, paramServerName},
		client: []string{"heartbeat", "connection_timeout", "auth_mechanism"},
	},
}

const example = "amqp://user:password@host:5672/vhost" //nolint:gosec // nobody's password

// target is a URL taken apart.
type target struct {
	scheme    string
	urls      []string // without the parameters that end here
	namespace string
	queueType string
	tls       *tls.Config
	options   Options
}

// parse checks everything that can be checked without a server. Its errors never quote a part of a URL that could be a
// part of a password, which is why the parser's own are not passed on.
func parse(ctx context.Context, list string, o Options) (*target, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open: %w", context.Cause(ctx))
	}
	s, err := schemeOf(list)
	if err != nil {
		return nil, err
	}
	t := &target{scheme: s.name, options: o}
	given := make(map[string]string)
	for i, raw := range strings.Split(list, ",") {
		u, err := t.takeApart(s, strings.TrimSpace(raw), given)
		if err != nil {
			return nil, fmt.Errorf("open: URL %d: %w", i+1, err)
		}
		t.urls = append(t.urls, u)
	}
	if t.scheme == "mem" && len(t.urls) > 1 {
		return nil, errors.New("open: mem:// is one server in this process; give it once")
	}
	t.queueType = given[paramQueueType]
	if t.namespace = given[paramNamespace]; t.namespace == "" {
		t.namespace = o.Namespace
	}
	if o.Namespace != "" && t.namespace != o.Namespace {
		return nil, fmt.Errorf("open: the URL's namespace %q differs from the one of the options, %q; give one of them", t.namespace, o.Namespace)
	}
	switch {
	case t.scheme == "amqps":
		if t.tls, err = tlsConfig(given, o.TLS); err != nil {
			return nil, fmt.Errorf("open: %w", err)
		}
	case t.scheme == "amqp" && o.TLS != nil: // ignored, it would send the password in plain text
		return nil, errors.New("open: the options set up TLS, which amqp:// does not use; write amqps://")
	}
	return t, nil
}

// schemeOf finds the row of a URL's scheme.
func schemeOf(list string) (scheme, error) {
	name, _, found := strings.Cut(strings.TrimSpace(list), "://")
	if !found {
		return scheme{}, fmt.Errorf("open: the URL has no scheme; write mem:// or %s", example)
	}
	i := slices.IndexFunc(schemes, func(s scheme) bool { return s.name == strings.ToLower(name) })
	if i < 0 {
		if !isWord(name) {
			return scheme{}, fmt.Errorf("open: the URL's scheme is malformed; write mem:// or %s", example)
		}
		known := make([]string, len(schemes))
		for i, s := range schemes {
			known[i] = s.name + "://"
		}
		return scheme{}, fmt.Errorf("open: there is no adapter for %s://; known are %s", name, strings.Join(known, ", "))
	}
	return schemes[i], nil
}

// takeApart checks one URL, moves the parameters that end here into given, and returns the rest of it.
func (t *target) takeApart(s scheme, raw string, given map[string]string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, strings.Contains(raw, "#"), strings.Contains(rawQuery(raw), "@"), strings.Contains(u.EscapedPath(), "@"):
		return "", errors.New("it cannot be parsed; percent-encode reserved characters in user, password, vhost and parameters (@ is %40, / is %2F, ? is %3F, # is %23)")
	case u.Scheme != s.name:
		return "", fmt.Errorf("it is not a %s:// URL as the first one is; all must have one scheme, and a comma inside of a URL is %%2C", s.name)
	case s.name == "mem" && (u.Host != "" || u.User != nil || u.Path != ""):
		return "", errors.New("mem:// has neither host nor path: each is a server of its own; share what Open returned")
	case s.name != "mem" && u.Host == "":
		return "", fmt.Errorf("it names no host; write %s://user:password@host/vhost", s.name)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", errors.New("its parameters cannot be parsed; write ?name=value&name=value, percent-encoded")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		switch {
		case len(values) > 1:
			return "", fmt.Errorf("parameter %s is given twice; give it once", printable(name))
		case slices.Contains(s.client, name):
			continue
		case !slices.Contains(s.own, name):
			return "", unknown(s, name)
		case values[0] == "":
			return "", fmt.Errorf("parameter %s is empty; give it a value or leave it out", name)
		}
		if other, ok := given[name]; ok && other != values[0] {
			return "", fmt.Errorf("parameter %s differs between the URLs; give it once", name)
		}
		given[name] = values[0]
		query.Del(name)
	}
	base, _, _ := strings.Cut(raw, "?")
	if len(query) > 0 {
		base += "?" + query.Encode()
	}
	return base, nil
}

// unknown says why a parameter is not known.
func unknown(s scheme, name string) error {
	for _, other := range schemes {
		if slices.Contains(other.own, name) || slices.Contains(other.client, name) {
			return fmt.Errorf("parameter %s has no meaning in %s://; it belongs to %s://", name, s.name, other.name)
		}
	}
	switch name {
	case "verify", "insecure", "skip_verify", "tls_skip_verify", "sslmode", "fail_if_no_peer_cert":
		return fmt.Errorf("there is no parameter %s: the server's certificate is always verified; name its authority with ca", name)
	case "cacertfile", "certfile", "keyfile", "server_name_indication":
		return fmt.Errorf("there is no parameter %s; use ca, cert, key or server_name", name)
	}
	return fmt.Errorf("unknown parameter %s; known are %s", printable(name), strings.Join(slices.Concat(s.own, s.client), ", "))
}

// printable names a parameter in an error, unless it looks like something that got there by mistake.
func printable(name string) string {
	if isWord(name) {
		return name
	}
	return "(whose name is no word)"
}

// isWord reports whether s consists of small letters, digits, '_' and '-', and is short.
func isWord(s string) bool {
	return s != "" && len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

func rawQuery(raw string) string {
	_, query, _ := strings.Cut(raw, "?")
	return query
}
