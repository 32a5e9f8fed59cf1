package amqpconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
)

// Defaults of parameters that a URL does not set.
const (
	defaultHeartbeat   = 10 * time.Second
	defaultDialTimeout = 15 * time.Second
)

// endpoint holds the parts of one URL.
type endpoint struct {
	addr      string // host:port, the only part that errors and logs show
	vhost     string
	user      string
	pass      string
	external  bool
	tls       *tls.Config // nil: plain TCP
	heartbeat time.Duration
	timeout   time.Duration
}

// endpoints returns the endpoints of all URLs, and reads the certificate files that they name. It
// returns all problems of the configuration joined in one error, also that no URL is given.
func endpoints(c amqpconnect.Config) ([]endpoint, error) {
	var errs []error
	if len(c.URLs) == 0 {
		errs = append(errs, errors.New("amqp: no URL is given"))
	}
	eps := make([]endpoint, 0, len(c.URLs))
	for i, u := range c.URLs {
		ep, err := newEndpoint(c, u)
		if err != nil {
			errs = append(errs, fmt.Errorf("amqp: URL %d: %w", i+1, err))
			continue
		}
		eps = append(eps, ep)
	}
	return eps, errors.Join(errs...)
}

// newEndpoint parses and checks one URL, and sets defaults for parameters that it lacks. For amqps
// it reads the certificate files. Its errors never quote the URL. It refuses:
//
//   - a scheme other than amqp and amqps, a fragment, a malformed host or port
//   - parameters that are unknown or have a bad value
//   - settings for TLS with the scheme amqp, and those that tlsFor refuses
func newEndpoint(c amqpconnect.Config, raw string) (endpoint, error) {
	// The errors of the parsers may quote a part of the password, so they are not returned.
	u, err := url.Parse(raw)
	if err != nil {
		return endpoint{}, errors.New("cannot be parsed; reserved characters in user, password and vhost must be percent-encoded")
	}
	if u.Scheme != "amqp" && u.Scheme != "amqps" {
		return endpoint{}, errors.New("the scheme must be amqp or amqps")
	}
	if u.Fragment != "" {
		return endpoint{}, errors.New("a '#' in user, password or vhost must be percent-encoded")
	}
	if err := checkParameters(u.Query()); err != nil {
		return endpoint{}, err
	}
	a, err := amqp.ParseURI(raw)
	if err != nil {
		return endpoint{}, errors.New("host, port or a parameter is malformed")
	}
	ep := endpoint{
		addr:      net.JoinHostPort(a.Host, strconv.Itoa(a.Port)),
		vhost:     a.Vhost,
		user:      a.Username,
		pass:      a.Password,
		heartbeat: defaultHeartbeat,
		timeout:   defaultDialTimeout,
	}
	if s := u.Query().Get("heartbeat"); s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return endpoint{}, errors.New("heartbeat must be 1 to 65535 seconds")
		}
		ep.heartbeat = time.Duration(n) * time.Second
	}
	if a.ConnectionTimeout > 0 {
		ep.timeout = time.Duration(a.ConnectionTimeout) * time.Millisecond
	}
	for _, m := range a.AuthMechanism {
		switch strings.ToLower(m) {
		case "plain":
		case "external":
			ep.external = true
		default:
			return endpoint{}, errors.New("auth_mechanism must be plain or external")
		}
	}
	switch {
	case a.Scheme == "amqps":
		if ep.tls, err = tlsFor(c, a); err != nil {
			return endpoint{}, err
		}
	case c.TLS != nil || hasTLS(a):
		return endpoint{}, errors.New("TLS is configured, but the scheme is amqp, which is plain text; use amqps")
	}
	return ep, nil
}

// checkParameters returns an error for a URL parameter that would be ignored: an unknown one, or
// one such as verify=verify_none of other clients. Otherwise it returns nil.
func checkParameters(q url.Values) error {
	for name := range q {
		switch name {
		case "heartbeat", "connection_timeout", "cacertfile", "certfile", "keyfile", "server_name_indication", "auth_mechanism":
		case "verify", "fail_if_no_peer_cert":
			return fmt.Errorf("parameter %s: the server's certificate is always verified; trust a private authority with cacertfile or Config.TLS", name)
		default:
			return fmt.Errorf("unknown parameter %q", name)
		}
	}
	return nil
}

// hasTLS reports whether a URL has parameters for TLS.
func hasTLS(a amqp.URI) bool {
	return a.CACertFile != "" || a.CertFile != "" || a.KeyFile != "" || a.ServerName != ""
}

// tlsFor returns the TLS settings for an amqps URL: those of c, or of the files that the URL names,
// which it reads. The minimum version is 1.2, and the default server name is the URL's host. It
// returns an error if both are given, or if a file cannot be used.
func tlsFor(c amqpconnect.Config, a amqp.URI) (*tls.Config, error) {
	var t *tls.Config
	if c.TLS != nil {
		if hasTLS(a) {
			return nil, errors.New("TLS parameters are given in the URL and in Config.TLS; use one of them")
		}
		t = c.TLS.Clone()
	} else {
		t = &tls.Config{ServerName: a.ServerName}
		if err := loadFiles(t, a); err != nil {
			return nil, err
		}
	}
	t.MinVersion = max(t.MinVersion, tls.VersionTLS12)
	if t.ServerName == "" {
		t.ServerName = a.Host
	}
	return t, nil
}

// loadFiles loads the certificates of the files that the URL names into t. It returns an error if a
// file cannot be read or holds no certificate, or if only one of certfile and keyfile is given.
func loadFiles(t *tls.Config, a amqp.URI) error {
	if a.CACertFile != "" {
		pem, err := os.ReadFile(a.CACertFile)
		if err != nil {
			return fmt.Errorf("cacertfile: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("cacertfile %s holds no certificate", a.CACertFile)
		}
	}
	if (a.CertFile == "") != (a.KeyFile == "") {
		return errors.New("certfile and keyfile must be given together")
	}
	if a.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
		if err != nil {
			return fmt.Errorf("certfile and keyfile: %w", err)
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return nil
}
