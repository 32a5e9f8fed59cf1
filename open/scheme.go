package open

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
)

// scheme is a row of the table: what the URLs of one scheme look like, and what makes the adapters.
type scheme struct {
	name   string
	form   string // how such a URL is written
	server string // what answers at its hosts
	start  string // what to do when nothing does; completes "no X answers at host; "
	port   string // where a host names none
	where  place
	secure bool     // through TLS
	params []string // parameters that end here, besides the common ones
	client []string // parameters left in the URL, for the client

	// check finds what is wrong with a URL beyond what holds for all. nil: nothing.
	check func(t *target) error
	// prepare makes ready what the constructors share. nil: nothing.
	prepare func(ctx context.Context, t *target) error
	broker  func(t *target) (broker.Broker, error)
	results func(t *target) (resultstore.ResultStore, error)
	events  func(t *target) (events.EventBus, error)
	// limiter makes what keeps limits over all processes. nil: there is none at such a URL.
	limiter func(t *target) (limit.Limiter, error)
	// schedule makes the store of a schedule of a name. nil: there is none at such a URL.
	schedule func(t *target, name string) (ScheduleStore, error)
}

// place is what stands between "://" and the parameters.
type place int

const (
	nowhere   place = iota // nothing
	servers                // hosts, with user and password before the first
	directory              // an absolute path
	database               // what internal/sqlconn takes
)

// schemes is the table, in the order in which it is told.
func schemes() []scheme {
	return slices.Concat(memSchemes(), amqpSchemes(), natsSchemes(), embeddedSchemes(), redisSchemes(), hworkerSchemes())
}

// The parameters of all schemes.
const (
	paramNamespace = "namespace"
	paramResults   = "results"
	paramEvents    = "events"
	paramRetain    = "retain"
)

// The parameters of the schemes with TLS.
const (
	paramCA         = "ca"
	paramCert       = "cert"
	paramKey        = "key"
	paramServerName = "server_name"
)

// own returns the parameters that end here.
func (s *scheme) own() []string {
	own := append([]string{paramNamespace, paramResults, paramEvents, paramRetain}, s.params...)
	if s.secure {
		own = append(own, paramCA, paramCert, paramKey, paramServerName)
	}
	return own
}

// knows reports whether a parameter has a meaning in the scheme.
func (s *scheme) knows(param string) bool {
	return slices.Contains(s.own(), param) || slices.Contains(s.client, param)
}

// leaves reports whether a parameter that does not end here is left in the URL.
func (s *scheme) leaves(param string) bool {
	return s.where == database || slices.Contains(s.client, param)
}

// schemeOf finds the row of a URL's scheme.
func schemeOf(list string) (scheme, error) {
	if isSQL(list) {
		return sqlScheme(list), nil
	}
	name, _, found := strings.Cut(strings.TrimSpace(list), "://")
	if !found {
		return scheme{}, errors.New("the URL has no scheme; write mem:// or amqp://user:password@host:5672/vhost")
	}
	all := schemes()
	i := slices.IndexFunc(all, func(s scheme) bool { return s.name == strings.ToLower(name) })
	if i >= 0 {
		return all[i], nil
	}
	if !isWord(name) {
		return scheme{}, errors.New("the URL's scheme is malformed; write mem:// or amqp://user:password@host:5672/vhost")
	}
	known := make([]string, len(all))
	for i, s := range all {
		known[i] = s.name + "://"
	}
	return scheme{}, fmt.Errorf("there is no adapter for %s://; known are %s", name, strings.Join(known, ", "))
}

// unknown says why a parameter is not known.
func (s *scheme) unknown(param string) error {
	var others []string
	for _, other := range schemes() {
		if other.knows(param) {
			others = append(others, other.name+"://")
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("parameter %s has no meaning in %s://; it belongs to %s", param, s.name, strings.Join(others, ", "))
	}
	switch param {
	case "verify", "insecure", "skip_verify", "tls_skip_verify", "insecure_skip_verify", "tls_insecure", "sslmode", "ssl_cert_reqs", "fail_if_no_peer_cert":
		return fmt.Errorf("there is no parameter %s: the server's certificate is always verified; name its authority with ca", param)
	case "cacertfile", "certfile", "keyfile", "server_name_indication":
		return fmt.Errorf("there is no parameter %s; use ca, cert, key or server_name", param)
	}
	return fmt.Errorf("unknown parameter %s; known are %s", printable(param), strings.Join(slices.Concat(s.own(), s.client), ", "))
}

// printable names a parameter in an error, unless it looks like something that got there by mistake.
func printable(name string) string {
	if isWord(name) {
		return name
	}
	return "(whose name is no word)"
}

// isWord reports whether s consists of small letters, digits, '_', '-' and '+', and is short.
func isWord(s string) bool {
	return s != "" && len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '+'
	})
}
